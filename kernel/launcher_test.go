package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// memory reads a field of /proc/PID/status, in bytes.
func memory(t *testing.T, pid int, field string) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no %s in /proc/%d/status", field, pid)
	return 0
}

// drain reads an execution's standard output through check, in pieces, to its end.
func drain(t *testing.T, x *Execution, check func(text string)) Finished {
	t.Helper()
	r := events(t, x, 0)
	defer r.Close()
	var finished Finished
	for {
		event, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return finished
		}
		if err != nil {
			t.Fatal(err)
		}
		switch body := event.Body.(type) {
		case Stdout:
			check(body.Text)
		case Stderr:
			t.Errorf("stderr: %q", body.Text)
		case Gap:
			t.Errorf("a gap: %+v", body)
		case Finished:
			finished = body
		}
	}
}

// A hundred megabytes come whole, however they are printed, and neither side holds
// more than a little of them.
func TestMuchOutput(t *testing.T) {
	const size = 100 << 20
	line := strings.Repeat("0123456789", 10)[:99] + "\n"
	for name, code := range map[string]string{
		"lines":      fmt.Sprintf("line = %q\nfor i in range(%d): print(line, end='')", line, size/len(line)),
		"one write":  fmt.Sprintf("import sys\n_ = sys.stdout.write(%q * %d)", line, size/len(line)),
		"descriptor": fmt.Sprintf("import os\n_ = os.system('yes %s 2>/dev/null | head -n %d')", line[:99], size/len(line)),
	} {
		t.Run(name, func(t *testing.T) {
			cs := newContexts(t)
			mustOK(t, cs, "1")
			pid := kernelPID(t, cs)
			var before, peak runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			x := start(t, cs, Request{Code: code, Timeout: after(0)})
			var got, wrong, pieces int
			finished := drain(t, x, func(text string) {
				for at := 0; at < len(text); {
					offset := (got + at) % len(line)
					n := min(len(text)-at, len(line)-offset)
					if text[at:at+n] != line[offset:offset+n] {
						wrong++
					}
					at += n
				}
				got += len(text)
				if pieces++; pieces%64 == 0 {
					var now runtime.MemStats
					runtime.ReadMemStats(&now)
					peak.HeapInuse = max(peak.HeapInuse, now.HeapInuse)
				}
			})
			if want := size / len(line) * len(line); finished.Status != OK || finished.OutputIncomplete || got != want || wrong > 0 {
				t.Errorf("%+v, %d bytes, want %d, %d pieces of lines are wrong", finished, got, want, wrong)
			}
			grown := int64(peak.HeapInuse) - int64(before.HeapInuse)
			kernel := memory(t, pid, "VmHWM")
			t.Logf("%v, guestd's heap grew by %d MiB, the kernel had %d MiB", finished.Duration.Round(time.Millisecond), grown>>20, kernel>>20)
			if grown > 32<<20 {
				t.Errorf("guestd's heap grew by %d bytes", grown)
			}
			if limit := int64(100 << 20); name != "one write" && kernel > limit {
				t.Errorf("the kernel had %d bytes", kernel)
			}
		})
	}
}

// Where nobody reads, printing stops, memory is bounded, and an interrupt works.
func TestPrintingStopsWithoutAReader(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) {
		for name, code := range map[string]string{
			"lines":      "while True: print('x' * 1000)",
			"flushed":    "while True: print('x' * 1000, flush=True)",
			"threads":    "import threading\ndef run():\n  while True: print('x' * 1000)\nfor i in range(3): threading.Thread(target=run, daemon=True).start()\nrun()",
			"subprocess": "import subprocess\nsubprocess.run(['yes'])",
		} {
			cs := newContexts(t, use, func(cfg *Config) { cfg.OutputLimit = 256 << 10 })
			mustOK(t, cs, "1")
			pid := kernelPID(t, cs)
			x := start(t, cs, Request{Code: code, Timeout: after(0)})
			r := events(t, x, 0)
			waitFor(t, "the log to be full", func() bool { blocked, _ := x.log.blocked(); return blocked })
			// What the kernel holds for us is bounded: it stands still.
			var grew int64
			waitFor(t, name+": the kernel to stand still", func() bool {
				before := cpuTime(t, pid)
				time.Sleep(300 * time.Millisecond)
				grew = memory(t, pid, "VmRSS")
				return cpuTime(t, pid)-before <= 2
			})
			if grew > 200<<20 {
				t.Errorf("%s: the kernel has %d MiB", name, grew>>20)
			}
			if _, err := cs.InterruptExecution(x.ID()); err != nil {
				t.Fatal(err)
			}
			r.Close()
			out := collect(t, x)
			if out.finished.Status != Interrupted || out.finished.StateLost {
				t.Errorf("%s: %+v", name, out.finished)
			}
		}
	})
}

