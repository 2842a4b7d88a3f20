package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"guestd.internal/internal/spawn"
)

func create(t *testing.T, cs *Contexts, req ContextRequest) Info {
	t.Helper()
	info, err := cs.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// valueOf executes code in a context, which has to end well, and returns its value
// as text.
func valueOf(t *testing.T, cs *Contexts, contextID, code string) string {
	t.Helper()
	out := collect(t, start(t, cs, Request{ContextID: contextID, Code: code}))
	if out.finished.Status != OK || len(out.results) == 0 {
		t.Fatalf("%q: %+v, error %+v", code, out.finished, out.err)
	}
	return out.results[len(out.results)-1].part("text/plain")
}

func TestContextIsAsItWasAskedFor(t *testing.T) {
	t.Parallel()
	cs := newContexts(t)
	dir := t.TempDir()
	const look = "import os; (os.getcwd(), os.environ.get('KEY'), os.environ.get('LANG'))"
	info := create(t, cs, ContextRequest{
		Dir: dir, Name: "name", Labels: map[string]string{"a": "1"},
		Env: []spawn.EnvVar{{Name: "KEY", Value: "it's"}, {Name: "LANG", Unset: true}},
	})
	if info.State != Idle || info.PID == 0 || info.Generation != 1 || info.Dir != dir || info.Name != "name" || info.IsDefault || info.Language != python {
		t.Errorf("%+v", info)
	}
	want := fmt.Sprintf(`('%s', "it's", None)`, dir)
	if got := valueOf(t, cs, info.ID, look); got != want {
		t.Errorf("it has %s, want %s", got, want)
	}
	valueOf(t, cs, info.ID, "os.environ['KEY'] = 'changed'; os.chdir('/'); kept = 1; kept")
	again, err := cs.Restart(t.Context(), info.ID)
	if err != nil || again.State != Idle || again.Generation != 2 || again.PID == info.PID {
		t.Fatalf("restarted: %+v, %v", again, err)
	}
	if got := valueOf(t, cs, info.ID, look); got != want {
		t.Errorf("restarted it has %s, want %s", got, want)
	}
	// The default context is another one.
	if out := mustOK(t, cs, "'kept' in globals()"); out.results[0].part("text/plain") != "False" {
		t.Error("contexts share variables")
	}
	page, next, err := cs.Page(Filter{Labels: map[string]string{"a": "1"}})
	if err != nil || len(page) != 1 || page[0].ID != info.ID || next != "" {
		t.Errorf("by label: %+v, %q, %v", page, next, err)
	}
	page, next, err = cs.Page(Filter{Size: 1})
	if err != nil || len(page) != 1 || page[0].ID != info.ID || next == "" {
		t.Errorf("the first page: %+v, %q, %v", page, next, err)
	}
	page, next, err = cs.Page(Filter{Size: 1, Token: next})
	if err != nil || len(page) != 1 || !page[0].IsDefault || next != "" {
		t.Errorf("the second page: %+v, %q, %v", page, next, err)
	}
	if page, _, err = cs.Page(Filter{States: []State{Busy}}); err != nil || len(page) != 0 {
		t.Errorf("busy ones: %+v, %v", page, err)
	}
}

func TestRestartWhileBusy(t *testing.T) {
	cs := newContexts(t)
	id := create(t, cs, ContextRequest{}).ID
	busy := start(t, cs, Request{ContextID: id, Code: "kept = 1\nwhile True: pass"})
	queued := start(t, cs, Request{ContextID: id, Code: "'kept' in globals()"})
	waitFor(t, "the loop to run", func() bool { return cs.List()[0].State == Busy })
	if info, err := cs.Restart(t.Context(), id); err != nil || info.Generation != 2 {
		t.Fatalf("%+v, %v", info, err)
	}
	if out := collect(t, busy); out.finished.Status != KernelDied || !out.finished.StateLost || out.err == nil || !strings.Contains(out.err.Value, "restarted") {
		t.Errorf("what ran: %+v, %+v", out.finished, out.err)
	}
	out := collect(t, queued)
	if out.finished.Status != OK || !out.started.FreshKernel || !strings.Contains(out.started.PreviousEnd, "restarted") || out.results[0].part("text/plain") != "False" {
		t.Errorf("what was queued: %+v, %+v", out.finished, out.started)
	}
}

func TestDeleteEndsAll(t *testing.T) {
	cs := newContexts(t)
	info := create(t, cs, ContextRequest{})
	busy := start(t, cs, Request{ContextID: info.ID, Code: "import subprocess\nsubprocess.Popen(['sleep', '600'])\nwhile True: pass"})
	queued := start(t, cs, Request{ContextID: info.ID, Code: "1"})
	waitFor(t, "the loop to run", func() bool { return cs.List()[0].State == Busy })
	if err := cs.Delete(t.Context(), info.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", info.PID)); err == nil {
		t.Error("the kernel is still there")
	}
	for _, x := range []*Execution{busy, queued} {
		if out := collect(t, x); out.finished.Status != KernelDied || out.err == nil || !strings.Contains(out.err.Value, "deleted") {
			t.Errorf("%+v, error %+v", out.finished, out.err)
		}
		if stopped, err := cs.InterruptExecution(x.ID()); err != nil || stopped {
			t.Errorf("interrupting it now: %v, %v", stopped, err)
		}
		if err := cs.ReplyInput(x.ID(), 0, ""); !errors.Is(err, ErrNoInputWanted) {
			t.Errorf("answering it now: %v", err)
		}
	}
	_, err := cs.Execute(t.Context(), Request{ContextID: info.ID, Code: "1"})
	for _, err := range []error{err, cs.Delete(t.Context(), info.ID)} {
		if !errors.Is(err, ErrContextNotFound) {
			t.Errorf("using it now: %v", err)
		}
	}
	// A language's default context is made anew.
	first := start(t, cs, Request{Code: "x = 1"})
	collect(t, first)
	if err := cs.Delete(t.Context(), first.ContextID()); err != nil {
		t.Fatal(err)
	}
	if out := mustOK(t, cs, "'x' in globals()"); out.results[0].part("text/plain") != "False" || out.started.FreshKernel {
		t.Errorf("%+v", out.started)
	}
}

func TestContextsAreLimited(t *testing.T) {
	cs := newContexts(t)
	for range MaxContexts {
		create(t, cs, ContextRequest{Language: "sh"})
	}
	if _, err := cs.Create(t.Context(), ContextRequest{Language: "bash"}); !errors.Is(err, ErrTooManyContexts) || !strings.Contains(err.Error(), "64") {
		t.Errorf("one more: %v", err)
	}
	if _, err := cs.Execute(t.Context(), Request{Code: "1"}); !errors.Is(err, ErrTooManyContexts) {
		t.Errorf("a default one more: %v", err)
	}
	if err := cs.Delete(t.Context(), cs.List()[0].ID); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "room", func() bool {
		_, err := cs.Create(t.Context(), ContextRequest{Language: "bash"})
		return err == nil
	})
}

