package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// kill ends the guest's guestd so that nobody answers any more, as a guest that is gone.
func (g *guest) kill(t *testing.T) {
	t.Helper()
	if err := g.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	g.cmd.Wait()
}

// background is a guestctl that runs beside the test.
type background struct {
	cmd    *exec.Cmd
	stdout lockedBuffer
	stderr lockedBuffer
	ended  chan struct{}
}

func startBackground(t *testing.T, args ...string) *background {
	t.Helper()
	b := &background{cmd: exec.Command(filepath.Join(bin, "guestctl"), args...), ended: make(chan struct{})}
	b.cmd.Stdout, b.cmd.Stderr = &b.stdout, &b.stderr
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(b.ended)
		b.cmd.Wait()
	}()
	t.Cleanup(func() {
		b.cmd.Process.Kill()
		<-b.ended
	})
	return b
}

// wantEnd waits for its end, and wants the code.
func (b *background) wantEnd(t *testing.T, code int) {
	t.Helper()
	select {
	case <-b.ended:
	case <-time.After(30 * time.Second): // a lost guest is waited for a minute
		t.Fatalf("it goes on; stderr: %q", b.stderr.String())
	}
	if got := exitCodeOf(b.cmd); got != code {
		t.Errorf("exit code %d, want %d; stderr: %q", got, code, b.stderr.String())
	}
}

// untilGuestdEnds runs for as long as the guestd that has started it, so that nothing is left of it.
const untilGuestdEnds = "echo ready; while kill -0 $PPID; do sleep 0.1; done 2>/dev/null"

// TestSignalsEndWhatALostGuestCannot: whatever follows something in a guest that is gone says that it
// waits for it, and ends for a signal that only the guest could have obeyed otherwise.
func TestSignalsEndWhatALostGuestCannot(t *testing.T) {
	for name, args := range map[string][]string{
		"exec":  {"exec", "--", "sh", "-c", untilGuestdEnds},
		"shell": {"exec", "-t", "--", "sh", "-c", untilGuestdEnds},
		"run":   {"run", "--language", "bash", "-c", untilGuestdEnds},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGuest(t)
			b := startBackground(t, append([]string{"--target", g.target}, args...)...)
			b.stdout.await(t, "ready")
			g.kill(t)
			b.stderr.await(t, "the connection to the guest is lost")
			b.cmd.Process.Signal(syscall.SIGTERM)
			b.wantEnd(t, 143)
		})
	}
}

func TestCtrlCEndsATerminalOfALostGuest(t *testing.T) {
	for _, attach := range []bool{false, true} {
		g := startGuest(t)
		args := []string{"exec", "-it", "--", "sh", "-c", untilGuestdEnds}
		if attach {
			args = []string{"attach", strings.TrimSpace(g.run(t, "", "exec", "-d", "-t", "--", "sh", "-c", untilGuestdEnds).stdout)}
		}
		s := startSession(t, pty.Winsize{Rows: 24, Cols: 80}, append([]string{"--target", g.target}, args...)...)
		s.await(t, "ready")
		g.kill(t)
		s.await(t, "\r\nguestctl: the connection to the guest is lost")
		s.keys(t, "\x03")
		s.end(t, 130)
	}
}

// TestPrivateGuestdThatEnds: nobody comes back to a guestd that was started for one command.
func TestPrivateGuestdThatEnds(t *testing.T) {
	b := startBackground(t, "exec", "--", "sh", "-c", "kill -9 $PPID; "+untilGuestdEnds)
	b.wantEnd(t, exitFailure)
	if told := b.stderr.String(); !strings.Contains(told, "the private guestd has ended (signal: killed)") {
		t.Errorf("stderr: %q", told)
	}
}

// TestSignalsEndWaitsForLocalFiles: no local file keeps guestctl from ending, whether it waits for
// its opening, for its contents or to write to it.
func TestSignalsEndWaitsForLocalFiles(t *testing.T) {
	g := startGuest(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"cp", fifo, ":" + t.TempDir() + "/x"},
		{"cp", ":/proc/version", fifo},
		{"run", fifo},
		{"--token-file", fifo, "health"},
	} {
		b := startBackground(t, append([]string{"--target", g.target}, args...)...)
		awaitOpening(t, b.cmd.Process.Pid)
		b.cmd.Process.Signal(syscall.SIGTERM)
		b.wantEnd(t, 143)
	}
}

// awaitOpening waits until a thread of the process waits in the opening of a file.
func awaitOpening(t *testing.T, pid int) {
	t.Helper()
	opening := fmt.Sprintf("%d ", unix.SYS_OPENAT)
	deadline := time.Now().Add(30 * time.Second)
	for before := ""; ; {
		now := ""
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(text), opening) {
				now = string(text)
			}
		}
		if now != "" && now == before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it opens no file")
		}
		before = now
		time.Sleep(10 * time.Millisecond)
	}
}

// lockedBuffer collects what a program writes while the test looks at it.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func (b *lockedBuffer) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !strings.Contains(b.String(), text) {
		if time.Now().After(deadline) {
			t.Fatalf("%q did not come, but %q", text, b.String())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func TestNoticesInRawTerminals(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	raw, err := makeRaw(slave)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	(&app{stderr: slave}).notice("hello")
	got := make([]byte, 64)
	n, err := master.Read(got)
	if err != nil || !bytes.Equal(got[:n], []byte("\r\nguestctl: hello\r\n")) {
		t.Errorf("got %q, %v", got[:n], err)
	}
}
