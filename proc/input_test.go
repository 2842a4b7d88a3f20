package proc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/internal/outlog"
	"guestd.internal/internal/spawn"
)

func mustCurrent(t *testing.T) account.Account {
	t.Helper()
	acc, err := account.Open("").Current()
	if err != nil {
		t.Fatal(err)
	}
	return acc
}

// write writes to a FIFO that somebody has open or will open. It does not wait
// for them, and the FIFO keeps the text until the test's end.
func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func withStdin(spec Spec) Spec {
	spec.Stdin = true
	return spec
}

func TestInputStreamsWithoutLimit(t *testing.T) {
	table := newTable(t)
	_, a, err := table.Exec(t.Context(), withStdin(Spec{Args: []string{"sha256sum"}}), AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	block := bytes.Repeat([]byte("guestd input "), 30_000)
	var offset uint64
	for range 300 { // 117 MB
		accepted, err := a.WriteInput(within(t), offset, block)
		if err != nil {
			t.Fatal(err)
		}
		hash.Write(block)
		if offset += uint64(len(block)); accepted != offset {
			t.Fatalf("accepted %d of %d", accepted, offset)
		}
	}
	if err := a.CloseInput(offset); err != nil {
		t.Fatal(err)
	}
	h := listen(t, a)
	if want := fmt.Sprintf("%x  -\n", hash.Sum(nil)); h.text(Stdout) != want {
		t.Fatalf("got %q, want %q", h.text(Stdout), want)
	}
	if h.input.Accepted != offset {
		t.Fatalf("told that %d of %d bytes were taken", h.input.Accepted, offset)
	}
}

func TestInputIsTakenOnceHoweverOftenItIsSent(t *testing.T) {
	table := newTable(t)
	p, a, err := table.Exec(t.Context(), withStdin(Spec{Args: []string{"cat"}}), AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, send := range []struct {
		offset uint64
		data   string
		want   uint64
	}{{0, "abc", 3}, {0, "abc", 3}, {1, "bcdef", 6}, {2, "c", 6}, {6, "", 6}, {6, "g", 7}} {
		if got, err := p.WriteInput(t.Context(), send.offset, []byte(send.data)); err != nil || got != send.want {
			t.Fatalf("%+v: %d, %v", send, got, err)
		}
	}
	var hole *outlog.OffsetError
	for _, beyond := range []uint64{8, 9, math.MaxInt64, math.MaxUint64} {
		hole = nil
		if _, err := p.WriteInput(t.Context(), beyond, []byte("x")); !errors.As(err, &hole) || hole.End != 7 {
			t.Errorf("writing at %d: got %v", beyond, err)
		}
		hole = nil
		if err := p.CloseInput(beyond); !errors.As(err, &hole) || hole.End != 7 {
			t.Errorf("closing at %d: got %v", beyond, err)
		}
	}
	var invalid *InvalidError
	if err := p.CloseInput(6); !errors.As(err, &invalid) {
		t.Fatalf("got %v", err)
	}
	for range 2 {
		if err := p.CloseInput(7); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.WriteInput(t.Context(), 7, []byte("x")); !errors.Is(err, ErrInputClosed) {
		t.Fatalf("got %v", err)
	}
	if h := listen(t, a); h.text(Stdout) != "abcdefg" {
		t.Fatalf("got %q", h.text(Stdout))
	}
}

func TestInputWaitsForAProgramThatDoesNotRead(t *testing.T) {
	table := newTable(t)
	for name, spec := range map[string]Spec{
		"pipe":     withStdin(Spec{Args: []string{"sleep", "1000"}}),
		"terminal": inTerminal("stty raw -echo; echo ready; sleep 1000", Size{}),
	} {
		t.Run(name, func(t *testing.T) {
			p, err := table.Start(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			if spec.Terminal != nil {
				eventually(t, "ready", func() bool { return p.Info().Output[0].Offset > 0 })
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			stop := errors.New("enough")
			result := make(chan error)
			go func() {
				_, err := p.WriteInput(ctx, 0, make([]byte, 4*InputWindow))
				result <- err
			}()
			eventually(t, "the window is full", func() bool { return p.InputOffset() >= InputWindow })
			// Neither closing nor signals wait behind it.
			if err := p.EndInput(); err != nil {
				t.Fatal(err)
			}
			if err := p.Signal(syscall.SIGCONT, spawn.Tree); err != nil {
				t.Fatal(err)
			}
			if spec.Terminal != nil {
				cancel(stop)
				if err := <-result; !errors.Is(err, stop) {
					t.Fatalf("got %v", err)
				}
			}
			if err := p.Signal(syscall.SIGKILL, spawn.Tree); err != nil {
				t.Fatal(err)
			}
			if spec.Terminal == nil {
				if err := <-result; !errors.Is(err, ErrInputClosed) {
					t.Fatalf("got %v", err)
				}
			}
			cancel(stop)
			if _, err := p.Wait(within(t)); err != nil {
				t.Fatal(err)
			}
			<-p.done
		})
	}
}

func TestInputToAProgramThatClosedItsStdinIsTold(t *testing.T) {
	table := newTable(t)
	p, a, err := table.Exec(t.Context(), withStdin(shell("exec <&-; echo ready; sleep 1000")), AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready", func() bool { return p.Info().Output[0].Offset > 0 })
	_, _ = p.WriteInput(t.Context(), 0, []byte("x")) // meets EPIPE
	if _, err := p.WriteInput(t.Context(), 1, []byte("x")); !errors.Is(err, ErrInputClosed) {
		t.Fatalf("got %v", err)
	}
	// A client that streams has sent more before it hears of that.
	if _, err := p.WriteInput(t.Context(), 1<<20, []byte("x")); !errors.Is(err, ErrInputClosed) {
		t.Fatalf("past what was accepted: got %v", err)
	}
	if err := p.CloseInput(2 << 20); err != nil {
		t.Fatalf("past what was accepted: CloseInput = %v", err)
	}
	for {
		event, err := a.Next(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if status, ok := event.(InputStatus); ok {
			if !status.Closed {
				t.Fatalf("got %+v", status)
			}
			break
		}
	}
	a.Close()
	if err := p.Signal(syscall.SIGKILL, spawn.Tree); err != nil {
		t.Fatal(err)
	}
}

// A pipe of the usual size halves the speed of a gigabyte; each command's would be a waste.
func TestPipeOfBigInputGrows(t *testing.T) {
	table := newTable(t)
	for size, want := range map[int]int{bigInput / 2: 64 << 10, 2 * bigInput: inputPipe} {
		p, err := table.Start(t.Context(), withStdin(Spec{Args: []string{"cat"}}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.WriteInput(within(t), 0, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the program has its input", func() bool { return !p.input.lost() })
		raw, err := p.input.file.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var capacity int
		var failed error
		err = raw.Control(func(fd uintptr) { capacity, failed = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0) })
		if err != nil || failed != nil || capacity != want {
			t.Errorf("after %d bytes the pipe has %d, want %d: %v, %v", size, capacity, want, err, failed)
		}
	}
}

// A client that hears nothing of its input sends no more of it.
func TestOutputWithoutEndHidesNoInputStatus(t *testing.T) {
	table := newTable(t)
	p, a, err := table.Exec(t.Context(), withStdin(shell("yes & exec cat >/dev/null")), AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	eventually(t, "the log is full", func() bool { return p.Info().Output[0].Offset >= outlog.DefaultLimit*3/4 })
	if _, err := a.WriteInput(within(t), 0, make([]byte, inputStep)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the program has read", func() bool { return p.input.status(a.writer).Accepted > 0 })
	for range 2 { // there is output for more than that
		event, err := a.Next(within(t))
		if err != nil {
			t.Fatal(err)
		}
		switch event := event.(type) {
		case InputStatus:
			return
		case Output:
			event.Release()
		}
	}
	t.Error("nothing was told of the input")
}

func TestProcessWithoutStdinTakesNone(t *testing.T) {
	table := newTable(t)
	p, err := table.Start(t.Context(), shell("sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.WriteInput(t.Context(), 0, []byte("x")); !errors.Is(err, ErrNoInput) {
		t.Fatalf("got %v", err)
	}
	if err := p.CloseInput(0); !errors.Is(err, ErrNoInput) {
		t.Fatalf("got %v", err)
	}
}

func TestInputGoesOnAfterTheReaderOfATerminalWentAway(t *testing.T) {
	table := newTable(t)
	p, err := table.Start(t.Context(), inTerminal("stty -echo; echo ready; read a; read b; echo $a$b", Size{}))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready", func() bool { return p.Info().Output[0].Offset > 0 })
	for i, text := range []string{"x\n", "y\n"} {
		if _, err := p.WriteInput(t.Context(), uint64(2*i), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Wait(within(t)); err != nil {
		t.Fatal(err)
	}
	a, err := p.Attach(AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if h := listen(t, a); !strings.Contains(h.text(Terminal), "xy") {
		t.Fatalf("got %q", h.text(Terminal))
	}
}
