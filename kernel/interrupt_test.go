package kernel

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// interrupts is what a kernel does about an interrupt, by what it is doing.
var interrupts = []struct {
	name, code string
	errors     []string // one of these is the error; "" is none
	lost       bool     // the kernel has to be killed
	needs      string   // a Python module
}{
	{name: "loop", code: "while True: pass", errors: []string{"KeyboardInterrupt"}},
	{name: "numpy", code: "import numpy\na = numpy.ones((300, 300))\nwhile True: a = a @ a / 300", errors: []string{"KeyboardInterrupt"}, needs: "numpy"},
	{name: "regular expression", code: "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')", errors: []string{"KeyboardInterrupt"}},
	{name: "sleep", code: "import time\ntime.sleep(600)", errors: []string{"KeyboardInterrupt"}},
	{name: "event", code: "import threading\nthreading.Event().wait()", errors: []string{"KeyboardInterrupt"}},
	{name: "lock", code: "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()", errors: []string{"KeyboardInterrupt"}},
	{name: "subprocess", code: "import subprocess\nsubprocess.run(['sleep', '600'])", errors: []string{"KeyboardInterrupt"}},
	{name: "os.system", code: "import os\n_ = os.system('sleep 600')", errors: []string{""}},
	{name: "shell magic", code: "!sleep 600", errors: []string{"", "KeyboardInterrupt"}},
	{name: "C code", code: "_ = sum(range(20_000_000))\nimport time\ntime.sleep(600)", errors: []string{"KeyboardInterrupt"}},
	{name: "await", code: "import asyncio\nawait asyncio.sleep(600)", errors: []string{"KeyboardInterrupt"}},
	{name: "await of a busy task", code: "import asyncio\nasync def busy():\n  while True: pass\nawait asyncio.create_task(busy())", errors: []string{"KeyboardInterrupt", "CancelledError"}},
	{name: "loop after await", code: "import asyncio\nawait asyncio.sleep(0.01)\nwhile True: pass", errors: []string{"KeyboardInterrupt"}},
	{name: "output", code: "while True: print('x' * 100)", errors: []string{"KeyboardInterrupt"}},
	{name: "generator in a thread", code: "import concurrent.futures, time\nconcurrent.futures.ThreadPoolExecutor(1).submit(time.sleep, 3).result()", errors: []string{"KeyboardInterrupt"}},
	{name: "caught once", code: "import time\ntry:\n  time.sleep(600)\nexcept KeyboardInterrupt:\n  time.sleep(600)", errors: []string{"KeyboardInterrupt"}},
	{name: "caught, and done", code: "import time\ntry:\n  time.sleep(600)\nexcept KeyboardInterrupt:\n  pass", errors: []string{""}},
	{name: "caught for ever", code: "import time\nwhile True:\n  try: time.sleep(600)\n  except KeyboardInterrupt: pass", errors: []string{""}, lost: true},
	{name: "bare except", code: "import time\nwhile True:\n  try: time.sleep(600)\n  except: pass", errors: []string{""}, lost: true},
	{name: "ignored signal", code: "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(600)", errors: []string{""}, lost: true},
}

// Every kind of code is interrupted, keeps its state where that can be, and says so
// truthfully where it cannot.
func TestInterruptOfEveryKind(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) {
		t.Run("kept", func(t *testing.T) {
			cs := newContexts(t, use)
			mustOK(t, cs, "kept = 'kept'")
			for _, row := range interrupts {
				if row.lost || row.needs != "" && !hasModule(t, cs, row.needs) {
					continue
				}
				took := interruptRow(t, cs, row.code, row.name, row.errors, false)
				t.Logf("%-24s %v", row.name, took.Round(time.Millisecond))
				if out := mustOK(t, cs, "kept"); out.results[0].part("text/plain") != "'kept'" {
					t.Errorf("%s: the state is gone", row.name)
				}
			}
		})
		for _, row := range interrupts {
			if !row.lost {
				continue
			}
			t.Run(row.name, func(t *testing.T) {
				t.Parallel() // mostly waits
				cs := newContexts(t, use)
				mustOK(t, cs, "1")
				took := interruptRow(t, cs, row.code, row.name, row.errors, true)
				t.Logf("%-24s %v, killed", row.name, took.Round(time.Millisecond))
				if out := mustOK(t, cs, "1"); !out.started.FreshKernel || !strings.Contains(out.started.PreviousEnd, "ignored interrupts") {
					t.Errorf("next: %+v", out.started)
				}
			})
		}
	})
}

