package kernel

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"
)

// numbered is what 'for i in range(n): print(i)' prints.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strconv.Itoa(i))
		b.WriteByte('\n')
	}
	return b.String()
}

// Each print is a message of its own, the reader is slower than the kernel, and
// the log takes a tenth of the output: nothing may be lost.
func TestSlowReaderHoldsTheKernelBack(t *testing.T) {
	cs := newContexts(t, func(cfg *Config) { cfg.OutputLimit = 16 << 10 })
	x := start(t, cs, Request{Code: "for i in range(20000): print(i, flush=True)", Timeout: after(0)})
	r := events(t, x, 0)
	defer r.Close()
	var got strings.Builder
	for {
		event, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch body := event.Body.(type) {
		case Stdout:
			got.WriteString(body.Text)
			time.Sleep(500 * time.Microsecond)
		case Gap:
			t.Errorf("gap %+v", body)
		case Finished:
			if body.Status != OK || body.OutputIncomplete {
				t.Errorf("%+v", body)
			}
		}
	}
	if got.String() != numbered(20000) {
		t.Errorf("%d bytes, want %d", got.Len(), len(numbered(20000)))
	}
}

func TestStoppedReaderStopsThePrinting(t *testing.T) {
	const limit = 256 << 10
	cs := newContexts(t, func(cfg *Config) { cfg.OutputLimit = limit })
	x := start(t, cs, Request{Code: "while True: print('x' * 1000, flush=True)", Timeout: after(0)})
	r := events(t, x, 0)
	defer r.Close()
	waitFor(t, "the log to be full", func() bool { blocked, _ := x.log.blocked(); return blocked })
	if n := x.log.retained(); n > 2*limit {
		t.Errorf("%d bytes are kept", n)
	}
	if _, err := cs.InterruptExecution(x.ID()); err != nil { // gets through nevertheless
		t.Fatal(err)
	}
	r.Close()
	if out := collect(t, x); out.finished.Status != Interrupted || out.finished.StateLost {
		t.Errorf("%+v", out.finished)
	}
}

func TestVanishedClientStopsNothing(t *testing.T) {
	cs := newContexts(t, func(cfg *Config) { cfg.OutputLimit, cfg.ReconnectGrace = 64<<10, -1 })
	x := start(t, cs, Request{Code: "for i in range(100000): print(i)\n'the end'"})
	r := events(t, x, 0)
	if _, err := r.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if _, err := r.Next(t.Context()); err != nil && !errors.Is(err, ErrReaderClosed) {
		t.Error(err)
	}
	<-x.Done()
	out := collect(t, x)
	if out.finished.Status != OK || len(out.results) != 1 {
		t.Fatalf("%+v", out.finished)
	}
	var missing uint64
	for _, gap := range out.gaps {
		missing += gap.Bytes
	}
	want := numbered(100000)
	if missing == 0 || missing+uint64(len(out.stdout)) != uint64(len(want)) || !strings.HasSuffix(want, out.stdout) {
		t.Errorf("%d bytes and gaps of %d, want %d and the last ones", len(out.stdout), missing, len(want))
	}
}

// An execution's end waits for what another thread of the kernel is just sending.
func TestOutputThatIsBeingSentComesBeforeTheEnd(t *testing.T) {
	cs := newContexts(t)
	for _, stream := range []string{"stdout", "stderr"} {
		out := execute(t, cs, fmt.Sprintf(`
import sys, threading, time
thread, main, begun = sys.%[1]s.pub_thread, threading.get_ident(), threading.Event()
send = thread.send_multipart
def slowly(*args, **kwargs):
    if threading.get_ident() != main:
        begun.set()
        time.sleep(0.5)
    return send(*args, **kwargs)
thread.send_multipart = slowly
print("late", file=sys.%[1]s)
assert begun.wait(30)
thread.send_multipart = send
`, stream))
		if text := out.stdout + out.stderr; out.finished.Status != OK || text != "late\n" {
			t.Errorf("%s: %q, %+v", stream, text, out.finished)
		}
	}
}

func TestReaderComesBackWithinTheGrace(t *testing.T) {
	cs := newContexts(t, func(cfg *Config) { cfg.OutputLimit = 16 << 10 })
	x := start(t, cs, Request{Code: "for i in range(5000): print(i, flush=True)"})
	var got strings.Builder
	var last uint64
	for finished := false; !finished; {
		r := events(t, x, last+1)
		for range 5 {
			event, err := r.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if last++; event.Number != last {
				t.Fatalf("event %d, want %d: %+v", event.Number, last, event.Body)
			}
			if out, ok := event.Body.(Stdout); ok {
				got.WriteString(out.Text)
			}
			if _, finished = event.Body.(Finished); finished {
				break
			}
		}
		r.Close()
	}
	if got.String() != numbered(5000) {
		t.Errorf("%d bytes, want %d", got.Len(), len(numbered(5000)))
	}
}

