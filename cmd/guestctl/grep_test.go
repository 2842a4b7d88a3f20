package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"guestd.internal/test/need"
)

func TestGrep(t *testing.T) {
	g := startGuest(t)
	dir := plant(t, map[string]string{
		"a.txt": "one\ntwo\nthree\nTwo and two\nx\ny\nz\ntwo(\n", "sub/b.go": "two\n", "bin": "\x00two\n",
		".gitignore": "b.go\n", "link": "-> a.txt", "odd\nname": "odd\n",
	})
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"two D", 0, "D/a.txt:two|D/a.txt:Two and two|D/a.txt:two(|Binary file D/bin matches|D/sub/b.go:two|"},
		{"-n two D/a.txt", 0, "2:two|4:Two and two|8:two(|"},
		{"-rn two D/ --include *.go", 0, "D/sub/b.go:1:two|"},
		{"-n two D/a.txt D/sub/b.go", 0, "D/a.txt:2:two|D/a.txt:4:Two and two|D/a.txt:8:two(|D/sub/b.go:1:two|"},
		{"-n -C 1 two D/a.txt", 0, "1-one|2:two|3-three|4:Two and two|5-x|--|7-z|8:two(|"},
		{"-nH -A1 -B0 -C9 two D --exclude bin", 0, "D/a.txt:2:two|D/a.txt-3-three|D/a.txt:4:Two and two|D/a.txt-5-x|--|D/a.txt:8:two(|--|D/sub/b.go:1:two|"},
		{"-B1 --no-filename o D/a.txt D/sub/b.go", 0, "one|two|three|Two and two|--|z|two(|--|two|"},
		{"-c two D", 0, "D/a.txt:3|D/bin:1|D/sub/b.go:1|"},
		{"-c two D/a.txt", 0, "3|"},
		{"-c two D/a.txt D/a.txt", 0, "D/a.txt:3|D/a.txt:3|"},
		{"-c nothing D/a.txt D/sub", 1, "D/a.txt:0|"},
		{"-l -A2 two D", 0, "D/a.txt|D/bin|D/sub/b.go|"},
		{"-l --gitignore two D", 0, "D/a.txt|D/bin|"},
		{"-m 1 -i TWO D/a.txt", 0, "two|"},
		{"-F two( D/a.txt", 0, "two(|"},
		{"-w tw D", 1, ""},
		{"-x two D/a.txt", 0, "two|"},
		{"-x one|three D/a.txt", 0, "one|three|"},
		{"two D/link", 0, "two|Two and two|two(|"},
		{"odd D", 0, "D/odd\nname:odd|"},
		{"-n -e two( -F -e x D/a.txt", 0, "5:x|8:two(|"},
		{"-n -e ^-e -e ^x -e th D/a.txt", 0, "3:three|5:x|"},
		{"-x -e tw -e o D/a.txt", 1, ""},
		{"-w -e tw|Two -e x D/a.txt", 0, "Two and two|x|"},
		{"-E two|one D/sub", 0, "D/sub/b.go:two|"},
		{"-vn [tTo] D/a.txt", 0, "5:x|6:y|7:z|"},
		{"-vc two D/a.txt", 0, "5|"},
		{"-vl . D", 1, ""},
		{"-vl w D", 0, "D/.gitignore|D/a.txt|D/odd\nname|"},
		{"-vm1 -A1 o D/a.txt", 0, "three|Two and two|"},
		{"-vq . D/a.txt", 1, ""},
		{"-v two D/bin", 1, ""},
		{"-v three D/bin", 0, "Binary file D/bin matches|"},
		{"-m0 two D/a.txt D/nothing", 1, ""},
		{"-m -1 -c two D/a.txt", 0, "3|"},
		{"-n -A0 [ox]$ D/a.txt", 0, "2:two|--|4:Two and two|5:x|"},
		{"-q two D", 0, ""},
		{"nothing D", 1, ""},
	} {
		args := strings.Fields("grep " + strings.ReplaceAll(c.args, "D", dir))
		out := g.run(t, "", args...)
		if want := strings.ReplaceAll(strings.ReplaceAll(c.want, "|", "\n"), "D", dir); out.code != c.code || out.stdout != want || out.stderr != "" {
			t.Errorf("grep %s: %+v, want %d and %q", c.args, out, c.code, want)
		}
	}
	g.run(t, "", "grep", "two", dir+"/nothing", dir+"/sub/b.go").want(t, 125, dir+"/sub/b.go:two\n", "nothing")
	g.run(t, "", "grep", "-q", "two", dir+"/nothing", dir+"/a.txt").want(t, 0, "", "nothing")
	g.run(t, "", "grep", "-q", "no", dir+"/nothing", dir+"/a.txt").want(t, 125, "", "nothing")
	for pattern, want := range map[string]string{"x\nthree": "3:three\n5:x\n", "z\n": "1:one\n2:two\n3:three\n4:Two and two\n5:x\n6:y\n7:z\n8:two(\n"} {
		g.run(t, "", "grep", "-n", pattern, dir+"/a.txt").want(t, 0, want, "") // lines of a pattern are patterns
		g.run(t, "", "grep", "-nF", "-e", pattern, dir+"/a.txt").want(t, 0, want, "")
	}
	g.run(t, "", "grep", "-n", "-e", `\Qtwo(`, "-e", `\Qthree`, dir+"/a.txt").want(t, 0, "3:three\n8:two(\n", "")
	g.run(t, "", "grep", "-nx", `\Qtwo(`, dir+"/a.txt").want(t, 0, "8:two(\n", "")
	g.run(t, "", "grep", "a)|(b", dir).want(t, 125, "", "unexpected )")
	g.run(t, "", "grep", "(", dir).want(t, 125, "", "missing closing")
	g.run(t, "", "grep", "-C", "101", "x", dir).want(t, 125, "", "100")
	g.run(t, "", "grep", "-A", "-1", "x", dir).want(t, 125, "", "100")
	g.run(t, "", "grep").want(t, 125, "", "takes a pattern")
	g.run(t, "", "grep", "--json", "-B1", "th|\xff?two\\(", dir+"/a.txt").want(t, 125, "", "UTF-8")
	g.run(t, "", "grep", "--json", "-B1", "th", dir).want(t, 0, `{"path":"`+dir+`/a.txt","line_number":3,"text":"three",`+
		`"ranges":[{"start":0,"end":2}],"before":[{"line_number":2,"text":"two"}]}`+"\n", "")
	g.run(t, "", "grep", "--json", "two", dir+"/bin").want(t, 0, `{"path":"`+dir+`/bin","binary":true}`+"\n", "")
	g.run(t, "", "grep", "--json", "-c", "two", dir+"/a.txt").want(t, 0, `{"path":"`+dir+`/a.txt","count":3}`+"\n", "")
	g.run(t, "", "grep", "--json", "-l", "two", dir+"/a.txt").want(t, 0, `{"path":"`+dir+`/a.txt"}`+"\n", "")
}