func hasModule(t *testing.T, cs *Contexts, name string) bool {
	t.Helper()
	out := mustOK(t, cs, "import importlib.util; importlib.util.find_spec('"+name+"') is not None")
	return out.results[0].part("text/plain") == "True"
}

// interruptRow interrupts code that is well under way, and returns how long it
// took to end.
func interruptRow(t *testing.T, cs *Contexts, code, name string, errors []string, lost bool) time.Duration {
	t.Helper()
	x := start(t, cs, Request{Code: "print('on', flush=True)\n" + code, Timeout: after(0)})
	r := events(t, x, 0)
	for on := false; !on; {
		event, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, on = event.Body.(Stdout)
	}
	r.Close()
	time.Sleep(100 * time.Millisecond) // into whatever comes after the print
	began := time.Now()
	if _, err := cs.InterruptExecution(x.ID()); err != nil {
		t.Fatal(err)
	}
	<-x.Done()
	took := time.Since(began)
	out := collect(t, x)
	got := ""
	if out.err != nil {
		got = out.err.Name
	}
	if lost {
		if out.finished.Status != KernelDied && out.finished.Status != Interrupted || !out.finished.StateLost {
			t.Errorf("%s: %+v, error %q", name, out.finished, got)
		}
		return took
	}
	if out.finished.Status != Interrupted || out.finished.StateLost || !slices.Contains(errors, got) {
		t.Errorf("%s: %+v, error %q, want one of %q", name, out.finished, got, errors)
	}
	if out.err != nil && strings.Contains(strings.Join(out.err.Traceback, "\n"), "guestd_kernel") {
		t.Errorf("%s: the traceback has the kernel's own parts:\n%s", name, strings.Join(out.err.Traceback, "\n"))
	}
	return took
}

// lostCounter is a log that counts executions without a reply.
type lostCounter struct {
	testWriter
	lost *atomic.Int64
}

func (w lostCounter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), lostReply) {
		w.lost.Add(1)
	}
	return w.testWriter.Write(p)
}

// stormSize is how many interrupts the storm has: KERNEL_TEST_INTERRUPTS, or 300.
func stormSize(t *testing.T) int {
	t.Helper()
	value := os.Getenv("KERNEL_TEST_INTERRUPTS")
	if value == "" {
		return 300
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Interrupts at random instants around small executions kill no kernel, lose no
// reply, and do not reach the next execution.
func TestInterruptsAtRandom(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) {
		lost := new(atomic.Int64)
		cs := newContexts(t, use, func(cfg *Config) {
			cfg.Logger = slog.New(slog.NewTextHandler(lostCounter{testWriter{t}, lost}, nil))
		})
		mustOK(t, cs, "import asyncio, time")
		codes := []string{
			"for i in range(20000): pass\nprint('through')",
			"time.sleep(0.003)",
			"await asyncio.sleep(0.003)",
			"1+1",
			"print('x' * 1000)\n1/0",
		}
		random := rand.New(rand.NewPCG(1, 2))
		ends := map[Status]int{}
		for i := range stormSize(t) {
			x := start(t, cs, Request{Code: codes[i%len(codes)]})
			time.Sleep(time.Duration(random.IntN(8000)) * time.Microsecond)
			if _, err := cs.InterruptExecution(x.ID()); err != nil {
				t.Fatal(err)
			}
			out := collect(t, x)
			ends[out.finished.Status]++
			if f := out.finished; f.StateLost || f.OutputIncomplete || f.Status == KernelDied || f.Status == TimedOut {
				t.Fatalf("%d, %q: %+v", i, codes[i%len(codes)], f)
			}
			if next := execute(t, cs, "6*7"); next.finished.Status != OK || len(next.results) != 1 {
				t.Fatalf("after %d, %q: %+v, error %+v", i, codes[i%len(codes)], next.finished, next.err)
			}
		}
		if n := lost.Load(); n > 0 {
			t.Errorf("%d replies were lost", n)
		}
		t.Logf("ends: %v", ends)
	})
}
