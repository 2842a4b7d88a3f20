package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestContext(t *testing.T) {
	g := startGuestWithPython(t)
	dir := t.TempDir()
	out := g.run(t, "", "context", "create", "-w", dir, "-e", "KEY=a b", "--name", "mine")
	id := strings.TrimSuffix(out.stdout, "\n")
	if out.code != 0 || !strings.HasPrefix(id, "c-") || out.stderr != "" {
		t.Fatalf("created %+v", out)
	}
	g.run(t, "", "run", "--context", id, "-c", "import os; kept = 1; print(os.getcwd(), os.environ['KEY'])").want(t, 0, dir+" a b\n", "")
	g.run(t, "", "run", "--context", id, "-w", "/", "-e", "KEY=once", "-c", "print(os.getcwd(), os.environ['KEY'], kept)").want(t, 0, "/ once 1\n", "")
	g.run(t, "", "run", "-c", "'kept' in globals()").want(t, 0, "False\n", "")
	list := g.run(t, "", "context", "list")
	lines := strings.Split(strings.TrimSpace(list.stdout), "\n")
	if list.code != 0 || len(lines) != 3 || !strings.HasPrefix(lines[2], id) || !strings.HasSuffix(lines[2], "mine") || !strings.Contains(lines[1], "(default)") {
		t.Errorf("listed %+v", list)
	}
	for line := range strings.Lines(g.run(t, "", "--json", "context", "list").stdout) {
		var context jsonContext
		if err := json.Unmarshal([]byte(line), &context); err != nil || context.Language != "python" || context.State != "idle" {
			t.Errorf("%q: %v", line, err)
		}
	}
	g.run(t, "", "context", "restart", id).want(t, 0, "", "")
	out = g.run(t, "", "run", "--context", id, "-c", "'kept' in globals()")
	if out.code != 0 || out.stdout != "False\n" || !strings.Contains(out.stderr, "fresh kernel") {
		t.Errorf("restarted: %+v", out)
	}
	interruptFromBeside(t, g, id)
	g.run(t, "", "context", "delete", id).want(t, 0, "", "")
	if out := g.run(t, "", "context", "delete", id); out.code != 125 || !strings.Contains(out.stderr, "no such context") {
		t.Errorf("deleted again: %+v", out)
	}
	g.run(t, "", "run", "--language", "sh", "-c", "echo out; echo err >&2; exit 4").want(t, 1, "out\n", "exited with code 4")
	for name, args := range map[string][]string{
		"no verb":     {"context", "frobnicate"},
		"no id":       {"context", "delete"},
		"no folder":   {"context", "create", "-w", "/no/such"},
		"no language": {"context", "create", "--language", "cobol"},
	} {
		if out := g.run(t, "", args...); out.code != 125 || out.stderr == "" || out.stdout != "" {
			t.Errorf("%s: %+v", name, out)
		}
	}
	if out := guestctl(t, nil, "", "context", "list"); out.code != 125 || !strings.Contains(out.stderr, "--target") {
		t.Errorf("without a target: %+v", out)
	}
}

// interruptFromBeside interrupts one run with another guestctl.
func interruptFromBeside(t *testing.T, g *guest, id string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "guestctl"), "--target", g.target, "run", "--context", id, "-c", "print('ready'); import time; time.sleep(60)")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(time.Minute, func() { cmd.Process.Signal(syscall.SIGKILL) }).Stop()
	if _, err := stdout.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	g.run(t, "", "context", "interrupt", id).want(t, 0, "", "")
	cmd.Wait()
	if code := exitCodeOf(cmd); code != 1 {
		t.Errorf("what was interrupted exited with %d", code)
	}
}
