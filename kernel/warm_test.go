package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"guestd.internal/internal/spawn"
)

// warmContexts returns contexts whose next kernels are forked, and the pool.
func warmContexts(t *testing.T, n int, change ...func(*Config)) (*Contexts, *pool) {
	t.Helper()
	cs := newContexts(t, append([]func(*Config){func(cfg *Config) { cfg.ColdStart = false }}, change...)...)
	if err := cs.Prewarm(n); err != nil {
		t.Fatal(err)
	}
	cs.cfg.warm.mu.Lock()
	defer cs.cfg.warm.mu.Unlock()
	for _, p := range cs.cfg.warm.pools {
		return cs, p
	}
	t.Fatal("no pool")
	return nil, nil
}

// serverPID is the process id of a pool's fork server.
func serverPID(cs *Contexts, p *pool) int {
	cs.cfg.warm.mu.Lock()
	defer cs.cfg.warm.mu.Unlock()
	if p.server == nil {
		return 0
	}
	return p.server.child.PID()
}

// isForkOf says whether a kernel is a fork of the given server.
func isForkOf(t *testing.T, pid, server int) bool {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return fields[1] == strconv.Itoa(server)
}

// restart gives the only context a new kernel.
func restart(t *testing.T, cs *Contexts) {
	t.Helper()
	if err := syscall.Kill(kernelPID(t, cs), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the death to be noticed", func() bool { return cs.List()[0].State == NoKernel })
}

func TestForkedKernelIsLikeACold(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) {
		const code = `
import os, signal, sys, threading, resource
print(os.getcwd(), os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), oct(os.umask(0o22)))
print([os.readlink('/proc/self/fd/' + n) for n in '0'], os.getuid(), os.getgroups())
print(sorted(os.environ.items() - {(k, os.environ[k]) for k in ('IPYTHONDIR', 'GUESTD_PROCESS_ID')}))
print([signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD, signal.SIGHUP)])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), resource.getrlimit(resource.RLIMIT_NOFILE))
print(sys.path, sys.argv[1] == '-f' if len(sys.argv) > 1 else sys.argv)
print(__name__, os.environ['GUESTD_PROCESS_ID'][:2], os.path.isdir(os.environ['IPYTHONDIR']))
print(type(get_ipython().kernel).__module__, sorted(t.name for t in threading.enumerate()))`
		cold := mustOK(t, newContexts(t, use), code)
		cs, p := warmContexts(t, 1, use)
		warm := mustOK(t, cs, code)
		if !isForkOf(t, kernelPID(t, cs), serverPID(cs, p)) {
			t.Error("the kernel is no fork")
		}
		want, got := strings.Split(cold.stdout, "\n"), strings.Split(warm.stdout, "\n")
		for i := range want {
			if i >= len(got) || got[i] != want[i] {
				t.Errorf("forked:\n%s\ncold:\n%s", got[min(i, len(got)-1)], want[i])
			}
		}
	})
}

func TestForkedKernelHasTheContextsSettings(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cs, p := warmContexts(t, 1)
	w := cs.cfg.warm
	for _, what := range []string{"ready", "forked"} {
		l := p.l
		l.dir, l.env = dir, []spawn.EnvVar{{Name: "GREETING", Value: "hello"}, {Name: "LOGNAME", Unset: true}}
		s := w.take(t.Context(), &l, p.cmd, 7)
		if s == nil {
			t.Fatalf("%s: no kernel", what)
		}
		cwd, err := os.Readlink("/proc/" + strconv.Itoa(s.child.PID()) + "/cwd")
		if err != nil || cwd != dir {
			t.Errorf("%s: in %s, %v", what, cwd, err)
		}
		if s.generation != 7 {
			t.Errorf("%s: generation %d", what, s.generation)
		}
		s.close()
	}
	// What matters while libraries are imported can not be set afterwards.
	l := p.l
	l.env = []spawn.EnvVar{{Name: "PYTHONPATH", Value: dir}}
	if s := w.take(t.Context(), &l, p.cmd, 1); s != nil {
		s.close()
		t.Error("a kernel with a PYTHONPATH of its own was forked")
	}
	l.env, l.dir = nil, filepath.Join(dir, "missing")
	if s := w.take(t.Context(), &l, p.cmd, 1); s != nil {
		s.close()
		t.Error("a kernel in a folder that does not exist")
	}
}

func TestForkedKernelsDiffer(t *testing.T) {
	cs, _ := warmContexts(t, 1)
	seen := map[string]bool{}
	for range 3 {
		out := mustOK(t, cs, "import random, numpy, uuid\nprint(random.random(), numpy.random.rand(), uuid.uuid4())")
		for value := range strings.FieldsSeq(out.stdout) {
			if seen[value] {
				t.Errorf("%s came twice", value)
			}
			seen[value] = true
		}
		restart(t, cs)
	}
}

