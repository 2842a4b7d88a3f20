package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"testing"
	"time"

	"guestd.internal/internal/account"
	"guestd.internal/internal/spawn"
)

var spawner *spawn.Spawner

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := playRole(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goroutines, descriptors := runtime.NumGoroutine(), countDescriptors()
	var err error
	if spawner, err = spawn.New(spawn.Config{}); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := spawner.Close(); err != nil {
		panic(err)
	}
	leaked := func() bool {
		return runtime.NumGoroutine() > goroutines || countDescriptors() > descriptors+2 // the poller's own
	}
	for deadline := time.Now().Add(10 * time.Second); leaked(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			os.Stderr.Write(buf[:runtime.Stack(buf, true)])
			fmt.Fprintf(os.Stderr, "leaked: %d goroutines, %d descriptors before; %d, %d after\n",
				goroutines, descriptors, runtime.NumGoroutine(), countDescriptors())
			os.Exit(1)
		}
	}
	if err := spawner.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func countDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	return len(entries)
}

// newTable returns a table that is closed, and collects everything, at the
// test's end.
func newTable(t testing.TB, change ...func(*Config)) *Table {
	t.Helper()
	cfg := Config{Spawner: spawner, Accounts: account.Open(""), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		DefaultUser: func() string { return fmt.Sprint(os.Geteuid()) }}
	for _, f := range change {
		f(&cfg)
	}
	table := NewTable(cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("test is over"))
		if err := table.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return table
}

// shell is the spec of a shell line.
func shell(line string) Spec { return Spec{Shell: &ShellLine{Line: line}} }

// within is a context that ends long after anything here is over.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errors.New("test hangs"))
	t.Cleanup(cancel)
	return ctx
}

// heard is what a reader was told.
type heard struct {
	output   map[Stream]*bytes.Buffer
	gaps     map[Stream]uint64
	resized  []Resized
	input    InputStatus
	exit     *Exit
	afterEnd int // bytes after Exited
}

func (h *heard) text(s Stream) string { return h.output[s].String() }

// listen reads an attachment to its end, acknowledging everything, and checks
// that offsets are without holes.
func listen(t testing.TB, a *Attachment) *heard {
	t.Helper()
	h := newHeard()
	if err := h.listen(within(t), a); err != nil {
		t.Fatal(err)
	}
	a.Close()
	return h
}

func newHeard() *heard {
	return &heard{output: map[Stream]*bytes.Buffer{Stdout: {}, Stderr: {}, Terminal: {}}, gaps: map[Stream]uint64{}}
}

func (h *heard) listen(ctx context.Context, a *Attachment) error {
	next := map[Stream]uint64{}
	for _, at := range a.Offsets() {
		next[at.Stream] = at.Offset
	}
	for {
		event, err := a.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch e := event.(type) {
		case Output:
			if e.Offset != next[e.Stream] || len(e.Data) == 0 {
				return fmt.Errorf("%v at %d, want %d", e.Stream, e.Offset, next[e.Stream])
			}
			next[e.Stream] += uint64(len(e.Data))
			h.output[e.Stream].Write(e.Data)
			if h.exit != nil {
				h.afterEnd += len(e.Data)
			}
			e.Release()
			if err := a.Ack(e.Stream, next[e.Stream]); err != nil {
				return err
			}
		case Gap:
			if e.From != next[e.Stream] || e.To <= e.From {
				return fmt.Errorf("%v: gap %d to %d, want from %d", e.Stream, e.From, e.To, next[e.Stream])
			}
			next[e.Stream] = e.To
			h.gaps[e.Stream] += e.To - e.From
		case Resized:
			h.resized = append(h.resized, e)
		case InputStatus:
			h.input = e
		case Exited:
			h.exit = &e.Exit
		}
	}
}

// exec runs spec to its exit, as heard by an attached reader.
func exec(t testing.TB, table *Table, spec Spec) *heard {
	t.Helper()
	_, a, err := table.Exec(within(t), spec, AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return listen(t, a)
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