func TestPathsAreShownAsTheyWereGiven(t *testing.T) {
	for _, c := range []struct{ given, path, want string }{
		{"", "/home/user/src/a", "src/a"},
		{".", "/home/user/src/a", "./src/a"},
		{"../user/", "/home/user/src/a", "../user/src/a"},
		{"file", "/home/user", "file"},
	} {
		if got := underGiven(c.given, "/home/user", c.path); got != c.want {
			t.Errorf("%q below %q is shown as %q, want %q", c.path, c.given, got, c.want)
		}
	}
	if got := underGiven("/", "/", "/etc/passwd"); got != "/etc/passwd" {
		t.Errorf("below / there is %q", got)
	}
}

func TestGrepCutsLinesAloud(t *testing.T) {
	g := startGuest(t)
	dir := plant(t, map[string]string{"long": "two" + strings.Repeat("x", 100<<10) + "\n"})
	g.run(t, "", "grep", "two", dir+"/long").want(t, 0, "two"+strings.Repeat("x", 64<<10-3)+"\n", dir+`/long": line 1 is too long`)
	// A match is found wherever it is.
	far := plant(t, map[string]string{"far": strings.Repeat("x", 3<<20) + "two\nlast\n"})
	g.run(t, "", "grep", "-c", "two", far+"/far").want(t, 0, "1\n", "")
	g.run(t, "", "grep", "-cv", "x two$", far+"/far").want(t, 0, "2\n", "")
	g.run(t, "", "grep", "two", far+"/far").want(t, 0, strings.Repeat("x", 64<<10)+"\n", far+`/far": line 1 is too long`)
}

func TestGrepIsColouredOnATerminalOnly(t *testing.T) {
	g := startGuest(t)
	dir := plant(t, map[string]string{"a": "one two two\n", "b\x1b[2J": "three\n"})
	s := startSession(t, pty.Winsize{Rows: 24, Cols: 80}, "--target", g.target, "grep", "-n", "two|three", dir)
	s.await(t, "three")
	s.end(t, 0)
	for _, want := range []string{
		colourName + dir + "/a" + colourReset + colourMark + ":" + colourReset + colourNumber + "1" + colourReset + colourMark + ":" + colourReset +
			"one " + colourMatch + "two" + colourReset + " " + colourMatch + "two" + colourReset,
		`\x1b[2J"` + colourReset,
	} {
		s.await(t, want)
	}
}

func TestInterruptedGrepEndsAtOnce(t *testing.T) {
	g := startGuest(t)
	// A file that never ends is searched until somebody interrupts it.
	dir := plant(t, map[string]string{"a": "two\n"})
	endless := exec.Command("truncate", "-s", "1T", filepath.Join(dir, "endless"))
	if out, err := endless.CombinedOutput(); err != nil {
		need.Skip(t, "no sparse file of a terabyte: %v: %s", err, out)
	}
	cmd := exec.Command(filepath.Join(bin, "guestctl"), "--target", g.target, "grep", "two", dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// What was found is shown though the search goes on.
	line := make([]byte, len(dir)+len("/a:two\n"))
	if n, err := stdout.Read(line); err != nil || string(line[:n]) != dir+"/a:two\n" {
		t.Errorf("got %q, %v", line[:n], err)
	}
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if code := exitCodeOf(cmd); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}
