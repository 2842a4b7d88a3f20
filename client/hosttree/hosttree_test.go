package hosttree

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/test/need"
)

// entry is one of a crafted stream.
type entry struct {
	kind           byte
	name, contents string // or a link's target
	mode           int64
}

func craft(t testing.TB, list ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range list {
		h := &tar.Header{Typeflag: e.kind, Name: e.name, Mode: e.mode}
		switch e.kind {
		case tar.TypeReg:
			h.Size = int64(len(e.contents))
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname = e.contents
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.kind == tar.TypeReg {
			if _, err := io.WriteString(w, e.contents); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func file(name, contents string) entry { return entry{tar.TypeReg, name, contents, 0o644} }
func dir(name string) entry            { return entry{tar.TypeDir, name, "", 0o755} }
func symlink(name, to string) entry    { return entry{tar.TypeSymlink, name, to, 0o777} }
func hardLink(name, to string) entry   { return entry{tar.TypeLink, name, to, 0o644} }

func TestPackAndUnpack(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "new")
	large := bytes.Repeat([]byte("large"), 100_000)
	must(t, os.MkdirAll(from+"/sub/empty", 0o755))
	must(t, os.WriteFile(from+"/plain", []byte("plain"), 0o600))
	must(t, os.WriteFile(from+"/sub/large", large, 0o600))
	must(t, os.WriteFile(from+"/odd \xff\n", nil, 0o600))
	must(t, os.Symlink("/no\xffwhere", from+"/link"))
	must(t, os.Link(from+"/plain", from+"/sub/again"))
	must(t, os.WriteFile(from+"/sparse", nil, 0o600))
	must(t, os.Truncate(from+"/sparse", 8<<20))
	must(t, os.Chmod(from+"/plain", 0o4751|fs.ModeSetuid))
	must(t, os.Chmod(from+"/sub", 0o500))
	t.Cleanup(func() { os.Chmod(from+"/sub", 0o755); os.Chmod(to+"/sub", 0o755) })
	when := time.Date(2001, 2, 3, 4, 5, 6, 123456789, time.UTC)
	for _, name := range []string{"plain", "sub/large", "sub/empty", "sub", "."} {
		must(t, os.Chtimes(from+"/"+name, when, when))
	}
	var stream bytes.Buffer
	packed, err := Pack(t.Context(), &stream, from, Options{})
	must(t, err)
	var told uint64
	unpacked, err := Unpack(t.Context(), &stream, to, Options{Progress: func(entries, _ uint64) { told = entries }})
	must(t, err)
	if packed.Entries != 9 || unpacked.Entries != 9 || told != 9 || packed.Bytes != unpacked.Bytes || packed.FailureCount+unpacked.FailureCount != 0 {
		t.Errorf("packed %+v, unpacked %+v, told %d", packed, unpacked, told)
	}
	for name, mode := range map[string]fs.FileMode{"plain": 0o751, "sub/large": 0o600, "sub/empty": 0o755, "sub": 0o500, ".": 0o755} {
		info, err := os.Lstat(to + "/" + name)
		must(t, err)
		if info.Mode()&^fs.ModeDir != mode || !info.ModTime().Equal(when) {
			t.Errorf("%s is %v %v", name, info.Mode(), info.ModTime())
		}
	}
	if got, err := os.ReadFile(to + "/sub/large"); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if target, err := os.Readlink(to + "/link"); err != nil || target != "/no\xffwhere" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	a, err := os.Stat(to + "/plain")
	must(t, err)
	b, err := os.Stat(to + "/sub/again")
	must(t, err)
	if !os.SameFile(a, b) {
		t.Error("the hard link is another file")
	}
	sparse, err := os.Stat(to + "/sparse")
	must(t, err)
	if st := sparse.Sys().(*syscall.Stat_t); st.Size != 8<<20 || st.Blocks > 64 {
		t.Errorf("%d bytes take %d blocks", st.Size, st.Blocks)
	}
}

func TestUnpackStaysInside(t *testing.T) {
	for name, c := range map[string]struct {
		list []entry
		want error // of the last entry; nil: all are unpacked
	}{
		"dots":                    {[]entry{file("../victim/file", "evil")}, ErrOutside},
		"dots inside":             {[]entry{file("a/../../victim/file", "evil")}, ErrOutside},
		"absolute":                {[]entry{file("/VICTIM/file", "evil")}, ErrOutside},
		"a directory of dots":     {[]entry{dir("..")}, ErrOutside},
		"a hard link out":         {[]entry{hardLink("a", "../victim/file")}, ErrOutside},
		"an absolute hard link":   {[]entry{hardLink("a", "/VICTIM/file")}, ErrOutside},
		"through a link":          {[]entry{symlink("a", "../victim"), file("a/file", "evil")}, ErrThroughLink},
		"through an absolute one": {[]entry{symlink("a", "/VICTIM"), file("a/file", "evil")}, ErrThroughLink},
		"through a link inside":   {[]entry{dir("d"), symlink("a", "d"), file("a/file", "evil")}, ErrThroughLink},
		"a directory for a link":  {[]entry{symlink("a", "../victim"), dir("a")}, syscall.ENOTDIR},
		"below a link's place":    {[]entry{symlink("a", "../victim"), dir("a/new")}, ErrThroughLink},
		"a hard link by a link":   {[]entry{symlink("d", "../victim"), hardLink("a", "d/file")}, ErrThroughLink},
		"a link, then a file":     {[]entry{symlink("a", "../victim/file"), file("a", "new")}, nil},
		"a hard link to a link":   {[]entry{symlink("s", "../victim/file"), hardLink("h", "s"), file("h", "new")}, nil},
		"a link for a directory":  {[]entry{file("a/x", "x"), symlink("a", "../victim")}, syscall.EISDIR},
		"the root as a link":      {[]entry{symlink(".", "../victim")}, ErrType},
		"a FIFO":                  {[]entry{{tar.TypeFifo, "f", "", 0o644}}, ErrType},
		"a device":                {[]entry{{tar.TypeChar, "null", "", 0o666}}, ErrType},
		"a file for a FIFO":       {[]entry{file("there", "x")}, ErrType},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			victim, out := base+"/victim", base+"/out"
			must(t, os.MkdirAll(victim, 0o755))
			must(t, os.WriteFile(victim+"/file", []byte("old"), 0o644))
			must(t, os.Mkdir(out, 0o755))
			must(t, syscall.Mkfifo(out+"/there", 0o644))
			for i := range c.list {
				c.list[i].name = strings.Replace(c.list[i].name, "/VICTIM", victim, 1)
				c.list[i].contents = strings.Replace(c.list[i].contents, "/VICTIM", victim, 1)
			}
			summary, err := Unpack(t.Context(), bytes.NewReader(craft(t, c.list...)), out, Options{})
			must(t, err)
			if c.want == nil && summary.FailureCount != 0 ||
				c.want != nil && (len(summary.Failures) != 1 || !errors.Is(summary.Failures[0], c.want)) {
				t.Errorf("failures %v, want %v", summary.Failures, c.want)
			}
			if got, err := os.ReadFile(victim + "/file"); err != nil || string(got) != "old" {
				t.Errorf("outside there is %q, %v", got, err)
			}
			for path, count := range map[string]int{victim: 1, base: 2} {
				if entries, err := os.ReadDir(path); err != nil || len(entries) != count {
					t.Errorf("%s has %v, %v", path, entries, err)
				}
			}
			noLitter(t, out)
		})
	}
}

func noLitter(t testing.TB, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if strings.HasPrefix(entry.Name(), tempPrefix) {
			t.Errorf("there is %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestUnpackReplacesFilesOnly(t *testing.T) {
	out := t.TempDir()
	must(t, os.MkdirAll(out+"/dir", 0o711))
	must(t, os.WriteFile(out+"/dir/stays", []byte("stays"), 0o644))
	must(t, os.WriteFile(out+"/file", []byte("old"), 0o644))
	stream := craft(t, file("file", "new"), entry{tar.TypeDir, "dir", "", 0o700}, file("dir/more", "more"), file("dir", "x"),
		symlink("l", "a"), symlink("l", "b"), hardLink("file2", "file"), hardLink("file2", "file"), hardLink("l", "file"), file("twice", "1"), file("twice", "2"))
	summary, err := Unpack(t.Context(), bytes.NewReader(stream), out, Options{})
	must(t, err)
	if summary.FailureCount != 1 || !errors.Is(summary.Failures[0], syscall.EISDIR) {
		t.Errorf("%+v", summary)
	}
	for name, want := range map[string]string{"file": "new", "dir/stays": "stays", "dir/more": "more", "file2": "new", "l": "new", "twice": "2"} {
		if got, err := os.ReadFile(out + "/" + name); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v", name, got, err)
		}
	}
	if info, err := os.Stat(out + "/dir"); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("the directory that was there is %v, %v", info.Mode(), err)
	}
	noLitter(t, out)
}

func TestUnpackLimitsAndErrors(t *testing.T) {
	whole := craft(t, file("a", "12345"), file("b", strings.Repeat("x", 100_000)))
	broken := errors.New("the line is dead")
	for name, c := range map[string]struct {
		stream  io.Reader
		options Options
		want    error
	}{
		"bytes":      {bytes.NewReader(whole), Options{MaxBytes: 1000}, ErrLimit},
		"entries":    {bytes.NewReader(whole), Options{MaxEntries: 1}, ErrLimit},
		"cut":        {bytes.NewReader(whole[:3000]), Options{}, io.ErrUnexpectedEOF},
		"no archive": {strings.NewReader(strings.Repeat("no archive ", 100)), Options{}, tar.ErrHeader},
		"the sender": {io.MultiReader(bytes.NewReader(whole[:3000]), iotest.ErrReader(broken)), Options{}, broken},
	} {
		out := t.TempDir()
		_, err := Unpack(t.Context(), c.stream, out, c.options)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if entries, err := os.ReadDir(out); err != nil || len(entries) > 1 {
			t.Errorf("%s: there are %v, %v", name, entries, err)
		}
	}
	deep, err := Unpack(t.Context(), bytes.NewReader(craft(t, file(strings.Repeat("d/", MaxDepth)+"x", "x"))), t.TempDir(), Options{})
	if err != nil || len(deep.Failures) != 1 || !errors.Is(deep.Failures[0], ErrTooDeep) {
		t.Errorf("%+v, %v", deep, err)
	}
	if _, err := Unpack(t.Context(), nil, t.TempDir()+"/no/where", Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a parent: %v", err)
	}
	gone := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := Unpack(ctx, bytes.NewReader(whole), t.TempDir(), Options{}); !errors.Is(err, gone) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := Pack(ctx, io.Discard, "..", Options{}); !errors.Is(err, gone) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestUnpackOntoAFullDisk(t *testing.T) {
	contents := strings.Repeat("x", 30_000)
	for name, c := range map[string]struct {
		list []entry
		want string // the one that has no room
	}{
		"into a new directory": {[]entry{dir("d"), file("d/1", contents), file("d/2", contents), file("d/3", contents)}, "d/3"},
		"beside what is there": {[]entry{file("1", contents), file("2", contents), file("3", contents)}, "3"},
		"a large file":         {[]entry{dir("d"), file("d/1", contents), file("d/2", strings.Repeat("x", 200_000))}, "d/2"},
	} {
		t.Run(name, func(t *testing.T) {
			disk := t.TempDir()
			if err := unix.Mount("hosttree", disk, "tmpfs", 0, "size=64k"); err != nil {
				need.Skip(t, "mounting a small disk: %v: run the tests as root", err)
			}
			defer func() { must(t, unix.Unmount(disk, 0)) }()
			_, err := Unpack(t.Context(), bytes.NewReader(craft(t, c.list...)), disk, Options{})
			failed, is := errors.AsType[*fs.PathError](err)
			if !is || !errors.Is(err, syscall.ENOSPC) || failed.Path != disk+"/"+c.want || strings.Contains(err.Error(), tempPrefix) {
				t.Errorf("got %v, want that there is no room for %s", err, c.want)
			}
			noLitter(t, disk)
			if _, err := os.Lstat(disk + "/" + c.want); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a half file is there: %v", err)
			}
		})
	}
}

func TestPackTellsWhatItLeavesOut(t *testing.T) {
	from := t.TempDir()
	must(t, os.WriteFile(from+"/good", []byte("good"), 0o644))
	must(t, syscall.Mkfifo(from+"/fifo", 0o644))
	l, err := net.Listen("unix", from+"/socket")
	must(t, err)
	defer l.Close()
	var out bytes.Buffer
	summary, err := Pack(t.Context(), &out, from, Options{})
	must(t, err)
	if summary.Entries != 2 || summary.FailureCount != 2 || !errors.Is(summary.Failures[0], ErrType) || !strings.HasPrefix(summary.Failures[0].Error(), "copy "+from) {
		t.Errorf("%+v", summary)
	}
	if _, err := Pack(t.Context(), &out, from+"/nothing", Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("packing nothing: %v", err)
	}
}

func TestPackFileThatChangesItsSize(t *testing.T) {
	for name, c := range map[string]struct{ size, then int64 }{
		"shrinks":                     {8 * pieceBytes, 10},
		"shrinks to where it is read": {2 * pieceBytes, pieceBytes},
		"grows":                       {2*pieceBytes - 10, 3 * pieceBytes},
		"grows, read in whole pieces": {2 * pieceBytes, 2*pieceBytes + 1},
	} {
		t.Run(name, func(t *testing.T) {
			from := t.TempDir()
			must(t, os.WriteFile(from+"/file", make([]byte, c.size), 0o644))
			var out bytes.Buffer
			summary, err := Pack(t.Context(), &out, from, Options{Progress: func(_, bytes uint64) {
				if bytes == pieceBytes {
					must(t, os.Truncate(from+"/file", c.then))
				}
			}})
			must(t, err)
			if len(summary.Failures) != 1 || !errors.Is(summary.Failures[0], ErrChanged) {
				t.Errorf("%+v", summary)
			}
			r := tar.NewReader(&out)
			for range 2 {
				_, err := r.Next()
				must(t, err)
			}
			if n, err := io.Copy(io.Discard, r); n != c.size || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
}

// FuzzUnpack unpacks what a hostile guest could send: nothing outside may change.
func FuzzUnpack(f *testing.F) {
	f.Add(craft(f, file("a", "x"), dir("d"), file("d/b", "y")))
	f.Add(craft(f, file("../victim/file", "x")))
	f.Add(craft(f, symlink("a", "../victim"), file("a/file", "x"), dir("a")))
	f.Add(craft(f, hardLink("a", "../victim/file"), file("a", "x")))
	f.Fuzz(func(t *testing.T, stream []byte) {
		base := t.TempDir()
		must(t, os.Mkdir(base+"/victim", 0o755))
		must(t, os.WriteFile(base+"/victim/file", []byte("old"), 0o644))
		// Its error is the stream's.
		_, _ = Unpack(t.Context(), bytes.NewReader(stream), base+"/out", Options{MaxBytes: 1 << 20, MaxEntries: 1000})
		if got, err := os.ReadFile(base + "/victim/file"); err != nil || string(got) != "old" {
			t.Errorf("outside there is %q, %v", got, err)
		}
		for path, most := range map[string]int{base: 2, base + "/victim": 1} {
			if entries, err := os.ReadDir(path); err != nil || len(entries) > most {
				t.Errorf("%s has %v, %v", path, entries, err)
			}
		}
		must(t, filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				return os.Chmod(path, 0o700) // so that the test can remove it
			}
			return nil
		}))
	})
}
