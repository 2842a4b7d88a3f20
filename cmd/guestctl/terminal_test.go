package main

import (
	"bytes"
	"io"
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

// session is a guestctl in a real terminal.
type session struct {
	cmd    *exec.Cmd
	master *os.File
	before unix.Termios

	mu     sync.Mutex
	screen bytes.Buffer
	ended  chan struct{} // closed when the terminal shows no more
}

func startSession(t *testing.T, size pty.Winsize, args ...string) *session {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, &size); err != nil {
		t.Fatal(err)
	}
	s := &session{cmd: exec.Command(filepath.Join(bin, "guestctl"), args...), master: master, ended: make(chan struct{})}
	s.before = s.termios(t)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		slave.Close()
		<-s.ended
		master.Close()
	})
	go func() {
		defer close(s.ended)
		io.Copy(s, master)
	}()
	return s
}

// Write collects what the terminal shows.
func (s *session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.Write(p)
}

func (s *session) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.String()
}

func (s *session) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !strings.Contains(s.shown(), text) {
		if time.Now().After(deadline) {
			t.Fatalf("%q did not come; the terminal shows %q", text, s.shown())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (s *session) keys(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(s.master, keys); err != nil {
		t.Fatal(err)
	}
}

func (s *session) termios(t *testing.T) unix.Termios {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(s.master.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *state
}

// end waits for guestctl's end, and wants the exit code and the terminal as it was.
func (s *session) end(t *testing.T, code int) {
	t.Helper()
	s.cmd.Wait()
	if got := exitCodeOf(s.cmd); got != code {
		t.Errorf("exit code %d, want %d; the terminal shows %q", got, code, s.shown())
	}
	if after := s.termios(t); after != s.before {
		t.Errorf("the terminal was left as %+v; it was %+v", after, s.before)
	}
}

func TestTerminalSession(t *testing.T) {
	g := startGuest(t)
	s := startSession(t, pty.Winsize{Rows: 33, Cols: 101}, "--target", g.target, "exec", "-it", "--", "sh", "-c",
		`stty size; trap "echo interrupted" INT; echo ready; while :; do read line || continue; [ "$line" = size ] && stty size; [ "$line" = end ] && exit 6; done`)
	s.await(t, "33 101")
	s.await(t, "ready")
	if s.termios(t).Lflag&(unix.ICANON|unix.ISIG|unix.ECHO) != 0 {
		t.Error("the local terminal is not raw")
	}
	s.keys(t, "\x03") // Ctrl-C is the guest's
	s.await(t, "interrupted")
	if err := pty.Setsize(s.master, &pty.Winsize{Rows: 40, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for !strings.Contains(s.shown(), "40 120") && time.Now().Before(deadline) {
		s.keys(t, "size\r")
		time.Sleep(10 * time.Millisecond)
	}
	s.await(t, "40 120")
	s.keys(t, "end\r")
	s.end(t, 6)
}

func TestShellInATerminal(t *testing.T) {
	g := startGuest(t)
	s := startSession(t, pty.Winsize{Rows: 24, Cols: 80}, "--target", g.target, "shell")
	s.keys(t, "echo $((6 * 7))-$-; tty\r")
	s.await(t, "42-")
	s.await(t, "/dev/pts/")
	s.keys(t, "exit 5\r")
	s.end(t, 5)
}

func TestShellWithoutATerminal(t *testing.T) {
	g := startGuest(t)
	g.run(t, "echo hello; exit 4\n", "shell").want(t, 4, "hello\n", "")
}

func TestTerminalIsRestored(t *testing.T) {
	g := startGuest(t)
	for _, c := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGTERM, 143}, {syscall.SIGHUP, 129}, {syscall.SIGINT, 130}} {
		s := startSession(t, pty.Winsize{Rows: 24, Cols: 80}, "--target", g.target, "exec", "-it", "--", "sh", "-c", "echo ready; cat")
		s.await(t, "ready")
		s.cmd.Process.Signal(c.signal)
		s.end(t, c.code)
	}
	s := startSession(t, pty.Winsize{Rows: 24, Cols: 80}, "--target", g.target, "exec", "-it", "--", "sh", "-c", "echo ready; trap '' HUP; while :; do sleep 1; done")
	s.await(t, "ready")
	s.cmd.Process.Signal(syscall.SIGTERM) // one that cannot be hung up is killed
	s.end(t, 143)
	s = startSession(t, pty.Winsize{Rows: 24, Cols: 80}, "--target", g.target, "exec", "-it", "--", "no-such-command")
	s.end(t, 127)
	g.run(t, "", "ps").want(t, 0, "ID  PID  USER  AGE  STATUS  COMMAND\n", "")
}

func TestTerminalIsRestoredWhenTheVerbPanics(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	get := func() unix.Termios {
		state, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return *state
	}
	before := get()
	func() {
		defer func() { recover() }()
		raw, err := makeRaw(slave)
		if err != nil {
			t.Fatal(err)
		}
		defer raw.close()
		if get() == before {
			t.Error("raw mode changes nothing")
		}
		panic("in the verb")
	}()
	if after := get(); after != before {
		t.Errorf("the terminal was left as %+v; it was %+v", after, before)
	}
}

func TestAttachToATerminal(t *testing.T) {
	g := startGuest(t)
	id := strings.TrimSpace(g.run(t, "", "exec", "-d", "-t", "--", "sh", "-c", "echo ready; read line; echo got $line; exit 8").stdout)
	s := startSession(t, pty.Winsize{Rows: 50, Cols: 132}, "--target", g.target, "attach", id)
	s.await(t, "ready")
	s.cmd.Process.Signal(syscall.SIGTERM) // ends the attachment, not the process
	s.end(t, 143)
	s = startSession(t, pty.Winsize{Rows: 50, Cols: 132}, "--target", g.target, "attach", id)
	s.await(t, "ready")
	s.keys(t, "hello\r")
	s.await(t, "got hello")
	s.end(t, 8)
}

func TestProgressOnATerminalOnly(t *testing.T) {
	g := startGuest(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	s := startSession(t, pty.Winsize{Rows: 24, Cols: 70}, "--target", g.target, "cp", fifo, ":"+t.TempDir()+"/big")
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	s.await(t, "3.0 MiB")
	w.Close()
	s.await(t, "\r\n") // the last line stays
	s.end(t, 0)
	if shown := s.shown(); !strings.Contains(shown, "\r\x1b[Kbig") {
		t.Errorf("the terminal shows %q", shown)
	}
}