// cpuTime is what a process has used, in clock ticks.
func cpuTime(t *testing.T, pid int) (ticks int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(string(field))
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return ticks
}

// Every way to write ends up in the execution's output, whole and before its end.
func TestEveryWayToWrite(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) {
		cs := newContexts(t, use)
		for _, row := range []struct{ name, code, stdout, stderr string }{
			{"much by a shell", "import os\n_ = os.system('printf a; i=0; while [ $i -lt 2000 ]; do printf ééééééééééééééééééééééééééééééééééééééééééééééééé; i=$((i+1)); done')", "a" + strings.Repeat("é", 2000*49), ""},
			{"split characters", "with open('/dev/fd/1', 'wb', 0) as f:\n  data = ('a' + 'é' * 100000).encode()\n  for i in range(0, len(data), 1000): _ = f.write(data[i:i+1000])", "", ""},
			{"descriptor", "import os\nfor i in range(3): _ = os.write(1, b'out%d\\n' % i)\n_ = os.write(2, b'err\\n')", "out0\nout1\nout2\n", "err\n"},
			{"subprocess", "import subprocess\n_ = subprocess.run(['sh', '-c', 'echo out; echo err >&2'])", "out\n", "err\n"},
			{"subprocess with our stdout", "import subprocess, sys\n_ = subprocess.run(['echo', 'out'], stdout=sys.stdout, stderr=sys.stderr)", "out\n", ""},
			{"C library", "import ctypes\nlibc = ctypes.CDLL(None)\n_ = libc.puts(b'from C')\n_ = libc.fflush(None)", "from C\n", ""},
			{"fork", "import os\npid = os.fork()\nif pid == 0:\n  print('child')\n  os._exit(0)\n_ = os.waitpid(pid, 0)\nprint('parent')", "", ""},
			{"multiprocessing", "import multiprocessing as mp\ndef f(i):\n  print('line', i)\nwith mp.get_context('fork').Pool(3) as pool:\n  _ = pool.map(f, range(30))", "", ""},
			{"thread", "import threading\nt = threading.Thread(target=print, args=('from a thread',))\nt.start()\nt.join()", "from a thread\n", ""},
			{"lone surrogates", "print('a\\ud800b\\udc80c')", "a\uFFFDb\uFFFDc\n", ""},
			{"not UTF-8", "import os\n_ = os.write(1, b'a\\xffb\\xc3')", "a\uFFFDb", ""},
			{"replaced stdout", "import sys, io\nold = sys.stdout\nprint('before')\nsys.stdout = io.StringIO()\nprint('nowhere')\nimport os\n_ = os.system('echo by descriptor')", "", ""},
			{"restored stdout", "sys.stdout = old\nprint('again')", "again\n", ""},
			{"writelines", "sys.stdout.writelines(['a', 'b\\n'])", "ab\n", ""},
		} {
			out := mustOK(t, cs, row.code)
			switch row.name {
			case "split characters":
				if want := "a" + strings.Repeat("é", 100000); out.stdout != want {
					t.Errorf("%s: %d bytes, want %d", row.name, len(out.stdout), len(want))
				}
			case "multiprocessing":
				for i := range 30 {
					if !strings.Contains(out.stdout, fmt.Sprintf("line %d\n", i)) {
						t.Errorf("%s: line %d is missing in %q", row.name, i, out.stdout)
					}
				}
			case "fork":
				if out.stdout != "child\nparent\n" && out.stdout != "parent\nchild\n" {
					t.Errorf("%s: %q", row.name, out.stdout)
				}
			case "replaced stdout":
				if out.stdout != "before\nby descriptor\n" && out.stdout != "by descriptor\nbefore\n" {
					t.Errorf("%s: %q", row.name, out.stdout)
				}
			default:
				if out.stdout != row.stdout || out.stderr != row.stderr {
					t.Errorf("%s: %q, %q", row.name, out.stdout, out.stderr)
				}
			}
		}
	})
}

// What is written late belongs to the execution that started it: to none that came
// after.
func TestLateOutputStaysOutOfTheNext(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) {
		cs := newContexts(t, use)
		mustOK(t, cs, `
import asyncio, os, subprocess, threading, time
def late():
    for i in range(200):
        print('late thread')
        time.sleep(0.005)
threads = [threading.Thread(target=late)]
threads[0].start()
async def later():
    for i in range(100):
        print('late task')
        await asyncio.sleep(0.01)
process = subprocess.Popen('for i in $(seq 100); do echo late process; sleep 0.01; done', shell=True)`)
		mustOK(t, cs, "task = asyncio.ensure_future(later())\nawait asyncio.sleep(0)")
		for i := range 30 {
			out := mustOK(t, cs, fmt.Sprintf("print(%d)\n_ = os.system('echo own')\ntime.sleep(0.02)", i))
			if out.stdout != fmt.Sprintf("%d\nown\n", i) && out.stdout != fmt.Sprintf("own\n%d\n", i) {
				t.Errorf("execution %d has %q", i, out.stdout)
			}
		}
		mustOK(t, cs, "threads[0].join(); process.wait(); None")
	})
}

