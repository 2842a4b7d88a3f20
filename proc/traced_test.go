package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/spawn"
	"guestd.internal/test/need"
)

// roleVariable has this program play one of a leader that ends while its child traces it,
// and that child.
const roleVariable = "PROC_TEST_ROLE"

func playRole(role string) error {
	switch role {
	case "traced":
		tracer := osexec.Command("/proc/self/exe")
		tracer.Env = append(os.Environ(), roleVariable+"=tracer")
		tracer.Stderr = os.Stderr
		out, err := tracer.StdoutPipe()
		if err != nil {
			return err
		}
		if err := tracer.Start(); err != nil {
			return err
		}
		if _, err := bufio.NewReader(out).ReadByte(); err != nil {
			return fmt.Errorf("waiting to be traced: %w", err)
		}
		fmt.Println("hello")
		os.Exit(3)
	case "tracer":
		runtime.LockOSThread() // which is the tracer
		if err := unix.PtraceSeize(os.Getppid()); err != nil {
			return fmt.Errorf("tracing: %w", err)
		}
		fmt.Print("x")
		os.Stdout.Close()
		os.Stderr.Close()
		time.Sleep(time.Hour)
	}
	return nil
}

func traced() Spec {
	return Spec{Args: []string{"/proc/self/exe"}, Env: []spawn.EnvVar{{Name: roleVariable, Value: "traced"}}}
}

// The kernel tells nobody but a tracer how the traced one has ended, until it lets go of
// it. Meanwhile the leader's output is there, nobody who starts it or closes the table
// waits for that, and killing the tree tells the end.
func TestALeaderThatEndsTraced(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Skip(t, "to trace one's parent needs root where ptrace is restricted; try: sudo go test")
	}
	t.Run("with a reader", func(t *testing.T) {
		p, a, err := newTable(t).Exec(within(t), traced(), AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		event, err := a.Next(within(t))
		out, isOutput := event.(Output)
		if err != nil || !isOutput || string(out.Data) != "hello\n" {
			t.Fatalf("%+v, %v", event, err)
		}
		out.Release()
		awaitZombie(t, p)
		if err := p.Signal(syscall.SIGKILL, spawn.Tree); err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Wait(within(t)); err != nil || exit.Code != 3 {
			t.Errorf("%+v, %v, want code 3", exit, err)
		}
		a.Close()
	})
	t.Run("captured, and closed", func(t *testing.T) {
		table := newTable(t) // which the test's end closes
		p, err := table.StartCaptured(within(t), traced(), nil, 1000)
		if err != nil {
			t.Fatal(err)
		}
		awaitZombie(t, p)
		ended := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(ended)
		if _, err := p.Captured(ctx); !errors.Is(err, ended) {
			t.Errorf("waiting: %v, want %v", err, ended)
		}
	})
}

// awaitZombie waits until a process's leader has ended, whoever is told.
func awaitZombie(t *testing.T, p *Process) {
	t.Helper()
	eventually(t, "the leader to end", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.child.PID()))
		return err == nil && strings.Contains(string(stat), "State:\tZ")
	})
}
