package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// startGuestWithPython starts a guestd whose first kernel is up.
func startGuestWithPython(t *testing.T) *guest {
	t.Helper()
	g := startGuest(t)
	if out := g.run(t, "", "run", "-c", "None"); out.code != 0 {
		t.Fatalf("Python does not run (Debian's package is python3-ipykernel): %+v", out)
	}
	return g
}

func TestRun(t *testing.T) {
	g := startGuestWithPython(t)
	file := filepath.Join(t.TempDir(), "code.py")
	if err := os.WriteFile(file, []byte("print('from a file')\nx = 20"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.run(t, "", "run", file).want(t, 0, "from a file\n", "")
	g.run(t, "", "run", "-c", "x * 2").want(t, 0, "40\n", "")
	g.run(t, "import sys; print('from stdin'); print('err', file=sys.stderr)", "run", "-").want(t, 0, "from stdin\n", "err\n")
	g.run(t, "bob\n", "run", "-c", "print('hello', input('name? '))").want(t, 0, "hello bob\n", "")
	out := g.run(t, "", "run", "-c", "1/0")
	if out.code != 1 || out.stdout != "" || !strings.HasSuffix(out.stderr, "ZeroDivisionError: division by zero\n") || strings.Contains(out.stderr, "\x1b") {
		t.Errorf("an error: %+v", out)
	}
	g.run(t, "", "run", "--timeout", "200ms", "-c", "import time; time.sleep(60)").want(t, 124, "", "TimeoutError")
	g.run(t, "", "run", "-c", "x").want(t, 0, "20\n", "")
	for argument, want := range map[string]struct {
		code   int
		stderr string
	}{"": {0, ""}, "None": {0, ""}, "0": {0, ""}, "3": {3, ""}, "256 + 7": {7, ""}, "-1": {255, ""}, "'a message'": {1, "a message\n"}} {
		out := g.run(t, "", "run", "-c", "import sys; print('on'); sys.exit("+argument+"); print('not')")
		if out.code != want.code || out.stdout != "on\n" || out.stderr != want.stderr {
			t.Errorf("sys.exit(%s): %+v", argument, out)
		}
	}
	for name, args := range map[string][]string{
		"nothing":       {"run"},
		"two files":     {"run", file, file},
		"code and file": {"run", "-c", "1", file},
		"no such file":  {"run", "/no/such/file"},
		"empty code":    {"run", "-c", " "},
		"not UTF-8":     {"run", "-c", "'\xff'"},
		"no language":   {"run", "--language", "no-such-language", "-c", "1"},
		"no context":    {"run", "--context", "c-nosuchcontext", "-c", "1"},
	} {
		if out := g.run(t, "", args...); out.code != 125 || out.stderr == "" || out.stdout != "" {
			t.Errorf("%s: %+v", name, out)
		}
	}
	out = g.run(t, "", "run", "-c", "import os; os._exit(3)")
	if out.code != 1 || !strings.Contains(out.stderr, "KernelDied") {
		t.Errorf("a kernel's death: %+v", out)
	}
	out = g.run(t, "", "run", "-c", "'x' in globals()")
	if out.code != 0 || out.stdout != "False\n" || !strings.Contains(out.stderr, "fresh kernel") {
		t.Errorf("behind it: %+v", out)
	}
}

func TestRunInterrupted(t *testing.T) {
	g := startGuestWithPython(t)
	cmd := exec.Command(filepath.Join(bin, "guestctl"), "--target", g.target, "run", "-c", "y = 5; print('ready')\nimport time; time.sleep(60)")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if exitCodeOf(cmd) != 1 || !strings.Contains(stderr.String(), "KeyboardInterrupt") {
		t.Errorf("exit code %d, %q", exitCodeOf(cmd), stderr.String())
	}
	g.run(t, "", "run", "-c", "y").want(t, 0, "5\n", "")
}

func TestRunSavesPictures(t *testing.T) {
	g := startGuestWithPython(t)
	dir := t.TempDir()
	const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	code := "import base64\nfrom IPython.display import Image, display\nd = base64.b64decode('" + png + "')\ndisplay(Image(d)); Image(d)"
	out := g.run(t, "", "run", "--save-dir", dir, "-c", code)
	if out.code != 0 || out.stdout != "" || !strings.Contains(out.stderr, dir+"/picture-1.png") || !strings.Contains(out.stderr, dir+"/picture-2.png") {
		t.Errorf("got %+v", out)
	}
	want, err := base64.StdEncoding.DecodeString(png)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "picture-2.png")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the picture has %d bytes, %v", len(got), err)
	}
	out = g.run(t, "", "run", "--json", "-c", "print(1); Image(d)")
	var types []string
	for line := range strings.Lines(out.stdout) {
		var event struct {
			Type string            `json:"type"`
			Text string            `json:"text"`
			Main bool              `json:"main"`
			Data map[string]string `json:"data"`
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if event.Type == "result" && (!event.Main || event.Data["image/png"] != png || event.Data["text/plain"] == "") {
			t.Errorf("the result is %s", line)
		}
		types = append(types, event.Type)
	}
	if got := strings.Join(types, " "); out.code != 0 || got != "started stdout result finished" {
		t.Errorf("the events are %q, %+v", got, out)
	}
}

func TestRunOnATerminal(t *testing.T) {
	g := startGuestWithPython(t)
	s := startSession(t, pty.Winsize{Rows: 24, Cols: 80}, "--target", g.target, "run", "-c",
		"import getpass; print('hello', input('name? ')); print(len(getpass.getpass('secret? '))); 1/0")
	s.await(t, "name? ")
	s.keys(t, "bob\r")
	s.await(t, "hello bob")
	s.await(t, "secret? ")
	s.keys(t, "pssst\r")
	s.await(t, "5")
	s.await(t, "\x1b[31mZeroDivisionError: division by zero\x1b[0m")
	s.end(t, 1)
	if strings.Contains(s.shown(), "pssst") {
		t.Errorf("the secret was shown: %q", s.shown())
	}
	// The end of the code ends the wait for a line.
	s = startSession(t, pty.Winsize{Rows: 24, Cols: 80}, "--target", g.target, "run", "--timeout", "300ms", "-c", "input('wait ')")
	s.await(t, "TimeoutError")
	s.end(t, 124)
	s = startSession(t, pty.Winsize{Rows: 24, Cols: 80}, "--target", g.target, "run", "-c", "input('wait ')")
	s.await(t, "wait ")
	s.keys(t, "\x03")
	s.await(t, "KeyboardInterrupt")
	s.end(t, 1)
}

// Progress bars go back to the line's start and write over it: each as it comes, and nothing added.
func TestRunRedrawsProgress(t *testing.T) {
	g := startGuestWithPython(t)
	const code = `
import sys
for n in (0, 50, 100):
    sys.stderr.write(f'\r{n:3}%|' + '█' * (n // 10))
    input()
sys.stderr.write('\n')
print('a\rb')`
	g.run(t, "\n\n\n", "run", "-c", code).want(t, 0, "a\rb\n", "\r  0%|\r 50%|█████\r100%|██████████\n")
	s := startSession(t, pty.Winsize{Rows: 24, Cols: 80}, "--target", g.target, "run", "-c", code)
	for _, bar := range []string{"\r  0%|", "\r 50%|█████", "\r100%|██████████"} {
		s.await(t, bar)
		s.keys(t, "\r")
	}
	s.await(t, "a\rb")
	s.end(t, 0)
}
