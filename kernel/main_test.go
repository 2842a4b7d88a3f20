package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"guestd.internal/internal/account"
	"guestd.internal/internal/spawn"
)

// stateRoot is short, unlike t.TempDir: a socket's path has 107 bytes.
var stateRoot string

func TestMain(m *testing.M) {
	if role := os.Getenv("KERNEL_TEST_ROLE"); role != "" {
		fakeKernel(role)
		return
	}
	var err error
	if stateRoot, err = os.MkdirTemp("", "gk"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if err := os.Chmod(stateRoot, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fds := openDescriptors()
	code := m.Run()
	if code == 0 {
		code = checkLeaks(fds)
	}
	_ = os.RemoveAll(stateRoot)
	os.Exit(code)
}

func openDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	return len(entries)
}

// checkLeaks fails the run when goroutines of this package, descriptors,
// children or kernel folders are left.
func checkLeaks(fds int) int {
	var leak string
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if leak = findLeak(fds); leak == "" {
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, "leak:", leak)
	return 1
}

func findLeak(fds int) string {
	buf := make([]byte, 1<<20)
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")[1:] {
		if strings.Contains(stack, "guestd.internal/") && !strings.Contains(stack, "testing.") {
			return stack
		}
	}
	if children, _ := os.ReadFile("/proc/self/task/" + fmt.Sprint(os.Getpid()) + "/children"); len(children) > 0 {
		return "children " + string(children)
	}
	if n := openDescriptors(); n > fds+2 { // the poller's own
		return fmt.Sprintf("%d descriptors, %d at the start", n, fds)
	}
	if left, _ := filepath.Glob(stateRoot + "/*/*"); len(left) > 0 {
		return "folders " + strings.Join(left, " ")
	}
	return ""
}

// newContexts returns contexts with the machine's own Python kernel, closed at
// the test's end.
func newContexts(t *testing.T, change ...func(*Config)) *Contexts {
	t.Helper()
	spawner, err := spawn.New(spawn.Config{})
	if err != nil {
		t.Fatal(err)
	}
	state, err := os.MkdirTemp(stateRoot, "s")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Spawner:  spawner,
		Accounts: account.Open(""),
		StateDir: state,
		// What starts in the background would be in the way of most tests.
		ColdStart: true,
		Logger:    slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	}
	// The tests are about the machine's user, not about who runs as "user".
	cfg.DefaultUser = func() string { return fmt.Sprint(os.Getuid()) }
	for _, fn := range change {
		fn(&cfg)
	}
	cs, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cs.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(state + "/*"); len(left) > 0 {
			t.Errorf("folders left behind: %v", left)
		}
		if err := spawner.Close(); err != nil {
			t.Error(err)
		}
	})
	return cs
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("log: %s", p)
	return len(p), nil
}

// outcome is an execution's events, sorted.
type outcome struct {
	events    []Event
	accepted  *Accepted
	started   *Started
	startedAt time.Time
	stdout    string
	stderr    string
	results   []Result
	clears    []ClearOutput
	err       *Error
	gaps      []Gap
	finished  *Finished
}

// collect reads an execution to its end, and checks the events' contract.
func collect(t *testing.T, x *Execution) *outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	r := events(t, x, 0)
	defer r.Close()
	out := new(outcome)
	for {
		event, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("after %d events: %v", len(out.events), err)
		}
		out.add(t, event)
	}
	if out.finished == nil {
		t.Fatal("no Finished")
	}
	return out
}

func (o *outcome) add(t *testing.T, event Event) {
	t.Helper()
	if o.finished != nil {
		t.Errorf("%T after Finished", event.Body)
	}
	if n := len(o.events); n > 0 && event.Number <= o.events[n-1].Number {
		t.Errorf("number %d after %d", event.Number, o.events[n-1].Number)
	}
	o.events = append(o.events, event)
	switch body := event.Body.(type) {
	case Accepted:
		o.accepted = &body
	case Started:
		if o.started != nil {
			t.Error("two Started")
		}
		o.started, o.startedAt = &body, event.Time
	case Stdout:
		o.stdout += body.Text
	case Stderr:
		o.stderr += body.Text
	case Result:
		o.results = append(o.results, body)
	case ClearOutput:
		o.clears = append(o.clears, body)
	case Error:
		if o.err != nil {
			t.Error("two Errors")
		}
		o.err = &body
	case Gap:
		o.gaps = append(o.gaps, body)
	case Finished:
		o.finished = &body
		if o.started == nil && body.Duration != 0 || o.started != nil && event.Time.Sub(o.startedAt) < body.Duration {
			t.Errorf("a duration of %v at %v, started at %v", body.Duration, event.Time, o.startedAt)
		}
	}
}

// events attaches a reader from the given event on.
func events(t testing.TB, x *Execution, from uint64) *EventReader {
	t.Helper()
	r, err := x.Attach(ReaderOptions{From: from})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func start(t *testing.T, cs *Contexts, req Request) *Execution {
	t.Helper()
	x, err := cs.Execute(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func execute(t *testing.T, cs *Contexts, code string) *outcome {
	t.Helper()
	return collect(t, start(t, cs, Request{Code: code}))
}

// mustOK executes code that has to end well.
func mustOK(t *testing.T, cs *Contexts, code string) *outcome {
	t.Helper()
	out := execute(t, cs, code)
	if out.finished.Status != OK || out.err != nil {
		t.Fatalf("%q: %+v, error %+v", code, out.finished, out.err)
	}
	return out
}

func (e Result) part(mime string) string {
	for _, part := range e.Parts {
		if part.MIME == mime {
			return string(part.Data)
		}
	}
	return ""
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
