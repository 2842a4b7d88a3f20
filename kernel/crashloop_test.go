package kernel

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestCrashLoopStops(t *testing.T) {
	cs := newContexts(t)
	for i := range maxCrashes {
		if out := execute(t, cs, "import os; os._exit(1)"); out.finished.Status != KernelDied {
			t.Fatalf("death %d: %+v", i, out.finished)
		}
	}
	_, err := cs.Execute(t.Context(), Request{Code: "1"})
	var loop *CrashLoopError
	if !errors.As(err, &loop) || !strings.Contains(err.Error(), "exited with code 1") {
		t.Fatalf("after %d deaths: %v", maxCrashes, err)
	}
	// To restart it tries at once.
	if _, err := cs.Restart(t.Context(), cs.List()[0].ID); err != nil {
		t.Fatal(err)
	}
	mustOK(t, cs, "1")
}

// Whoever is told of the last death is refused, however soon he tries: the log's
// line about a death comes before the execution's end.
func TestCrashLoopIsKnownBeforeItsLastDeathIsTold(t *testing.T) {
	const deadly = "import os; os._exit(1)"
	var cs *Contexts
	atOnce := make(chan error, 2*maxCrashes) // what Execute said while a death was logged
	onDeath := writerFunc(func(line []byte) {
		if bytes.Contains(line, []byte("a kernel ended")) {
			_, err := cs.Execute(t.Context(), Request{Code: deadly})
			atOnce <- err
		}
	})
	cs = newContexts(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(onDeath, nil)) })
	if out := execute(t, cs, deadly); out.finished.Status != KernelDied {
		t.Fatalf("%+v", out.finished)
	}
	for death := 1; death <= maxCrashes; death++ {
		err := <-atOnce
		if refused := errors.As(err, new(*CrashLoopError)); refused != (death == maxCrashes) {
			t.Errorf("after death %d: %v", death, err)
		}
	}
}

type writerFunc func(p []byte)

func (w writerFunc) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