// A fork of user code that runs on into the kernel does not speak for it.
func TestForkThatRunsOn(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) {
		cs := newContexts(t, use)
		out := mustOK(t, cs, "import os\npid = os.fork()\nprint('child' if pid == 0 else 'parent')\nif pid: _ = os.waitpid(pid, 0)\n6*7")
		// Both print at once, so that even within a line there is no order.
		if len(out.stdout) != len("child\nparent\n") || !strings.Contains(out.stdout, "child") ||
			!strings.Contains(out.stdout, "parent") || len(out.results) != 1 {
			t.Errorf("output %q, results %+v", out.stdout, out.results)
		}
		out = mustOK(t, cs, "pid = os.fork()\nif pid == 0: 1/0\n_, status = os.waitpid(pid, 0)\nos.waitstatus_to_exitcode(status)")
		if !strings.Contains(out.stderr, "ZeroDivisionError") || out.results[0].part("text/plain") != "0" {
			t.Errorf("a fork with an error: stderr %q, results %+v", out.stderr, out.results)
		}
		if out := mustOK(t, cs, "6*7"); out.results[0].part("text/plain") != "42" {
			t.Errorf("afterwards: %+v", out.results)
		}
	})
}

// Help, pictures and errors work with our parts in place.
func TestOurKernelShows(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) {
		cs := newContexts(t, use)
		if help := mustOK(t, cs, "len?"); len(help.results) != 1 || !strings.Contains(help.results[0].part("text/plain"), "Return the number of items") {
			t.Errorf("help: %+v", help.results)
		}
		shown := mustOK(t, cs, "from IPython.display import display, HTML, clear_output\nh = display(HTML('<b>1</b>'), display_id='d')\nh.update(HTML('<b>2</b>'))\nclear_output(wait=True)")
		if len(shown.results) != 2 || shown.results[1].part("text/html") != "<b>2</b>" || len(shown.clears) != 1 {
			t.Errorf("displays: %+v, %+v", shown.results, shown.clears)
		}
		if out := execute(t, cs, "def f(): 1/0\nf()"); out.err == nil || out.err.Name != "ZeroDivisionError" || strings.Contains(strings.Join(out.err.Traceback, ""), "\x1b") {
			t.Errorf("an error: %+v", out.err)
		}
		if out := execute(t, cs, "import sys\nsys.exit(3)"); out.err == nil || out.err.Name != "SystemExit" || out.finished.StateLost {
			t.Errorf("sys.exit: %+v, %+v", out.err, out.finished)
		}
		x := start(t, cs, Request{Code: "print('bye'); exit()"})
		if out := collect(t, x); out.stdout != "bye\n" || !out.finished.StateLost {
			t.Errorf("exit: %+v, %q", out.finished, out.stdout)
		}
		if out := mustOK(t, cs, "1"); !strings.Contains(out.started.PreviousEnd, "exited with code 0") {
			t.Errorf("after exit: %+v", out.started)
		}
	})
}

// An idle kernel, and one that waits for a context, cost nothing.
func TestIdleKernelUsesNoCPU(t *testing.T) {
	cs, p := warmContexts(t, 1)
	mustOK(t, cs, "1")
	pids := []int{kernelPID(t, cs), serverPID(cs, p)}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	before := []int{cpuTime(t, pids[0]), cpuTime(t, pids[1])}
	<-ctx.Done()
	for i, pid := range pids {
		if used := cpuTime(t, pid) - before[i]; used > 2 {
			t.Errorf("process %d of %v used %d ticks in two seconds", i, pids, used)
		}
	}
}

// A stopped kernel loses nothing.
func TestStoppedKernelKeepsItsOutput(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) {
		cs := newContexts(t, use)
		mustOK(t, cs, "1")
		pid := kernelPID(t, cs)
		x := start(t, cs, Request{Code: "import time\nfor i in range(300):\n  print(i, flush=True)\n  time.sleep(0.001)"})
		waitFor(t, "it to run", func() bool { return cs.List()[0].State == Busy })
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
			time.Sleep(100 * time.Millisecond)
			if err := syscall.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
		}
		if out := collect(t, x); out.finished.Status != OK || out.stdout != numbered(300) {
			t.Errorf("%+v, %d bytes", out.finished, len(out.stdout))
		}
	})
}