func TestReplayAndRequestID(t *testing.T) {
	cs := newContexts(t)
	req := Request{Code: "print('once')", RequestID: "r-1"}
	first := start(t, cs, req)
	again := start(t, cs, req)
	if first != again {
		t.Error("a repeated request made a second execution")
	}
	one, two := collect(t, first), collect(t, again)
	if len(one.events) != len(two.events) || one.stdout != "once\n" || two.stdout != "once\n" {
		t.Errorf("replay %+v, first %+v", two.events, one.events)
	}
	if third := start(t, cs, req); third != first {
		t.Error("a request repeated after the end made a second execution")
	}
	if _, err := cs.Execute(t.Context(), Request{Code: "2", RequestID: "r-1"}); !errors.Is(err, ErrRequestIDReused) {
		t.Errorf("another request with the id: %v", err)
	}
	if x, err := cs.Execution(first.ID()); err != nil || x != first {
		t.Errorf("by id: %v, %v", x, err)
	}
}

func TestExecutionsAreForgotten(t *testing.T) {
	cs := newContexts(t, withFake(t, "kernel"), func(cfg *Config) { cfg.Retention = 50 * time.Millisecond })
	for range 3 {
		x := start(t, cs, Request{Code: "nothing", RequestID: "same"})
		<-x.Done()
		waitFor(t, "it to be forgotten", func() bool {
			_, err := cs.Execution(x.ID())
			return errors.Is(err, ErrExecutionNotFound)
		})
	}
}

// What finished executions hold together is bounded: the oldest lose their output,
// and say so.
func TestFinishedExecutionsShareALimit(t *testing.T) {
	const each = 4_000_000
	cs := newContexts(t)
	var all []*Execution
	for range maxFinishedBytes/each + 3 {
		x := start(t, cs, Request{Language: "bash", Code: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", each)})
		if out := collect(t, x); out.finished.Status != OK || len(out.stdout) != each {
			t.Fatalf("%+v, %d bytes", out.finished, len(out.stdout))
		}
		all = append(all, x)
	}
	waitFor(t, "the oldest to be emptied", func() bool { return all[1].log.retained() < each })
	total := 0
	for _, x := range all {
		total += x.log.retained()
	}
	cs.mu.Lock()
	if total > maxFinishedBytes || cs.finishedBytes != total {
		t.Errorf("they hold %d bytes, %d are counted, at most %d", total, cs.finishedBytes, maxFinishedBytes)
	}
	cs.mu.Unlock()
	if out := collect(t, all[0]); len(out.gaps) != 1 || out.gaps[0].Bytes != each || out.finished.Status != OK {
		t.Errorf("the oldest: gaps %+v, %+v", out.gaps, out.finished)
	}
	if out := collect(t, all[len(all)-1]); len(out.gaps) != 0 || len(out.stdout) != each {
		t.Errorf("the newest: gaps %+v, %d bytes", out.gaps, len(out.stdout))
	}
}

func TestRefusedRequests(t *testing.T) {
	cs := newContexts(t)
	for name, test := range map[string]struct {
		req   Request
		field string
	}{
		"empty code":      {Request{}, "code"},
		"white space":     {Request{Code: " \n\t"}, "code"},
		"invalid UTF-8":   {Request{Code: "print('\xff')"}, "code"},
		"too long":        {Request{Code: strings.Repeat("#", MaxCode+1)}, "code"},
		"negative time":   {Request{Code: "1", Timeout: after(-1)}, "timeout"},
		"bad request id":  {Request{Code: "1", RequestID: "é"}, "request_id"},
		"long request id": {Request{Code: "1", RequestID: strings.Repeat("a", 129)}, "request_id"},
	} {
		var invalid *InvalidError
		if _, err := cs.Execute(t.Context(), test.req); !errors.As(err, &invalid) || invalid.Field != test.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := cs.Execute(t.Context(), Request{Code: "1", ContextID: "c-none"}); !errors.Is(err, ErrContextNotFound) {
		t.Errorf("no such context: %v", err)
	}
	if _, err := cs.Execute(t.Context(), Request{Code: "1", Language: "cobol"}); !errors.As(err, new(*LanguageNotFoundError)) {
		t.Errorf("no such language: %v", err)
	}
	if _, err := cs.Execution("x-none"); !errors.Is(err, ErrExecutionNotFound) {
		t.Errorf("no such execution: %v", err)
	}
	if _, err := cs.Get("c-none"); !errors.Is(err, ErrContextNotFound) {
		t.Errorf("no such context: %v", err)
	}
	if n := len(cs.List()); n != 0 {
		t.Errorf("refused requests left %d contexts", n)
	}
}

func TestOtherUser(t *testing.T) {
	cs := newContexts(t, func(cfg *Config) { cfg.DefaultUser = func() string { return "no-such-user" } })
	if _, err := cs.Execute(t.Context(), Request{Code: "1"}); err == nil {
		t.Error("an unknown default user was served")
	}
}