func TestContextThatDoesNotGetReadyIsGone(t *testing.T) {
	cs := newContexts(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrUnexpectedEOF)
	if _, err := cs.Create(ctx, ContextRequest{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cancelled: %v", err)
	}
	var started *spawn.StartError
	if _, err := cs.Create(t.Context(), ContextRequest{Dir: "/no/such"}); !errors.As(err, &started) || started.Reason != spawn.CwdNotFound || started.Path != "/no/such" {
		t.Errorf("without its folder: %v", err)
	}
	if _, err := cs.Create(t.Context(), ContextRequest{Language: "cobol"}); !errors.As(err, new(*LanguageNotFoundError)) {
		t.Errorf("of no language: %v", err)
	}
	if left := cs.List(); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

func TestContextRequestsAreChecked(t *testing.T) {
	cs := newContexts(t)
	for field, req := range map[string]ContextRequest{
		"language":    {Language: strings.Repeat("x", 200)},
		"user":        {User: "\x00"},
		"cwd":         {Dir: "/\x00"},
		"env[1].name": {Env: []spawn.EnvVar{{Name: "A"}, {Name: "B="}}},
		"name":        {Name: strings.Repeat("x", 129)},
		"labels":      {Labels: map[string]string{"": "x"}},
	} {
		_, err := cs.Create(t.Context(), req)
		var invalid *InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestWatch(t *testing.T) {
	cs := newContexts(t)
	id := create(t, cs, ContextRequest{}).ID
	w, err := cs.Watch(id)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	x := start(t, cs, Request{ContextID: id, Code: `
import threading, time, sys
def late():
    time.sleep(0.3)
    print("late")
    print("later", file=sys.stderr)
threading.Thread(target=late).start()`})
	if out := collect(t, x); out.stdout != "" {
		t.Errorf("output %q", out.stdout)
	}
	var states []State
	texts := map[Stream]string{}
	for texts[StreamStdout] != "late\n" || texts[StreamStderr] != "later\n" {
		event, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if out := event.Output; out != nil {
			texts[out.Stream] += out.Text
			if out.ExecutionID != x.ID() || out.Gap != 0 {
				t.Errorf("%+v is of %s", out, x.ID())
			}
		} else {
			states = append(states, event.Info.State)
		}
	}
	if fmt.Sprint(states) != fmt.Sprint([]State{Idle, Busy, Idle}) {
		t.Errorf("states %v", states)
	}
	if err := cs.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = w.Next(t.Context())
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("after its end: %v", err)
	}
}

func TestWatchersLoseOldOutputOnly(t *testing.T) {
	var ws watchers
	line := strings.Repeat("x", 1000)
	for i := range 1000 {
		ws.tell(WatchEvent{Output: &BackgroundOutput{ExecutionID: fmt.Sprint(i), Stream: StreamStdout, Text: line}})
	}
	ws.tell(WatchEvent{Output: &BackgroundOutput{Stream: StreamStderr, Text: "é"}})
	w := ws.watch(Info{ID: "c"})
	for i := range 2 * maxChanges {
		ws.tell(WatchEvent{Info: &Info{Queued: i}})
	}
	ws.end(ErrClosed)
	var got, gap uint64
	queued, changes := 0, 0
	for {
		event, err := w.Next(t.Context())
		if err != nil {
			if !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			break
		}
		if event.Info != nil {
			queued = event.Info.Queued
			changes++
			continue
		}
		if event.Output.Stream == StreamStdout {
			got += uint64(len(event.Output.Text))
			gap += event.Output.Gap
		} else if event.Output.Gap != 0 {
			t.Errorf("a gap of %d in stderr", event.Output.Gap)
		}
	}
	if got+gap != 1_000_000 || got > maxWatched || got < maxWatched/2 {
		t.Errorf("%d bytes and a gap of %d, of 1,000,000", got, gap)
	}
	if queued != 2*maxChanges-1 || changes > maxChanges {
		t.Errorf("%d changes, the last one %d", changes, queued)
	}
}

func TestSurroundingsAreForOneExecution(t *testing.T) {
	cs := newContexts(t)
	dir := t.TempDir()
	const look = "import os; (os.getcwd(), os.environ.get('ONCE'), os.environ.get('HOME'))"
	before := valueOf(t, cs, "", look)
	history := valueOf(t, cs, "", "names = set(globals()); len(In)")
	own := func(code string) Request {
		return Request{Code: code, Dir: dir, Timeout: after(time.Second), Env: []spawn.EnvVar{
			{Name: "ONCE", Value: "a \"b\" 'c' \xff\n"}, {Name: "HOME", Unset: true}}}
	}
	for name, test := range map[string]struct {
		code   string
		status Status
	}{
		"value":     {look, OK},
		"error":     {"1/0", Failed},
		"chdir":     {"os.chdir('/'); os.environ['ONCE'] = 'x'; os.environ['HOME'] = '/'", OK},
		"time-out":  {"import time; time.sleep(60)", TimedOut},
		"magic":     {"%%sh\nprintf '%s %s' \"$PWD\" \"${HOME-none}\"", OK},
		"shadowing": {"exec = json = bytes = None; os.environ.get('ONCE')[:1]", OK},
	} {
		out := collect(t, start(t, cs, own(test.code)))
		if out.finished.Status != test.status || out.finished.StateLost {
			t.Errorf("%s: %+v, error %+v", name, out.finished, out.err)
		}
		switch name {
		case "value":
			if want := fmt.Sprintf(`('%s', 'a "b" \'c\' \udcff\n', None)`, dir); strings.Join(strings.Fields(out.results[0].part("text/plain")), " ") != want {
				t.Errorf("it has %s, want %s", out.results[0].part("text/plain"), want)
			}
		case "error":
			if trace := strings.Join(out.err.Traceback, "\n"); !strings.Contains(trace, "1 1/0") {
				t.Errorf("the line has another number: %s", trace)
			}
		case "magic":
			if out.stdout != dir+" none" {
				t.Errorf("the shell has %q", out.stdout)
			}
		}
		if now := valueOf(t, cs, "", look); now != before {
			t.Errorf("after %s it has %s, want %s", name, now, before)
		}
	}
	// In the history is what the user has run, and nothing else.
	if out := valueOf(t, cs, "", "sorted(set(globals()) - names - {'names', 'exec', 'json', 'bytes', 'time'} - {n for n in globals() if n.startswith('_')})"); out != "[]" {
		t.Errorf("names left behind: %s", out)
	}
	if now := valueOf(t, cs, "", "len(In)"); now != fmt.Sprint(atoi(t, history)+2*6+2) {
		t.Errorf("the history has %s entries, and had %s", now, history)
	}
}

func atoi(t *testing.T, s string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(s, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestFolderThatCannotBeEnteredChangesNothing(t *testing.T) {
	cs := newContexts(t)
	before := valueOf(t, cs, "", "import os; os.getcwd()")
	var started *spawn.StartError
	if _, err := cs.Execute(t.Context(), Request{Code: "1", Dir: "no/such"}); !errors.As(err, &started) || started.Reason != spawn.CwdNotFound {
		t.Errorf("of a missing one: %v", err)
	}
	// It goes while the execution waits.
	dir := t.TempDir() + "/gone"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	hold := start(t, cs, Request{Code: fmt.Sprintf("import time\nwhile os.path.exists(%q): time.sleep(0.01)", dir)})
	x := start(t, cs, Request{Code: "ran = 1", Dir: dir, Env: []spawn.EnvVar{{Name: "ONCE", Value: "x"}}})
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	collect(t, hold)
	out := collect(t, x)
	if out.finished.Status != Failed || out.err == nil || out.err.Name != "FileNotFoundError" || out.started != nil {
		t.Errorf("of one that goes: %+v, %+v", out.finished, out.err)
	}
	if got := valueOf(t, cs, "", "(os.getcwd(), 'ONCE' in os.environ, 'ran' in globals())"); got != "("+before+", False, False)" {
		t.Errorf("after it: %s", got)
	}
	// And while it runs.
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	out = collect(t, start(t, cs, Request{Code: "os.rmdir(os.getcwd())", Dir: dir}))
	if out.finished.Status != OK {
		t.Errorf("of one that it removes: %+v, %+v", out.finished, out.err)
	}
	if got := valueOf(t, cs, "", "os.getcwd()"); got != before {
		t.Errorf("after it: %s", got)
	}
}

func TestInterruptBeforeItBegins(t *testing.T) {
	cs := newContexts(t)
	mustOK(t, cs, "import os")
	random := 0
	for i := range 30 {
		x := start(t, cs, Request{Code: "import time; time.sleep(60)", Env: []spawn.EnvVar{{Name: "ONCE", Value: "x"}}})
		time.Sleep(time.Duration(i%10) * time.Millisecond)
		stopped, err := cs.InterruptExecution(x.ID())
		if err != nil || !stopped {
			t.Fatalf("%v, %v", stopped, err)
		}
		out := collect(t, x)
		if out.finished.Status != Interrupted || out.finished.StateLost {
			t.Fatalf("%+v, error %+v", out.finished, out.err)
		}
		if out.started == nil {
			random++
		}
		if got := valueOf(t, cs, "", "'ONCE' in os.environ"); got != "False" {
			t.Fatal("the variable is left")
		}
	}
	t.Logf("%d of 30 before they began", random)
}

func TestCompleteAndInspect(t *testing.T) {
	cs := newContexts(t)
	id := create(t, cs, ContextRequest{}).ID
	valueOf(t, cs, id, "number = 5\ndef grüße(x):\n  'Says hello.'\nnumber")
	completion, err := cs.Complete(t.Context(), id, Cursor{Code: "é = num + 1", At: 7})
	if err != nil || len(completion.Matches) == 0 || completion.Matches[0] != "number" || completion.Start != 4 || completion.End != 7 {
		t.Errorf("%+v, %v", completion, err)
	}
	parts, err := cs.Inspect(t.Context(), id, Cursor{Code: "grüße", At: 3}, false)
	if text := (Result{Parts: parts}).part("text/plain"); err != nil || !strings.Contains(text, "Says hello.") || strings.Contains(text, "\x1b") {
		t.Errorf("%q, %v", text, err)
	}
	if parts, err := cs.Inspect(t.Context(), id, Cursor{Code: "nothing", At: 3}, true); err != nil || len(parts) != 0 {
		t.Errorf("of nothing: %+v, %v", parts, err)
	}
	for _, at := range []Cursor{{"x", 2}, {"x", -1}, {"\xff", 0}} {
		if _, err := cs.Complete(t.Context(), id, at); !errors.As(err, new(*InvalidError)) {
			t.Errorf("%+v: %v", at, err)
		}
	}
	// Busy kernels answer later, and those that end never.
	x := start(t, cs, Request{ContextID: id, Code: "import time, os; time.sleep(0.5)"})
	if _, err := cs.Complete(t.Context(), id, Cursor{Code: "nu", At: 2}); err != nil {
		t.Errorf("while busy: %v", err)
	}
	collect(t, x)
	x = start(t, cs, Request{ContextID: id, Code: "time.sleep(0.3); os._exit(1)"})
	waitFor(t, "the code", func() bool { return cs.List()[0].State == Busy })
	if _, err := cs.Complete(t.Context(), id, Cursor{Code: "nu", At: 2}); !errors.Is(err, ErrKernelEnded) {
		t.Errorf("of a kernel that dies: %v", err)
	}
	collect(t, x)
	if _, err := cs.Complete(t.Context(), create(t, cs, ContextRequest{Language: "bash"}).ID, Cursor{}); !errors.Is(err, ErrNotSupported) {
		t.Errorf("of bash: %v", err)
	}
}
