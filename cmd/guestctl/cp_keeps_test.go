package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// masked runs guestctl with a umask that takes from group and others.
func (g *guest) masked(t *testing.T, args string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "umask 027; export CTL="+filepath.Join(bin, "guestctl")+" "+envTarget+"="+g.target+"; "+args)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", args, err, out)
	}
}

// kept describes what of its attributes a copy has: the mode in octal, "old" where the modification time is
// the original's, and "linked" where two names are still one file.
func kept(t *testing.T, path, other string, when time.Time) string {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%04o", modeBits(info.Mode()))
	if info.Mode()&fs.ModeSymlink != 0 {
		text = "link"
	}
	if info.ModTime().Equal(when) {
		text += " old"
	}
	if second, err := os.Lstat(other); err == nil && os.SameFile(info, second) {
		text += " linked"
	}
	return text
}

// modeBits turns Go's mode into chmod's.
func modeBits(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return bits
}

// TestCpKeepsWhatItsHelpSays in every direction, of a file as of a tree, and onto what was there.
func TestCpKeepsWhatItsHelpSays(t *testing.T) {
	g := startGuest(t)
	dir := plant(t, map[string]string{"tree/f": "contents", "tree/d/": "", "tree/link": "-> f"})
	when := time.Date(2001, 2, 3, 4, 5, 6, 123456789, time.UTC)
	if err := os.Link(dir+"/tree/f", dir+"/tree/hard"); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{"f": 0o757 | fs.ModeSetuid | fs.ModeSetgid, "d": 0o757 | fs.ModeSetgid | fs.ModeSticky} {
		if err := os.Chmod(dir+"/tree/"+name, mode); err != nil {
			t.Fatal(err)
		}
	}
	at, err := unix.TimeToTimespec(when)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f", "d", "link"} {
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, dir+"/tree/"+name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ how, file, folder, link string }{
		{"cp -rq DIR/tree :DIR/to", "0757 old linked", "1757 old", "link old"},
		{"cp -rq :DIR/tree DIR/to", "0750 old linked", "0750 old", "link old"},
		{"cp -rq :DIR/tree :DIR/to", "0757", "1757", "link"},
		{"cp -rqp :DIR/tree :DIR/to", "6757 old linked", "3757 old", "link old"},
		{"cp -rq :DIR/tree - | $CTL cp -rq - :DIR/to", "0757 old linked", "1757 old", "link old"},
		{"cp DIR/tree/f :DIR/to/f", "0757", "", ""},
		{"cp -r DIR/tree/f :DIR/to/f", "0757", "", ""},
		{"cp :DIR/tree/f DIR/to/f", "0750", "", ""},
		{"cp -r :DIR/tree/f DIR/to/f", "0750", "", ""},
		{"cp :DIR/tree/f :DIR/to/f", "0757", "", ""},
		{"cp -p :DIR/tree/f :DIR/to/f", "6757 old", "", ""},
		{"cp -q - :DIR/to/f <DIR/tree/f", "0644", "", ""},
	} {
		single := c.folder == ""
		for _, existing := range []bool{false, true} {
			to, file := dir+"/to", c.file
			if err := os.RemoveAll(to); err != nil {
				t.Fatal(err)
			}
			if existing || single {
				if err := os.Mkdir(to, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if existing {
				if err := os.WriteFile(to+"/f", []byte("old"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			how := c.how
			if existing && !single {
				how = strings.ReplaceAll(how, "DIR/tree ", "DIR/tree/. ") // what is in it
			}
			if existing && file == "0644" {
				file = "0600"
			}
			g.masked(t, "$CTL "+strings.ReplaceAll(how, "DIR", dir))
			for name, want := range map[string]string{"f": file, "d": c.folder, "link": c.link} {
				if want == "" {
					continue
				}
				other := ""
				if name == "f" {
					other = to + "/hard"
				}
				if got := kept(t, to+"/"+name, other, when); got != want {
					t.Errorf("%s, existing %v: %s has %q, want %q", c.how, existing, name, got, want)
				}
			}
		}
	}
}
