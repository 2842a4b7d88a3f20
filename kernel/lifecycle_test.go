package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func after(d time.Duration) *time.Duration { return &d }

// kernelPID waits until the only context's kernel runs, and returns its pid.
func kernelPID(t *testing.T, cs *Contexts) int {
	t.Helper()
	var pid int
	waitFor(t, "a kernel", func() bool {
		for _, info := range cs.List() {
			pid = info.PID
		}
		return pid != 0
	})
	return pid
}

// Whatever code does that an interrupt can end, its time-out is told when it is
// over, as such, and takes no state.
func TestTimeoutKeepsState(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) {
		cs := newContexts(t, use)
		mustOK(t, cs, "kept = 'kept'")
		for _, row := range interrupts {
			if row.lost || row.needs != "" && !hasModule(t, cs, row.needs) {
				continue
			}
			began := time.Now()
			out := collect(t, start(t, cs, Request{Code: "print('partial', flush=True)\n" + row.code, Timeout: after(300 * time.Millisecond)}))
			if out.finished.Status != TimedOut || out.finished.StateLost || out.err == nil || out.err.Name != ErrorTimeout {
				t.Fatalf("%s: %+v, error %+v", row.name, out.finished, out.err)
			}
			if !strings.HasPrefix(out.stdout, "partial\n") {
				t.Errorf("%s: output %.100q", row.name, out.stdout)
			}
			t.Logf("%-24s %v", row.name, time.Since(began))
			if out := mustOK(t, cs, "kept"); out.started.FreshKernel || out.results[0].part("text/plain") != "'kept'" {
				t.Errorf("after %s: %+v", row.name, out.started)
			}
		}
	})
}

// While an interrupt does nothing yet, the time-out is told.
func TestTimeoutIsToldBeforeTheCodeEnds(t *testing.T) {
	cs := newContexts(t)
	// How many numbers it takes to keep the interpreter in one call for three seconds.
	mustOK(t, cs, "import time\nbegan = time.monotonic()\n_ = sum(range(5_000_000))\nmany = int(3 / (time.monotonic() - began)) * 5_000_000")
	out := collect(t, start(t, cs, Request{Code: "_ = sum(range(many))", Timeout: after(200 * time.Millisecond)}))
	if out.err == nil || out.err.Name != ErrorTimeout || out.finished.Status != TimedOut || out.finished.StateLost {
		t.Fatalf("%+v, error %+v", out.finished, out.err)
	}
	end := out.events[len(out.events)-1].Time
	for _, event := range out.events {
		if _, ok := event.Body.(Error); ok && end.Sub(event.Time) < 100*time.Millisecond {
			t.Errorf("it was told %v before the end", end.Sub(event.Time))
		}
	}
}

func TestTimeoutOfStubbornCodeLosesState(t *testing.T) {
	t.Parallel() // mostly waits
	cs := newContexts(t)
	x := start(t, cs, Request{
		Code:    "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nimport time\nwhile True: time.sleep(0.01)",
		Timeout: after(200 * time.Millisecond),
	})
	r := events(t, x, 0)
	defer r.Close()
	var began time.Time
	for {
		event, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := event.Body.(Started); ok {
			began = event.Time
		}
		if e, ok := event.Body.(Error); ok {
			if late := event.Time.Sub(began) - 200*time.Millisecond; e.Name != ErrorTimeout || late > 2*time.Second {
				t.Errorf("%s came %v late", e.Name, late)
			}
			break
		}
	}
	out := collect(t, x)
	if out.finished.Status != TimedOut || !out.finished.StateLost {
		t.Errorf("%+v", out.finished)
	}
	next := mustOK(t, cs, "1")
	if !next.started.FreshKernel || next.started.KernelGeneration != 2 || !strings.Contains(next.started.PreviousEnd, "ignored interrupts") {
		t.Errorf("next: %+v", next.started)
	}
}

func TestInterrupt(t *testing.T) {
	cs := newContexts(t)
	mustOK(t, cs, "kept = 1")
	running := start(t, cs, Request{Code: "import time\nprint('on', flush=True)\ntime.sleep(60)"})
	queued := start(t, cs, Request{Code: "kept = 2"})
	behind := start(t, cs, Request{Code: "kept"})
	if _, err := cs.InterruptExecution(queued.ID()); err != nil {
		t.Fatal(err)
	}
	if out := collect(t, queued); out.finished.Status != Interrupted || out.started != nil {
		t.Errorf("queued: %+v", out.finished)
	}
	r := events(t, running, 0)
	for seen := false; !seen; {
		event, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, seen = event.Body.(Stdout)
	}
	r.Close()
	if id, err := cs.InterruptContext(running.ContextID()); err != nil || id != running.ID() {
		t.Fatalf("%q, %v", id, err)
	}
	out := collect(t, running)
	if out.finished.Status != Interrupted || out.finished.StateLost || out.err == nil || out.err.Name != "KeyboardInterrupt" {
		t.Errorf("running: %+v, error %+v", out.finished, out.err)
	}
	if out := collect(t, behind); out.finished.Status != OK || out.results[0].part("text/plain") != "1" {
		t.Errorf("behind: %+v", out.finished)
	}
	if id, err := cs.InterruptContext(running.ContextID()); err != nil || id != "" {
		t.Errorf("with nothing running: %q, %v", id, err)
	}
	if stopped, err := cs.InterruptExecution(running.ID()); err != nil || stopped {
		t.Errorf("after its end: %v, %v", stopped, err)
	}
}

