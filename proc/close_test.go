package proc

import (
	"context"
	"errors"
	"testing"
)

// Ends that cannot be recorded stand for processes that SIGKILL does not end.
func TestCloseWaitsOnceForAllThatSurvive(t *testing.T) {
	table := newTable(t)
	var stuck []*Process
	for range 2 {
		p, err := table.Start(t.Context(), shell("sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		stuck = append(stuck, p)
	}
	for _, p := range stuck {
		p.mu.Lock()
		p.killRest()
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSurvives)
	for _, p := range stuck {
		if err := p.collect(ctx); !errors.Is(err, errSurvives) {
			t.Errorf("collecting: %v, want %v", err, errSurvives)
		}
	}
	for _, p := range stuck {
		p.mu.Unlock()
		if exit, err := p.Wait(within(t)); err != nil || exit.Signal == 0 {
			t.Errorf("after that: %+v, %v", exit, err)
		}
	}
}

// A deadline that has passed says nothing of what has ended before.
func TestCollectingWhatHasEnded(t *testing.T) {
	table := newTable(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSurvives)
	for range 30 {
		p, err := table.Start(t.Context(), shell("exit 0"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(within(t)); err != nil {
			t.Fatal(err)
		}
		if err := p.collect(ctx); err != nil {
			t.Error(err)
		}
	}
}
