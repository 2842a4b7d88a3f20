package outlog

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// terminalPump starts a shell line in a terminal, and a pump of its output that runs.
func terminalPump(t *testing.T, line string) (p *Pump, leader *exec.Cmd, done <-chan error) {
	t.Helper()
	blocking, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	defer blocking.Close()
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	leader = exec.Command("sh", "-c", line)
	leader.Stdin, leader.Stdout, leader.Stderr = slave, slave, slave
	leader.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-leader.Process.Pid, syscall.SIGKILL) })
	p = NewPump(os.NewFile(uintptr(fd), "master"), Terminal, New(Options{}), nil)
	t.Cleanup(p.Close)
	ended := make(chan error, 1)
	go func() { ended <- p.Run() }()
	return p, leader, ended
}

// beforeMark waits for the exit mark and returns what is before it.
func beforeMark(t *testing.T, p *Pump) string {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !p.log.State().Marked; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no mark")
		}
	}
	r, err := p.log.Attach(ReaderOptions{Mode: Following})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var text bytes.Buffer
	for {
		chunk, status := r.Next(maxChunk)
		if status != Ready {
			return strings.ReplaceAll(text.String(), "\r", "")
		}
		text.Write(chunk.Data)
		chunk.Release()
	}
}

// Everything that the leader wrote comes before the mark, and nothing of guestd's own
// with it, while somebody else holds the terminal, on a machine that is busy.
func TestTerminalsTailIsNotLostAtExit(t *testing.T) {
	for range 4 {
		busy := exec.Command("sh", "-c", "while :; do :; done")
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = busy.Process.Kill(); _ = busy.Wait() })
	}
	var want strings.Builder
	for i := range 3000 {
		fmt.Fprintln(&want, i+1)
	}
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		p, leader, _ := terminalPump(t, "trap '' HUP; sleep 1000 & seq 1 3000")
		if err := leader.Wait(); err != nil {
			t.Fatal(err)
		}
		p.LeaderEnded()
		if got := beforeMark(t, p); got != want.String() {
			t.Fatalf("%d of %d bytes, ending in %q", len(got), want.Len(), got[max(0, len(got)-50):])
		}
	}
}

func TestTerminalThatOthersWriteTo(t *testing.T) {
	p, leader, _ := terminalPump(t, "trap '' HUP; (while :; do echo noise; done) & echo leader")
	if err := leader.Wait(); err != nil {
		t.Fatal(err)
	}
	p.LeaderEnded()
	if got := strings.ReplaceAll(beforeMark(t, p), "noise\n", ""); !strings.Contains(got, "leader\n") || strings.ContainsAny(got, "0123456789") {
		t.Errorf("before the mark: %q", got)
	}
	// What comes later is whole, too.
	time.Sleep(20 * time.Millisecond)
	p.Close()
	if data, _ := contents(t, p.log); strings.Trim(strings.ReplaceAll(string(data), "\r", ""), "noise\nladr") != "" {
		t.Errorf("there is more than was written: %q", data)
	}
}

// Output that is stopped, as by Ctrl-S, takes no sentinel: the mark comes all the same.
func TestTerminalWhoseOutputIsStopped(t *testing.T) {
	p, leader, _ := terminalPump(t, "trap '' HUP; sleep 1000 & echo before")
	if err := leader.Wait(); err != nil {
		t.Fatal(err)
	}
	for p.log.State().End == 0 {
		time.Sleep(time.Millisecond)
	}
	err := p.control(func(fd int) error {
		slave, err := openPeer(fd)
		if err != nil {
			return err
		}
		defer unix.Close(slave)
		return unix.IoctlSetInt(slave, unix.TCXONC, unix.TCOOFF)
	})
	if err != nil {
		t.Fatal(err)
	}
	p.LeaderEnded()
	if got := beforeMark(t, p); got != "before\n" {
		t.Errorf("before the mark: %q", got)
	}
}

// A terminal that nobody has open any more ends.
func TestTerminalEndsWithItsLastHolder(t *testing.T) {
	p, leader, done := terminalPump(t, "echo all")
	if err := leader.Wait(); err != nil {
		t.Fatal(err)
	}
	p.LeaderEnded()
	if got := beforeMark(t, p); got != "all\n" {
		t.Errorf("before the mark: %q", got)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if data, ended := contents(t, p.log); !ended || string(data) != "all\r\n" {
		t.Errorf("%q, ended %v", data, ended)
	}
}
