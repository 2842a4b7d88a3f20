package client

import (
	"context"
	"sync"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// acknowledger tells guestd how far a reader of events has got, beside the reading. Its goroutine,
// one at a time, ends once guestd knows the newest number, or with ctx.
type acknowledger struct {
	client            *Client
	ctx               context.Context
	execution, reader string

	work   sync.WaitGroup
	mu     sync.Mutex // protects the following
	newest uint64
	busy   bool
}

// acknowledge says that all events up to a number have arrived. It does not wait.
func (a *acknowledger) acknowledge(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.newest = number
	if !a.busy {
		a.busy = true
		a.work.Go(a.run)
	}
}

func (a *acknowledger) run() {
	for number := a.next(0); number > 0; number = a.next(number) {
		// Where it fails the stream breaks too, or guestd does without; the next one says it all.
		_, _ = a.client.code.AcknowledgeExecution(a.ctx, &guestdv1.AcknowledgeExecutionRequest{
			ExecutionId: a.execution, ReaderId: a.reader, Number: number,
		})
	}
}

// next is the number to tell after another one; 0 ends the work.
func (a *acknowledger) next(told uint64) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.newest == told || a.ctx.Err() != nil {
		a.busy = false
		return 0
	}
	return a.newest
}

func (a *acknowledger) wait() { a.work.Wait() }
