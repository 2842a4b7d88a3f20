package client

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestWaitSurvivesCuts: a wait is for the process's end, not for that of a connection.
func TestWaitSurvivesCuts(t *testing.T) {
	target := startGuestd(t)
	direct := dialTest(t, target)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	id, err := direct.Command("sleep", "1000").Detach(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cut := newCutter(t, strings.TrimPrefix(target, "unix://"), nil)
	returns := make(chan struct{}, 100)
	c := dialTest(t, cut.target(), WithConnectionWatch(func(lost error) {
		if lost == nil {
			returns <- struct{}{}
		}
	}))
	type outcome struct {
		status *ExitStatus
		err    error
	}
	ended := make(chan outcome, 1)
	wait := func() {
		status, err := c.WaitProcess(ctx, id)
		ended <- outcome{status, err}
	}
	go wait()
	for came := 0; came < 5; {
		cut.cut()
		select {
		case <-returns:
			came++
		case got := <-ended:
			if came > 0 || !errors.Is(got.err, ErrUnavailable) {
				t.Fatalf("it ended with %v, %v after %d returns", got.status, got.err, came)
			}
			go wait() // it was cut before it had begun
		case <-time.After(5 * time.Millisecond): // until the cut hits the wait
		}
	}
	if err := direct.SignalProcess(ctx, id, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; got.err != nil || got.status.Signal != syscall.SIGKILL {
		t.Errorf("got %v, %v", got.status, got.err)
	}
}

func TestWaitNeedsAGuestdToBeginWith(t *testing.T) {
	c := dialTest(t, "unix://"+t.TempDir()+"/none")
	if _, err := c.WaitProcess(t.Context(), "p-x"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
