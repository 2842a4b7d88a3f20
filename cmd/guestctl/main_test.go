package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"guestd.internal/test/programs"
)

// bin holds the programs under test; TestMain builds them.
var bin string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "guestctl-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	if err := programs.Build(dir, false, "guestd", "guestctl"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// What the tests start is to have a signal's default action, even if they run
	// under nohup: Go resets in a child what the program handles.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	os.Unsetenv(envTarget)
	os.Unsetenv(envToken)
	os.Unsetenv(envGuestd)
	return m.Run()
}

// guest is a guestd that runs for a test.
type guest struct {
	target string
	cmd    *exec.Cmd
}

func startGuest(t *testing.T, args ...string) *guest {
	t.Helper()
	if err := programs.DependOnSources(); err != nil { // TestMain has built them, which go test does not note
		t.Fatal(err)
	}
	dir := t.TempDir()
	g := &guest{target: "unix://" + filepath.Join(dir, "s")}
	g.cmd = exec.Command(filepath.Join(bin, "guestd"), append([]string{"--listen", g.target, "--user", fmt.Sprint(os.Getuid()),
		"--state-dir", filepath.Join(dir, "state"), "--drain", "0s", "--log-format", "text"}, args...)...)
	var log bytes.Buffer
	g.cmd.Stderr = &log
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.cmd.Process.Signal(os.Interrupt)
		g.cmd.Wait()
		if t.Failed() {
			t.Logf("guestd's log:\n%s", log.String())
		}
	})
	deadline := time.Now().Add(30 * time.Second)
	for g.run(t, "", "health").code != 0 {
		if time.Now().After(deadline) {
			t.Fatal("guestd does not serve")
		}
		time.Sleep(5 * time.Millisecond)
	}
	return g
}

// outcome is what a guestctl did.
type outcome struct {
	stdout, stderr string
	code           int
}

// run runs guestctl against the guest.
func (g *guest) run(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	return guestctl(t, []string{envTarget + "=" + g.target}, stdin, args...)
}

// guestctl runs guestctl with more environment.
func guestctl(t *testing.T, env []string, stdin string, args ...string) outcome {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "guestctl"), args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if _, is := errors.AsType[*exec.ExitError](err); err != nil && !is {
		t.Fatal(err)
	}
	return outcome{out.String(), errOut.String(), exitCodeOf(cmd)}
}

// exitCodeOf is the code as a shell would show it.
func exitCodeOf(cmd *exec.Cmd) int { return cmd.ProcessState.ExitCode() }

// want fails the test unless guestctl did exactly this; stderr need only contain its text, and must
// be empty where that is.
func (o outcome) want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if o.code != code || o.stdout != stdout || !strings.Contains(o.stderr, stderr) || (stderr == "") != (o.stderr == "") {
		t.Errorf("exit code %d, stdout %q, stderr %q; want %d, %q and %q", o.code, o.stdout, o.stderr, code, stdout, stderr)
	}
}
