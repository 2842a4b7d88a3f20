package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// startPatience is how long a signal waits for the command that is being started.
const startPatience = time.Second

// startSignals are the signals that come for a command while it is being started. It may run in the
// guest already, and is to get them as soon as that is known; if it takes long, or who sends them
// insists, the start is given up.
type startSignals struct {
	pass   func(signalError) // to the command that runs
	giveUp context.CancelCauseFunc

	mu      sync.Mutex // protects the following
	running bool
	early   []signalError
}

// take passes a signal on, now or later.
func (q *startSignals) take(s signalError) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.running:
		q.pass(s)
	case len(q.early) == 0:
		q.early = append(q.early, s)
		time.AfterFunc(startPatience, q.lapse)
	case slices.Contains(q.early, s) && s.asksToEnd():
		q.giveUp(s)
	default:
		q.early = append(q.early, s)
	}
}

// lapse gives up a start that has taken too long. After the start has failed it does nothing.
func (q *startSignals) lapse() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.running {
		q.giveUp(q.early[0])
	}
}

// started passes on what has come so far.
func (q *startSignals) started() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = true
	for _, s := range q.early {
		q.pass(s)
	}
}
