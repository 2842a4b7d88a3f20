package kernel

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"guestd.internal/internal/spawn"
)

// withEnvironment adds variables to the guest's.
func withEnvironment(vars ...spawn.EnvVar) func(*Config) {
	return func(cfg *Config) { cfg.Environment = func() []spawn.EnvVar { return vars } }
}

// withStockKernel makes an ipykernel that is not started as ipykernel's launcher is
// the user's: like any kernel that we know nothing of.
func withStockKernel(t *testing.T) func(*Config) {
	t.Helper()
	spec, err := json.Marshal(map[string]any{
		"argv":     []string{"python3", "-c", "from ipykernel.kernelapp import IPKernelApp; IPKernelApp.launch_instance()", "-f", "{connection_file}"},
		"language": "python", "display_name": "stock",
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	folder := filepath.Join(dir, "share/jupyter/kernels/python3")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "kernel.json"), spec, 0o644); err != nil {
		t.Fatal(err)
	}
	return withEnvironment(
		spawn.EnvVar{Name: "JUPYTER_PATH", Value: filepath.Join(dir, "share/jupyter")},
		spawn.EnvVar{Name: "PATH", Value: "/usr/bin:/bin"})
}

// withUnknownVersion makes the installed ipykernel say that it is one of the future.
func withUnknownVersion(t *testing.T) func(*Config) {
	t.Helper()
	dir := t.TempDir()
	code := "import ipykernel\nipykernel.__version__ = '99.0.0'\n"
	if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	return withEnvironment(spawn.EnvVar{Name: "PYTHONPATH", Value: dir})
}

// eachStockKernel runs a test with the kernels that do not run our parts.
func eachStockKernel(t *testing.T, test func(t *testing.T, use func(*Config))) {
	t.Run("other launcher", func(t *testing.T) { test(t, withStockKernel(t)) })
	t.Run("unknown version", func(t *testing.T) { test(t, withUnknownVersion(t)) })
}

func TestStockKernelWorks(t *testing.T) {
	eachStockKernel(t, func(t *testing.T, use func(*Config)) {
		cs := newContexts(t, use)
		out := mustOK(t, cs, "print('on')\nprint(type(get_ipython().kernel).__module__)\n6*7")
		if out.stdout != "on\nipykernel.ipkernel\n" || out.results[0].part("text/plain") != "42" {
			t.Errorf("%q, %+v", out.stdout, out.results)
		}
		took := interruptRow(t, cs, "import asyncio\nawait asyncio.sleep(600)", "await", []string{"CancelledError", "KeyboardInterrupt"}, false)
		t.Logf("an interrupt of await took %v", took)
		mustOK(t, cs, "1")
	})
}

// It is read even where nobody takes its output, and what is dropped is told. (What a
// kernel of which we know nothing drops by itself, when it is quicker than guestd can
// read, shows nowhere.)
func TestStockKernelIsAlwaysRead(t *testing.T) {
	cs := newContexts(t, withUnknownVersion(t), func(cfg *Config) { cfg.OutputLimit = 64 << 10 })
	x := start(t, cs, Request{Code: "for i in range(4000): print(i, 'x' * 10000, flush=True)", Timeout: after(0)})
	r := events(t, x, 0)
	defer r.Close()
	<-x.Done() // with a reader that does not read
	var missing uint64
	var got int
	var last string
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
			got += len(body.Text)
			last = body.Text
		case Gap:
			missing += body.Bytes
		case Finished:
			if body.Status != OK {
				t.Errorf("%+v", body)
			}
		}
	}
	want := 4000*10002 + len(strings.ReplaceAll(numbered(4000), "\n", ""))
	if got+int(missing) != want || missing == 0 || !strings.HasSuffix(last, "x\n") {
		t.Errorf("%d bytes and gaps of %d, want %d", got, missing, want)
	}
}

// A slow reader of a stock kernel gets everything, as far as that fits.
func TestStockKernelAndASlowReader(t *testing.T) {
	cs := newContexts(t, withUnknownVersion(t))
	x := start(t, cs, Request{Code: "for i in range(5000): print(i, flush=True)", Timeout: after(0)})
	var got strings.Builder
	finished := drain(t, x, func(text string) {
		got.WriteString(text)
		time.Sleep(time.Millisecond)
	})
	if finished.Status != OK || got.String() != numbered(5000) {
		t.Errorf("%+v, %d bytes, want %d", finished, got.Len(), len(numbered(5000)))
	}
}

func TestUnknownVersionAndCodeThatDoesNotCompile(t *testing.T) {
	checkCodeThatDoesNotCompile(t, newContexts(t, withUnknownVersion(t)))
}

func TestUnknownVersionStartsCold(t *testing.T) {
	cs := newContexts(t, withUnknownVersion(t), func(cfg *Config) { cfg.ColdStart = false })
	if err := cs.Prewarm(1); err == nil || !strings.Contains(err.Error(), "cannot be forked") {
		t.Errorf("prewarm: %v", err)
	}
	mustOK(t, cs, "1")
}

// xeus makes its sockets in another order than ipykernel does.
func TestKernelListensInAnyOrder(t *testing.T) {
	for _, order := range []string{"iopub-first", "iopub-last"} {
		t.Run(order, func(t *testing.T) {
			cs := newContexts(t, withFake(t, order))
			if out := execute(t, cs, "nothing"); out.finished.Status != OK || out.stdout != "done" {
				t.Errorf("%+v, output %q, error %+v", out.finished, out.stdout, out.err)
			}
		})
	}
}
