package gitignore

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"guestd.internal/test/need"
)

// cases are .gitignore files and the paths of a tree with what they say of each:
// "-" left out, "+" included again, nothing. Folders end in a slash.
var cases = []struct {
	file  string
	paths map[string]string
}{
	{"*.o\n!keep.o\n", map[string]string{"a.o": "-", "sub/b.o": "-", "keep.o": "+", "sub/keep.o": "+", "a.c": ""}},
	{"!a\na\n", map[string]string{"a": "-"}},
	{"/top\nsub/one\n", map[string]string{"top": "-", "x/top": "", "sub/one": "-", "x/sub/one": ""}},
	{"build/\n", map[string]string{"build/": "-", "x/build/": "-", "y/build": ""}},
	{"**/deep\na/**/z\nlog/**\n", map[string]string{"deep": "-", "q/r/deep": "-", "a/z": "-", "a/b/c/z": "-", "log/x": "-", "log/d/y": "-", "log/": ""}},
	{"# comment\n\\#hash\n\\!bang\n\n   \n", map[string]string{"#hash": "-", "!bang": "-", "# comment": "", "comment": ""}},
	{"blank  \nkept\\ \nin ner\n", map[string]string{"blank": "-", "kept ": "-", "kept": "", "in ner": "-"}},
	{"crlf\r\nnext\r\n", map[string]string{"crlf": "-", "next": "-"}},
	{"\xef\xbb\xbfbom\n", map[string]string{"bom": "-"}},
	{"[a-c]?\n[!x]y\n", map[string]string{"b1": "-", "d1": "", "ay": "-", "xy": ""}},
	{"[\n\\\nfoo/\\\nfine\n", map[string]string{"[": "", "fine": "-"}},
	{"*\n!*/\n!*.go\n", map[string]string{"a.txt": "-", "a.go": "+", "sub/": "+", "sub/b.go": "+", "sub/b.txt": "-"}},
	{"a*b*c\n?.x\n", map[string]string{"abc": "-", "axxbxxc": "-", "acb": "", "q.x": "-", "qq.x": ""}},
	{"name", map[string]string{"name": "-"}},
}

func TestMatch(t *testing.T) {
	for _, c := range cases {
		f := Parse([]byte(c.file))
		for path, want := range c.paths {
			name, folder := strings.CutSuffix(path, "/")
			if got := map[Verdict]string{Undecided: "", Ignored: "-", Included: "+"}[f.Match(name, folder)]; got != want {
				t.Errorf("%q says %q of %q, want %q", c.file, got, path, want)
			}
		}
	}
	if got := (*File)(nil).Match("x", false); got != Undecided {
		t.Errorf("no file says %v", got)
	}
}

// TestAgainstGit asks git itself about the same files and paths.
func TestAgainstGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		need.Skip(t, "comparing with git needs git: install it")
	}
	for _, c := range cases {
		dir := t.TempDir()
		write(t, dir, ".gitignore", c.file)
		for path := range c.paths {
			write(t, dir, path, "")
		}
		git(t, dir, "", "init", "-q")
		for path, want := range c.paths {
			out := git(t, dir, strings.TrimSuffix(path, "/")+"\x00", "check-ignore", "--no-index", "--stdin", "-v", "-z")
			got := ""
			// source, line, pattern, path
			if fields := strings.Split(out, "\x00"); len(fields) > 2 {
				if got = "-"; strings.HasPrefix(fields[2], "!") {
					got = "+"
				}
			}
			if got != want {
				t.Errorf("git: %q says %q of %q, want %q", c.file, got, path, want)
			}
		}
	}
}

// write makes a file, or for a path with a slash at its end a folder.
func write(t *testing.T, dir, path, text string) {
	t.Helper()
	full := dir + "/" + path
	if err := os.MkdirAll(full[:strings.LastIndexByte(full, '/')], 0o755); err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, "/") {
		return
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// git runs git without anybody's configuration.
func git(t *testing.T, dir, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "core.excludesFile=/dev/null"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_DIR="+dir+"/.git", "GIT_WORK_TREE="+dir)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: nothing is left out
		t.Fatalf("git %v: %v", args, err)
	}
	return string(out)
}

func TestOnlySoMuchCounts(t *testing.T) {
	f := Parse([]byte(strings.Repeat("#\n", MaxBytes/2) + "late\n"))
	if got := f.Match("late", false); got != Undecided {
		t.Errorf("%v", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range cases {
		for path := range c.paths {
			f.Add([]byte(c.file), path)
		}
	}
	f.Fuzz(func(t *testing.T, file []byte, path string) {
		path = strings.Trim(path, "/")
		if path == "" {
			return
		}
		parsed := Parse(file)
		verdict := parsed.Match(path, true)
		// What a file says does not change when a line is added that says nothing.
		again := Parse(append([]byte("# nothing\n\n"), file...)).Match(path, true)
		if verdict != again && !bytes.HasPrefix(file, []byte("\xef\xbb\xbf")) && len(file) < MaxBytes/2 {
			t.Errorf("%v, then %v", verdict, again)
		}
		if verdict == Undecided {
			// and one that names everything decides
			if got := Parse([]byte("*\n")).Match(path, true); got != Ignored {
				t.Errorf("* says %v of %q", got, path)
			}
		}
	})
}