func TestDeath(t *testing.T) {
	for name, test := range map[string]struct {
		code   string
		exit   int
		signal syscall.Signal
	}{
		"exit":         {"import os; os._exit(3)", 3, 0},
		"SIGKILL":      {"import os; os.kill(os.getpid(), 9)", -1, syscall.SIGKILL},
		"segfault":     {"import ctypes; ctypes.string_at(0)", -1, syscall.SIGSEGV},
		"forked child": {"import os, time\nif os.fork() == 0:\n  time.sleep(300)\nelse:\n  os.kill(os.getpid(), 9)", -1, syscall.SIGKILL},
	} {
		t.Run(name, func(t *testing.T) {
			cs := newContexts(t)
			mustOK(t, cs, "x = 1")
			out := collect(t, start(t, cs, Request{Code: "print('last words', flush=True)\nimport time; time.sleep(0.3)\n" + test.code}))
			f := out.finished
			if f.Status != KernelDied || !f.StateLost || f.ExitCode != test.exit || f.Signal != test.signal {
				t.Errorf("%+v", f)
			}
			if out.err == nil || out.err.Name != ErrorKernelDied || out.stdout != "last words\n" {
				t.Errorf("error %+v, output %q", out.err, out.stdout)
			}
			next := mustOK(t, cs, "'x' in globals()")
			if !next.started.FreshKernel || next.started.PreviousEnd == "" || next.started.KernelGeneration != 2 || next.started.ExecutionCount != 1 {
				t.Errorf("next: %+v", next.started)
			}
			if next.results[0].part("text/plain") != "False" {
				t.Error("x is still there")
			}
		})
	}
}