func TestForkedKernelShowsFigures(t *testing.T) {
	cs, p := warmContexts(t, 1)
	for name, code := range map[string]string{
		"without show": "import matplotlib.pyplot as plt\n_ = plt.plot([1, 4, 2])",
		"with show":    "import matplotlib.pyplot as plt\nplt.plot([1, 4, 2])\nplt.show()",
		"two figures":  "import matplotlib.pyplot as plt\nfor i in range(2):\n  plt.figure()\n  plt.plot([i, 1])",
	} {
		out := mustOK(t, cs, code)
		want := 1
		if name == "two figures" {
			want = 2
		}
		if len(out.results) != want {
			t.Errorf("%s: %d results, stderr %q", name, len(out.results), out.stderr)
			continue
		}
		for _, result := range out.results {
			if !strings.HasPrefix(result.part("image/png"), "\x89PNG\r\n\x1a\n") {
				t.Errorf("%s: %v", name, result.Parts)
			}
		}
	}
	if !isForkOf(t, kernelPID(t, cs), serverPID(cs, p)) {
		t.Error("the kernel is no fork")
	}
}

func TestForkedKernelsEnd(t *testing.T) {
	for name, reaper := range map[string]bool{"embedded": false, "daemon": true} {
		t.Run(name, func(t *testing.T) {
			cs, p := warmContexts(t, 1, func(cfg *Config) {
				spawner, err := spawn.New(spawn.Config{Reaper: reaper})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = spawner.Close() })
				cfg.Spawner = spawner
			})
			for _, row := range []struct {
				code   string
				exit   int
				signal syscall.Signal
			}{
				{"import os; os._exit(7)", 7, 0},
				{"import os; os.kill(os.getpid(), 9)", -1, syscall.SIGKILL},
				{"import os; os.abort()", -1, syscall.SIGABRT},
				{"import os\nif os.fork() == 0:\n  import time; time.sleep(600)\nos._exit(3)", 3, 0},
			} {
				mustOK(t, cs, "1")
				if !isForkOf(t, kernelPID(t, cs), serverPID(cs, p)) {
					t.Error("the kernel is no fork")
				}
				out := execute(t, cs, row.code)
				if f := out.finished; f.Status != KernelDied || f.ExitCode != row.exit || f.Signal != row.signal {
					t.Errorf("%q: %+v", row.code, f)
				}
			}
			// Without its server a kernel goes on.
			mustOK(t, cs, "kept = 1")
			cs.cfg.warm.mu.Lock()
			server := p.server
			cs.cfg.warm.mu.Unlock()
			if err := syscall.Kill(server.child.PID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-server.link.Ended()
			mustOK(t, cs, "kept")
			out := execute(t, cs, "import os; os._exit(7)")
			if f := out.finished; f.Status != KernelDied || reaper && f.ExitCode != 7 {
				t.Errorf("without its server: %+v", f)
			}
			mustOK(t, cs, "1") // a cold one
		})
	}
}

func TestAtExitRunsInAForkedKernel(t *testing.T) {
	cs, _ := warmContexts(t, 1)
	file := filepath.Join(t.TempDir(), "at-exit")
	out := mustOK(t, cs, fmt.Sprintf("import atexit\n_ = atexit.register(lambda: open(%q, 'w').close())\nexit()", file))
	if !out.finished.StateLost {
		t.Errorf("%+v", out.finished)
	}
	waitFor(t, "the kernel's end", func() bool { return cs.List()[0].State == NoKernel })
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if next := mustOK(t, cs, "1"); !strings.Contains(next.started.PreviousEnd, "exited with code 0") {
		t.Errorf("next: %+v", next.started)
	}
}

