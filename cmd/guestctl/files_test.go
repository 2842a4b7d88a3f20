package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestCp(t *testing.T) {
	g := startGuest(t)
	local, remote := t.TempDir(), t.TempDir()
	source := filepath.Join(local, "data")
	contents := bytes.Repeat([]byte("0123456789abcdef\xff\x00"), 100_000)
	if err := os.WriteFile(source, contents, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(source, 0o751); err != nil {
		t.Fatal(err)
	}
	same := func(name string) {
		t.Helper()
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, contents) || info.Mode() != 0o751 {
			t.Errorf("%s has %d bytes and mode %v, %v", name, len(got), info.Mode(), err)
		}
	}
	g.run(t, "", "cp", source, ":"+remote+"/copy").want(t, 0, "", "")
	same(remote + "/copy")
	g.run(t, "", "cp", source, ":"+remote).want(t, 0, "", "")
	same(remote + "/data")
	g.run(t, "", "cp", source, ":"+remote+"/none/").want(t, 125, "", "no directory")
	g.run(t, "", "cp", ":"+remote+"/copy", local+"/back").want(t, 0, "", "")
	same(local + "/back")
	g.run(t, "", "cp", ":"+remote+"/copy", local).want(t, 0, "", "")
	same(local + "/copy")
	g.run(t, "", "cp", ":"+remote+"/copy", "-").want(t, 0, string(contents), "")
	g.run(t, "from stdin", "cp", "-", ":"+remote+"/piped").want(t, 0, "", "")
	g.run(t, "", "cat", remote+"/piped").want(t, 0, "from stdin", "")
	g.run(t, "", "cp", ":"+remote+"/copy", "/dev/null").want(t, 0, "", "")
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode()&fs.ModeCharDevice == 0 {
		t.Fatalf("/dev/null is %v, %v", info, err)
	}

	for name, args := range map[string][]string{
		"neither":                {"cp", "a", "b"},
		"one":                    {"cp", "a"},
		"no such local file":     {"cp", local + "/nothing", ":x"},
		"no such file":           {"cp", ":" + remote + "/nothing", local},
		"a local directory":      {"cp", local, ":" + remote},
		"a directory":            {"cp", ":" + remote, local},
		"stdin into a directory": {"cp", "-", ":" + remote},
		"no local directory":     {"cp", ":" + remote + "/copy", local + "/none/"},
	} {
		if out := g.run(t, "", args...); out.code != 125 || out.stderr == "" {
			t.Errorf("%s: %+v", name, out)
		}
	}
	if entries, err := os.ReadDir(local); err != nil || len(entries) != 3 {
		t.Errorf("there are %v, %v", entries, err)
	}
}

func TestDownloadFollowsALocalLink(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("target", link); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(link, strings.NewReader("new"), 0o640); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "new" {
		t.Errorf("the target has %q, %v", got, err)
	}
	if to, err := os.Readlink(link); err != nil || to != "target" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	why := errors.New("the guest has gone")
	if err := replaceFile(target, failingReader{why}, 0o640); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "new" {
		t.Errorf("behind a failure it has %q, %v", got, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("there are %v, %v", entries, err)
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

func TestInterruptedUpload(t *testing.T) {
	g := startGuest(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "guestctl"), "--target", g.target, "write", file)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// More than a pipe holds, so that some has been read; and no end.
	if _, err := stdin.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if code := exitCodeOf(cmd); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "old" {
		t.Errorf("the file has %d bytes, %v", len(got), err)
	}
}

func TestFileVerbs(t *testing.T) {
	g := startGuest(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	g.run(t, "one\n", "write", at("new/one")).want(t, 0, "", "")
	g.run(t, "two\n", "write", "--append", at("new/one")).want(t, 0, "", "")
	g.run(t, "", "write", "--exclusive", at("new/one")).want(t, 125, "", "exists")
	g.run(t, "x", "write", "-m", "604", at("moded")).want(t, 0, "", "")
	if info, err := os.Stat(at("moded")); err != nil || info.Mode() != 0o604 {
		t.Errorf("it is %v, %v", info, err)
	}
	g.run(t, "", "cat", at("new/one"), at("nothing"), at("moded")).want(t, 125, "one\ntwo\nx", "nothing")
	g.run(t, "", "mkdir", at("a/b")).want(t, 125, "", "a/b")
	g.run(t, "", "mkdir", "-p", at("a/b"), at("a/c")).want(t, 0, "", "")
	g.run(t, "", "mkdir", at("a")).want(t, 125, "", "exists")
	g.run(t, "", "ls", dir).want(t, 0, "a\nmoded\nnew\n", "")
	g.run(t, "", "ls", at("moded")).want(t, 0, at("moded")+"\n", "")
	g.run(t, "", "ls", at("nothing"), at("a")).want(t, 125, at("a")+":\nb\nc\n", "nothing")
	if out := g.run(t, "", "ls", "-l", dir); !strings.Contains(out.stdout, "-rw----r-- 1 ") || !strings.Contains(out.stdout, " moded\n") {
		t.Errorf("ls -l: %+v", out)
	}
	g.run(t, "", "mv", at("moded"), at("a/")).want(t, 0, "", "")
	g.run(t, "", "mv", at("a/moded"), at("a/renamed")).want(t, 0, "", "")
	g.run(t, "", "mv", at("a/renamed"), at("new/one"), at("nothing")).want(t, 125, "", "no directory")
	g.run(t, "", "mv", "-n", at("a/renamed"), at("new/one")).want(t, 125, "", "exists")
	g.run(t, "", "rm", at("a")).want(t, 125, "", "is a directory")
	g.run(t, "", "rm", at("nothing")).want(t, 125, "", "nothing")
	g.run(t, "", "rm", "-r", at("nothing")).want(t, 125, "", "nothing")
	g.run(t, "", "rm", "-f", at("nothing")).want(t, 0, "", "")
	g.run(t, "", "rm", "-r", at("a"), at("new")).want(t, 0, "", "")
	g.run(t, "", "ls", dir).want(t, 0, "", "")
}

func TestStat(t *testing.T) {
	g := startGuest(t)
	dir := t.TempDir()
	name := filepath.Join(dir, "odd \xff")
	if err := os.Symlink("/etc", name); err != nil {
		t.Fatal(err)
	}
	var file struct {
		jsonFile
		Target *jsonPath `json:"link_target"`
	}
	out := g.run(t, "", "stat", "--json", name)
	if err := json.Unmarshal([]byte(out.stdout), &file); err != nil || out.code != 0 {
		t.Fatalf("%+v: %v", out, err)
	}
	if file.Type != "symbolic link" || file.Base64 == "" || file.Target == nil || file.Target.Path != "/etc" {
		t.Errorf("got %s", out.stdout)
	}
	out = g.run(t, "", "stat", "-L", name)
	if !strings.Contains(out.stdout, "directory") || !strings.Contains(out.stdout, "drwx") {
		t.Errorf("got %+v", out)
	}
	out = g.run(t, "", "stat", name)
	if !strings.Contains(out.stdout, " -> /etc\n") {
		t.Errorf("got %+v", out)
	}
}