func TestDeathWhileIdle(t *testing.T) {
	cs := newContexts(t)
	mustOK(t, cs, "1")
	if err := syscall.Kill(kernelPID(t, cs), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the death to be noticed", func() bool { return cs.List()[0].State == NoKernel })
	if next := mustOK(t, cs, "1"); !next.started.FreshKernel || !strings.Contains(next.started.PreviousEnd, "signal 9") {
		t.Errorf("next: %+v", next.started)
	}
}

func TestExitFunction(t *testing.T) {
	cs := newContexts(t)
	x := start(t, cs, Request{Code: "print('bye'); exit()"})
	next := start(t, cs, Request{Code: "1"})
	if out := collect(t, x); out.finished.Status != OK || out.stdout != "bye\n" || !out.finished.StateLost {
		t.Errorf("%+v, output %q", out.finished, out.stdout)
	}
	if out := collect(t, next); out.finished.Status != OK || !out.started.FreshKernel || !strings.Contains(out.started.PreviousEnd, "exited with code 0") {
		t.Errorf("next: %+v %+v", out.finished, out.started)
	}
}

func TestCloseWhileBusy(t *testing.T) {
	cs := newContexts(t)
	mustOK(t, cs, "1")
	pid := kernelPID(t, cs)
	busy := start(t, cs, Request{Code: "while True: pass"})
	queued := start(t, cs, Request{Code: "1"})
	waitFor(t, "the loop to run", func() bool { return cs.List()[0].State == Busy })
	if err := cs.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*Execution{busy, queued} {
		if out := collect(t, x); out.finished.Status != KernelDied || out.err == nil {
			t.Errorf("%+v", out.finished)
		}
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		t.Error("the kernel is still there")
	}
	if _, err := cs.Execute(t.Context(), Request{Code: "1"}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestCloseWhileStarting(t *testing.T) {
	cs := newContexts(t)
	x := start(t, cs, Request{Code: "1"})
	waitFor(t, "the start", func() bool { return cs.List()[0].State == Starting })
	if err := cs.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if out := collect(t, x); out.finished.Status != KernelDied {
		t.Errorf("%+v", out.finished)
	}
}

func TestLateOutputBelongsToNobody(t *testing.T) {
	cs := newContexts(t)
	mustOK(t, cs, `
import threading, time
def late():
    time.sleep(0.3)
    print('late', flush=True)
    done.set()
done = threading.Event()
threading.Thread(target=late).start()`)
	out := mustOK(t, cs, "0")
	waitFor(t, "the late output", func() bool { return cs.List()[0].BackgroundBytes > 0 })
	if out.stdout != "" {
		t.Errorf("the next execution got %q", out.stdout)
	}
}

func TestInput(t *testing.T) {
	cs := newContexts(t)
	x := start(t, cs, Request{Code: "import getpass\na = input('name? ')\nb = getpass.getpass('secret? ')\nprint(a, b)\ninput()", AllowStdin: true})
	if err := cs.ReplyInput(x.ID(), 0, "too early"); !errors.Is(err, ErrNoInputWanted) {
		t.Errorf("a reply that nobody asked for: %v", err)
	}
	r := events(t, x, 0)
	defer r.Close()
	var asked []InputRequest
	replies := []func() error{
		func() error { return cs.ReplyInput(x.ID(), 0, "Ada é") },
		func() error { return cs.ReplyInput(x.ID(), 0, "pw") },
		func() error { return cs.EndInput(x.ID(), 0) },
	}
	for {
		event, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if request, ok := event.Body.(InputRequest); ok {
			if err := replies[len(asked)](); err != nil {
				t.Fatal(err)
			}
			asked = append(asked, request)
		}
	}
	want := []InputRequest{{Prompt: "name? "}, {Prompt: "secret? ", Password: true}, {}}
	if fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("asked %+v", asked)
	}
	if out := collect(t, x); out.stdout != "Ada é pw\n" || out.err == nil || out.err.Name != "EOFError" {
		t.Errorf("output %q, error %+v", out.stdout, out.err)
	}
}

// A question comes after all that was shown before it, though over another connection.
func TestQuestionsComeAfterWhatWasShownBefore(t *testing.T) {
	const rounds = 40
	cs := newContexts(t)
	x := start(t, cs, Request{Code: fmt.Sprintf("for i in range(%d):\n  print(i)\n  display(i)\n  input()", rounds), AllowStdin: true})
	r := events(t, x, 0)
	defer r.Close()
	for round, shown := 0, 0; round < rounds; {
		event, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		switch event.Body.(type) {
		case Result:
			shown++
		case InputRequest:
			if shown != round+1 {
				t.Errorf("question %d comes after %d displays", round, shown)
			}
			round++
			if err := cs.ReplyInput(x.ID(), 0, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestPanicCostsTheKernelOnly(t *testing.T) {
	cs := newContexts(t)
	mustOK(t, cs, "x = 1")
	running := start(t, cs, Request{Code: "while True: pass"})
	waitFor(t, "the loop to run", func() bool { return cs.List()[0].State == Busy })
	c, err := cs.context(running.ContextID())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.(*codeContext).call(func() { panic("on purpose") }); err != nil {
		t.Fatal(err)
	}
	if out := collect(t, running); out.finished.Status != KernelDied || !out.finished.StateLost {
		t.Errorf("running: %+v", out.finished)
	}
	if next := mustOK(t, cs, "'x' in globals()"); !next.started.FreshKernel || next.results[0].part("text/plain") != "False" {
		t.Errorf("next: %+v", next.started)
	}
}

// A kernel that is stopped, as by a debugger or a paused machine, loses nothing.
func TestStoppedKernelGoesOn(t *testing.T) {
	cs := newContexts(t)
	mustOK(t, cs, "1")
	pid := kernelPID(t, cs)
	x := start(t, cs, Request{Code: "import time\nfor i in range(300):\n  print(i, flush=True)\n  time.sleep(0.001)"})
	waitFor(t, "output", func() bool { return x.log.retained() > 2*entryOverhead+100 })
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(700 * time.Millisecond) // longer than any grace that could end the execution
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if out := collect(t, x); out.finished.Status != OK || out.stdout != numbered(300) {
		t.Errorf("%+v, %d bytes", out.finished, len(out.stdout))
	}
}

func TestQueueIsBounded(t *testing.T) {
	cs := newContexts(t, withFake(t, "mute"))
	for range MaxQueue {
		start(t, cs, Request{Code: "1"})
	}
	if _, err := cs.Execute(t.Context(), Request{Code: "1"}); !errors.Is(err, ErrQueueFull) {
		t.Errorf("more executions than fit: %v", err)
	}
	cs = newContexts(t, withFake(t, "mute"))
	large := strings.Repeat("#", MaxCode-1) + "1"
	for range maxQueuedCode / MaxCode {
		start(t, cs, Request{Code: large})
	}
	if _, err := cs.Execute(t.Context(), Request{Code: large}); !errors.Is(err, ErrQueueFull) {
		t.Errorf("more code than fits: %v", err)
	}
}

// A stock ipykernel sometimes dies of a SIGINT, or sends no reply; whatever it
// does, each execution ends, says how, and the next one runs.
func TestInterruptStorm(t *testing.T) {
	cs := newContexts(t)
	mustOK(t, cs, "1")
	random := rand.New(rand.NewPCG(3, 4))
	ends := map[Status]int{}
	for i := range 60 {
		x := start(t, cs, Request{Code: "for i in range(20000): pass\nprint('through')"})
		time.Sleep(time.Duration(random.IntN(6000)) * time.Microsecond)
		if _, err := cs.InterruptExecution(x.ID()); err != nil {
			t.Fatal(err)
		}
		out := collect(t, x)
		ends[out.finished.Status]++
		if f := out.finished; f.Status == TimedOut || f.StateLost != (f.Status == KernelDied) {
			t.Errorf("%d: %+v", i, f)
		}
		if next := execute(t, cs, "6*7"); next.finished.Status != OK && next.finished.Status != KernelDied {
			t.Errorf("after %d: %+v, error %+v", i, next.finished, next.err)
		}
	}
	t.Logf("ends: %v", ends)
}
