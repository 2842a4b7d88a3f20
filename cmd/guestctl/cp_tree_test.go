package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree makes a directory with a file in a subdirectory, a link and an odd name.
func tree(t *testing.T, root string) string {
	t.Helper()
	for _, err := range []error{
		os.MkdirAll(root+"/sub", 0o755),
		os.WriteFile(root+"/sub/file", []byte("contents"), 0o640),
		os.WriteFile(root+"/odd \xff", []byte("odd"), 0o600),
		os.Symlink("sub/file", root+"/link"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// isTree fails the test unless a directory is what tree makes.
func isTree(t *testing.T, root string) {
	t.Helper()
	for name, want := range map[string]string{"sub/file": "contents", "odd \xff": "odd", "link": "contents"} {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%q has %q, %v", name, got, err)
		}
	}
	if to, err := os.Readlink(root + "/link"); err != nil || to != "sub/file" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if info, err := os.Stat(root + "/sub/file"); err != nil || info.Mode() != 0o640 {
		t.Errorf("the file is %v, %v", info, err)
	}
}

func TestCpTree(t *testing.T) {
	g := startGuest(t)
	local, remote := t.TempDir(), t.TempDir()
	source := tree(t, local+"/source")
	const said = "copied 5 entries, 11 B, in "
	g.run(t, "", "cp", "-r", source, ":"+remote+"/new").want(t, 0, "", said)
	isTree(t, remote+"/new")
	g.run(t, "", "cp", "-r", source+"/", ":"+remote).want(t, 0, "", said) // into what is there
	isTree(t, remote+"/source")
	g.run(t, "", "cp", "-r", source+"/.", ":"+remote+"/new").want(t, 0, "", said) // what is in it
	isTree(t, remote+"/new")
	g.run(t, "", "cp", "-rq", source, ":"+remote+"/quiet").want(t, 0, "", "")
	isTree(t, remote+"/quiet")
	g.run(t, "", "cp", "-r", ":"+remote+"/new", local+"/back").want(t, 0, "", said)
	isTree(t, local+"/back")
	g.run(t, "", "cp", "-r", ":"+remote+"/new", local).want(t, 0, "", said)
	isTree(t, local+"/new")
	g.run(t, "", "cp", "-r", ":"+remote+"/new", local+"/slash/").want(t, 0, "", said)
	isTree(t, local+"/slash")
	g.run(t, "", "cp", "-r", source+"/sub/file", ":"+remote+"/file").want(t, 0, "", "") // as without -r
	g.run(t, "", "cp", "-r", ":"+remote+"/file", local+"/file").want(t, 0, "", "")

	for name, args := range map[string][]string{
		"nothing":          {"cp", "-r", local + "/nothing", ":" + remote},
		"nothing there":    {"cp", "-r", ":" + remote + "/nothing", local},
		"onto a file":      {"cp", "-r", source, ":" + remote + "/file"},
		"back onto a file": {"cp", "-r", ":" + remote + "/new", local + "/file"},
		"no parent":        {"cp", "-r", ":" + remote + "/new", local + "/no/where"},
		"neither":          {"cp", "-r", "a", "b"},
		"too much":         {"cp", "-r", "--max-bytes", "5", ":" + remote + "/new", local + "/much"},
	} {
		if out := g.run(t, "", args...); out.code != 125 || out.stderr == "" {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

func TestCpTreeChoosesByGlobs(t *testing.T) {
	g := startGuest(t)
	dir := plant(t, map[string]string{"tree/a.txt": "a", "tree/a.go": "a", "tree/sub/b.txt": "b", "tree/.git/c.txt": "c"})
	g.run(t, "", "cp", "-r", "--include", "*.txt", "--exclude", ".git", dir+"/tree", ":"+dir+"/in").want(t, 0, "", "2 B, in ")
	g.run(t, "", "cp", "-r", "--include", "*.txt", "--exclude", ".git", ":"+dir+"/tree", dir+"/out").want(t, 0, "", "2 B, in ")
	archive := g.run(t, "", "cp", "-rq", ":"+dir+"/tree", "-")
	g.run(t, archive.stdout, "cp", "-rq", "--include", "*.txt", "--exclude", ".git", "-", ":"+dir+"/stdin").want(t, 0, "", "")
	for _, to := range []string{"in", "out", "stdin"} {
		var got []string
		for _, name := range []string{"a.txt", "a.go", "sub/b.txt", ".git/c.txt"} {
			if _, err := os.Stat(filepath.Join(dir, to, name)); err == nil {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != "a.txt sub/b.txt" {
			t.Errorf("%s has %q", to, got)
		}
	}
	g.run(t, "", "cp", "--exclude", "x", dir+"/tree/a.txt", ":"+dir+"/x").want(t, 125, "", "--exclude are for trees")
	g.run(t, "", "cp", "-r", "--exclude", "[", dir+"/tree", ":"+dir+"/x").want(t, 125, "", "exclude")
}

func TestCpTreeListsWhatItLeavesOut(t *testing.T) {
	g := startGuest(t)
	local, remote := t.TempDir(), t.TempDir()
	tree(t, local+"/source")
	tree(t, remote+"/there")
	if err := os.MkdirAll(remote+"/source/link", 0o755); err != nil { // what no link replaces
		t.Fatal(err)
	}
	out := g.run(t, "", "cp", "-r", local+"/source", ":"+remote)
	if out.code != 125 || !strings.Contains(out.stderr, remote+"/source/link") || !strings.Contains(out.stderr, "copied 4 entries") {
		t.Errorf("%+v", out)
	}
	if err := os.MkdirAll(local+"/there/link", 0o755); err != nil {
		t.Fatal(err)
	}
	out = g.run(t, "", "cp", "-r", ":"+remote+"/there", local)
	if out.code != 125 || !strings.Contains(out.stderr, local+"/there/link") || !strings.Contains(out.stderr, "copied 4 entries") {
		t.Errorf("%+v", out)
	}
}

func TestCpTreeAsAStream(t *testing.T) {
	g := startGuest(t)
	remote := t.TempDir()
	tree(t, remote+"/from")
	out := g.run(t, "", "cp", "-r", ":"+remote+"/from", "-")
	if out.code != 0 || !strings.Contains(out.stderr, "copied 5 entries") {
		t.Fatalf("exit code %d, %s", out.code, out.stderr)
	}
	count := 0
	for r := tar.NewReader(strings.NewReader(out.stdout)); ; count++ {
		if _, err := r.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if count != 5 {
		t.Errorf("it has %d entries", count)
	}
	g.run(t, out.stdout, "cp", "-r", "-", ":"+remote+"/to").want(t, 0, "", "copied 5 entries")
	isTree(t, remote+"/to")
	g.run(t, "no archive", "cp", "-r", "-", ":"+remote+"/to").want(t, 125, "", "archive")
}

// TestCpTreeFromAHostileGuest looks at what a guest's links can do on the host.
func TestCpTreeFromAHostileGuest(t *testing.T) {
	g := startGuest(t)
	local, remote := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(remote+"/from/a", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(remote+"/from/a/file", []byte("evil"), 0o644); err != nil {
		t.Fatal(err)
	}
	// On the host a link is where the guest has a directory.
	for _, err := range []error{
		os.MkdirAll(local+"/from", 0o755), os.MkdirAll(local+"/victim", 0o755),
		os.Symlink("../victim", local+"/from/a"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if out := g.run(t, "", "cp", "-r", ":"+remote+"/from", local); out.code != 125 || !strings.Contains(out.stderr, "/a") {
		t.Errorf("%+v", out)
	}
	if entries, err := os.ReadDir(local + "/victim"); err != nil || len(entries) != 0 {
		t.Errorf("outside there are %v, %v", entries, err)
	}
}

func TestProgressOfATree(t *testing.T) {
	p := &progress{name: "tree"}
	p.set(3, 2048)
	if p.entries != 3 || p.count != 2048 || counted(3) != "3 entries" || counted(1) != "1 entry" {
		t.Errorf("%+v", p)
	}
	if !bytes.Contains([]byte(progressLine("3 entries of tree", 2048, 0, 1e9, 79)), []byte("2.0 KiB")) {
		t.Error("no figures")
	}
}
