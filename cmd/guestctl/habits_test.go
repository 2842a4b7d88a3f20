package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// plant makes a tree for a test, of files by their names; a name with a slash at its end is a
// directory, and contents that begin with "-> " are a link's target.
func plant(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, contents := range files {
		path := filepath.Join(dir, name)
		target, isLink := strings.CutPrefix(contents, "-> ")
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		case isLink:
			err = os.Symlink(target, path)
		default:
			err = os.WriteFile(path, []byte(contents), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// names is what is below a directory: names with a slash behind those of directories, and what links say.
func names(t *testing.T, dir string) string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		name := strings.TrimPrefix(strings.TrimPrefix(path, dir), "/")
		if err != nil || name == "" {
			return err
		}
		if entry.IsDir() {
			name += "/"
		}
		if entry.Type()&os.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			name += "->" + target
			if err != nil {
				return err
			}
		}
		found = append(found, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(found, " ")
}

func TestLsAsCoreutils(t *testing.T) {
	g := startGuest(t)
	dir := plant(t, map[string]string{
		"b/two": "", "b/.hidden": "", "b/sub/deep/": "", "b/sub/x": "", "file": "", "link": "-> b", "broken": "-> nowhere",
	})
	at := func(name string) string { return dir + "/" + name }
	g.run(t, "", "ls", at("b"), at("nothing"), at("file"), at("link")).want(t, 125,
		at("file")+"\n\n"+at("b")+":\nsub\ntwo\n\n"+at("link")+":\nsub\ntwo\n", "nothing")
	g.run(t, "", "ls", "-R", at("b")).want(t, 0,
		at("b")+":\nsub\ntwo\n\n"+at("b/sub")+":\ndeep\nx\n\n"+at("b/sub/deep")+":\n", "")
	g.run(t, "", "ls", "-d", at("b"), at("link")).want(t, 0, at("b")+"\n"+at("link")+"\n", "")
	g.run(t, "", "ls", at("broken")).want(t, 0, at("broken")+"\n", "")
	g.run(t, "", "ls", "-a", at("link")+"/").want(t, 0, ".hidden\nsub\ntwo\n", "")
	if out := g.run(t, "", "ls", "-l", at("link")); !strings.HasSuffix(out.stdout, at("link")+" -> b\n") || out.code != 0 {
		t.Errorf("ls -l of a link: %+v", out)
	}
	if out := g.run(t, "", "ls", "-R", "--json", at("b")); strings.Count(out.stdout, "\n") != 4 || out.code != 0 {
		t.Errorf("ls -R --json: %+v", out)
	}
}

func TestRmAsCoreutils(t *testing.T) {
	g := startGuest(t)
	dir := plant(t, map[string]string{"empty/": "", "full/x": "", "file": "", "link": "-> full", "kept": ""})
	at := func(name string) string { return dir + "/" + name }
	g.run(t, "", "rm", at("empty")).want(t, 125, "", "is a directory")
	g.run(t, "", "rm", "-f", at("full")).want(t, 125, "", "is a directory")
	g.run(t, "", "rm", "-d", at("full")).want(t, 125, "", "not empty")
	g.run(t, "", "rm", at("nothing"), at("file"), at("empty")).want(t, 125, "", "nothing")
	if got := names(t, dir); got != "empty/ full/ full/x kept link->full" {
		t.Errorf("there is %s", got)
	}
	g.run(t, "", "rm", "-d", at("empty")).want(t, 0, "", "")
	g.run(t, "", "rm", "-f", at("nothing"), at("kept/below")).want(t, 0, "", "")
	g.run(t, "", "rm", at("kept/below")).want(t, 125, "", "not a directory")
	g.run(t, "", "rm", "-rf", at("nothing"), at("kept/below"), at("link")).want(t, 0, "", "")
	g.run(t, "", "rm", "-r", at("full")).want(t, 0, "", "")
	g.run(t, "", "rm", "-r", "/").want(t, 125, "", "root")
	g.run(t, "", "rm", "-rf", ".").want(t, 125, "", `".": the path ends in`)
	g.run(t, "", "rm", "-f").want(t, 0, "", "")
	g.run(t, "", "rm").want(t, 125, "", "takes a path")
	if got := names(t, dir); got != "kept" {
		t.Errorf("in the end there is %s", got)
	}
}

func TestMvAsCoreutils(t *testing.T) {
	g := startGuest(t)
	dir := plant(t, map[string]string{
		"x/f": "x", "y/f": "y", "to/": "", "dir/": "", "file": "1", "other": "2", "link": "-> to", "empty/": "", "deep/to/full": "",
	})
	at := func(name string) string { return dir + "/" + name }
	g.run(t, "", "mv", at("file"), at("new/")).want(t, 125, "", "not a directory")
	g.run(t, "", "mv", at("dir"), at("renamed/")).want(t, 0, "", "")
	g.run(t, "", "mv", at("x/f"), at("y/f"), at("to")).want(t, 125, "", "would replace what")
	g.run(t, "", "mv", at("other"), at("link")).want(t, 0, "", "") // into what it leads to
	g.run(t, "", "mv", at("renamed/"), at("to/")).want(t, 0, "", "")
	g.run(t, "", "mv", "-T", at("file"), at("to")).want(t, 125, "", "is a directory")
	g.run(t, "", "mv", "-T", at("to"), at("empty")).want(t, 0, "", "")
	g.run(t, "", "mv", at("empty"), at("deep/to/..")).want(t, 0, "", "")
	if got, want := names(t, dir), "deep/ deep/empty/ deep/empty/f deep/empty/other deep/empty/renamed/ deep/to/ deep/to/full file link->to x/ y/ y/f"; got != want {
		t.Errorf("there is\n%s, want\n%s", got, want)
	}
}

func TestMkdirAndWriteFlags(t *testing.T) {
	g := startGuest(t)
	dir := t.TempDir()
	at := func(name string) string { return dir + "/" + name }
	g.run(t, "", "mkdir", "-m", "2750", at("a/"), at("a"), at("b")).want(t, 125, "", "exists")
	g.run(t, "", "mkdir", "-p", "-m", "700", at("a"), at("c/d/")).want(t, 0, "", "")
	g.run(t, "x", "write", "--no-parents", at("none/file")).want(t, 125, "", "no such file")
	g.run(t, "x", "write", "--mode", "600", at("p/q/file")).want(t, 0, "", "")
	g.run(t, "y", "write", "-a", at("p/q/file")).want(t, 0, "", "")
	g.run(t, "", "cat", at("p/q/file"), at("p"), at("p/q/file")).want(t, 125, "xyxy", "is a directory")
	full := exec.Command("sh", "-c", `exec "$@" >/dev/full`, "sh", filepath.Join(bin, "guestctl"), "cat", at("p/q/file"))
	full.Env = append(os.Environ(), envTarget+"="+g.target)
	if out, err := full.CombinedOutput(); err == nil || string(out) != "guestctl: write \"/dev/stdout\": no space left on device\n" {
		t.Errorf("cat onto a full disk: %q, %v", out, err)
	}
	for name, want := range map[string]os.FileMode{
		"a": os.ModeDir | os.ModeSetgid | 0o750, "b": os.ModeDir | os.ModeSetgid | 0o750, "c/d": os.ModeDir | 0o700,
		"c": os.ModeDir | 0o755, "p/q/file": 0o600,
	} {
		if info, err := os.Stat(at(name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", name, info, err, want)
		}
	}
}

func TestCpWithinTheGuest(t *testing.T) {
	g := startGuest(t)
	dir := plant(t, map[string]string{"tree/a": "1", "tree/sub/b": "2", "tree/link": "-> a", "file": "3", "to/": "", "broken": "-> nowhere"})
	at := func(name string) string { return ":" + dir + "/" + name }
	old := time.Unix(1_000_000_000, 0)
	if err := errors.Join(os.Chmod(dir+"/tree/a", 0o751), os.Chtimes(dir+"/tree/a", old, old)); err != nil {
		t.Fatal(err)
	}
	g.run(t, "", "cp", at("file"), at("to")).want(t, 0, "", "")
	g.run(t, "", "cp", at("tree/link"), at("to/plain")).want(t, 0, "", "")
	g.run(t, "", "cp", at("tree"), at("to")).want(t, 125, "", "is a directory")
	g.run(t, "", "cp", "-rp", at("tree"), at("to")).want(t, 0, "", "")
	g.run(t, "", "cp", "-r", at("tree/."), at("to")).want(t, 0, "", "")
	g.run(t, "", "cp", "-r", at("tree"), at("new/")).want(t, 0, "", "")
	g.run(t, "", "cp", "-r", at("broken"), at("to/lost")).want(t, 0, "", "")
	g.run(t, "", "cp", at("broken"), at("to/no")).want(t, 125, "", "no such file")
	g.run(t, "", "cp", at("file"), at("none/")).want(t, 125, "", "not a directory")
	g.run(t, "", "cp", at("file"), at("file")).want(t, 125, "", "is the source")
	g.run(t, "", "cp", "-r", at("tree"), at("tree/sub")).want(t, 125, "", "inside it")
	g.run(t, "", "cp", "--fsync", at("file"), at("no")).want(t, 125, "", "--fsync")
	g.run(t, "", "cp", "-p", dir+"/file", at("no")).want(t, 125, "", "--preserve")
	got := names(t, dir+"/to")
	if want := "a file link->a lost->nowhere plain sub/ sub/b tree/ tree/a tree/link->a tree/sub/ tree/sub/b"; got != want {
		t.Errorf("there is\n%s, want\n%s", got, want)
	}
	if got := names(t, dir+"/new"); got != "a link->a sub/ sub/b" {
		t.Errorf("the new one has %s", got)
	}
	for name, kept := range map[string]bool{"/to/tree/a": true, "/to/a": false} {
		if info, err := os.Stat(dir + name); err != nil || info.Mode() != 0o751 || info.ModTime().Equal(old) != kept {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestFailureOfOnePathIsToldAtOnce(t *testing.T) {
	g := startGuest(t)
	dir := plant(t, map[string]string{"a": "1"})
	out := g.run(t, "", "stat", "--json", dir+"/no 1", dir+"/a", dir+"/no 2")
	if lines := strings.Split(out.stderr, "\n"); out.code != 125 || len(lines) != 3 ||
		!strings.HasPrefix(lines[0], "guestctl: ") || !strings.HasPrefix(lines[1], "guestctl: ") {
		t.Errorf("got %+v", out)
	}
	var file jsonFile
	if err := json.Unmarshal([]byte(out.stdout), &file); err != nil || file.Path != dir+"/a" {
		t.Errorf("stdout has %q, %v", out.stdout, err)
	}
}