func TestPackagesThatChangeMakeANewServer(t *testing.T) {
	site := filepath.Join(t.TempDir(), "site-packages")
	if err := os.MkdirAll(site, 0o755); err != nil {
		t.Fatal(err)
	}
	module := filepath.Join(site, "guestd_test_module.py")
	write := func(value string) {
		t.Helper()
		next := module + value
		if err := os.WriteFile(next, []byte("value = '"+value+"'\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, module); err != nil { // as pip does: the folder changes
			t.Fatal(err)
		}
	}
	write("old")
	cs, p := warmContexts(t, 1, func(cfg *Config) {
		cfg.Preload = []string{"guestd_test_module"}
		cfg.Environment = func() []spawn.EnvVar { return []spawn.EnvVar{{Name: "PYTHONPATH", Value: site}} }
	})
	const code = "import sys\nprint('guestd_test_module' in sys.modules)\nimport guestd_test_module\nprint(guestd_test_module.value)"
	if out := mustOK(t, cs, code); out.stdout != "True\nold\n" {
		t.Errorf("preloaded: %q", out.stdout)
	}
	first := serverPID(cs, p)
	write("newer")
	restart(t, cs)
	if out := mustOK(t, cs, code); out.stdout != "False\nnewer\n" {
		t.Errorf("after the change: %q", out.stdout)
	}
	waitFor(t, "a new server", func() bool { pid := serverPID(cs, p); return pid != 0 && pid != first })
	waitFor(t, "a ready kernel", func() bool { return readyKernels(cs, p) == 1 })
	restart(t, cs)
	if out := mustOK(t, cs, code); out.stdout != "True\nnewer\n" {
		t.Errorf("preloaded again: %q", out.stdout)
	}
}

func readyKernels(cs *Contexts, p *pool) int {
	cs.cfg.warm.mu.Lock()
	defer cs.cfg.warm.mu.Unlock()
	return len(p.ready)
}

func TestPoolIsRefilledAndEnds(t *testing.T) {
	cs := newContexts(t, func(cfg *Config) {
		cfg.ColdStart = false
		cfg.Preload = []string{}
		cfg.WarmIdle = 100 * time.Millisecond
	})
	w := cs.cfg.warm
	if w.mu.Lock(); len(w.pools) > 0 {
		t.Error("there is a pool before anybody asked for a kernel")
	}
	w.mu.Unlock()
	mustOK(t, cs, "1") // cold
	var p *pool
	waitFor(t, "a pool", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, p = range w.pools {
		}
		return p != nil
	})
	waitFor(t, "a ready kernel", func() bool { return readyKernels(cs, p) == 1 })
	restart(t, cs)
	mustOK(t, cs, "1")
	if !isForkOf(t, kernelPID(t, cs), serverPID(cs, p)) {
		t.Error("the second kernel is no fork")
	}
	waitFor(t, "another ready kernel", func() bool { return readyKernels(cs, p) == 1 })
	server := serverPID(cs, p)
	restart(t, cs) // and with the only kernel goes the last use
	waitFor(t, "the end of the pool", func() bool { return readyKernels(cs, p) == 0 && serverPID(cs, p) == 0 })
	waitFor(t, "the end of the server", func() bool { return syscall.Kill(server, 0) != nil })
}

// Close leaves nothing behind of a server that is just starting.
func TestCloseWaitsForPrewarm(t *testing.T) {
	cs := newContexts(t, func(cfg *Config) { cfg.ColdStart, cfg.Preload = false, []string{} })
	prewarmed := make(chan error, 1)
	go func() { prewarmed <- cs.Prewarm(1) }()
	folders := func() []string {
		found, err := filepath.Glob(cs.cfg.StateDir + "/*/" + launcherFolder)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	waitFor(t, "the server's folder", func() bool { return len(folders()) > 0 })
	if err := cs.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := folders(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := <-prewarmed; !errors.Is(err, ErrClosed) {
		t.Errorf("Prewarm: %v, want %v", err, ErrClosed)
	}
	if err := cs.Prewarm(1); !errors.Is(err, ErrClosed) {
		t.Errorf("Prewarm after Close: %v, want %v", err, ErrClosed)
	}
}

func TestColdStartOnly(t *testing.T) {
	cs := newContexts(t, func(cfg *Config) { cfg.ColdStart = true })
	if err := cs.Prewarm(1); err != nil {
		t.Fatal(err)
	}
	mustOK(t, cs, "1")
	if cs.cfg.warm != nil {
		t.Error("there is a warmer")
	}
}

// A forked kernel dies with guestd: nobody could reach it any more.
func TestForkedKernelEndsWithItsControlSocket(t *testing.T) {
	cs, p := warmContexts(t, 1)
	l := p.l
	s := cs.cfg.warm.take(t.Context(), &l, p.cmd, 1)
	if s == nil {
		t.Fatal("no kernel")
	}
	if err := s.control.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	<-s.child.Done()
	if status := s.child.Status(); status.Code != 1 {
		t.Errorf("%+v", status)
	}
	s.close()
}

// Preloaded modules do nothing before user code imports them.
func TestForkedNamespaceIsClean(t *testing.T) {
	cs, _ := warmContexts(t, 1)
	out := mustOK(t, cs, "print([n for n in globals() if n in ('numpy', 'pandas', 'matplotlib', 'np', 'plt', 'start', 'control')])\nimport sys\nprint('numpy' in sys.modules)")
	lines := strings.Split(out.stdout, "\n")
	if !slices.Equal(lines[:1], []string{"[]"}) {
		t.Errorf("names: %q", out.stdout)
	}
}
