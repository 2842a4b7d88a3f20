package kernel

import (
	"context"
	"time"

	"guestd.internal/internal/account"
)

// identity is what a context is from its creation on.
type identity struct {
	id        string
	number    uint64 // contexts in the order of their creation
	language  string // canonical
	name      string
	labels    map[string]string
	user      string // as people know it
	dir       string // where it starts
	isDefault bool
	created   time.Time
}

// executor is a context of any kind.
type executor interface {
	about() identity
	// submit queues an execution.
	submit(x *Execution) error
	// interrupt stops the given execution, or whichever runs if it is nil, and
	// returns the id of the one that it has stopped, or "".
	interrupt(x *Execution) (string, error)
	// replyInput answers the request for input with the given event number, or the
	// newest with 0.
	replyInput(x *Execution, number uint64, value string) error
	// prepare waits until the context can run code.
	prepare(ctx context.Context) error
	// restart makes the context as it was at its creation, and waits for that.
	restart(ctx context.Context) error
	info() (Info, error)
	// watcher adds one.
	watcher() (*Watcher, error)
	account() account.Account
	// hasSurroundings says whether executions can have an environment and a working
	// directory of their own.
	hasSurroundings() bool

	// quit asks for the end of everything that the context has, for a reason.
	quit(why error)
	// gone is closed once all of that has ended.
	gone() <-chan struct{}
}

func (id identity) about() identity { return id }

// actor is a context's goroutine, as others see it.
type actor struct {
	calls  chan func() // run by the goroutine
	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{} // the goroutine and all that it started are gone
}

func newActor() actor {
	ctx, cancel := context.WithCancelCause(context.Background())
	return actor{calls: make(chan func()), ctx: ctx, cancel: cancel, ended: make(chan struct{})}
}

func (a *actor) quit(why error) { a.cancel(why) }

func (a *actor) gone() <-chan struct{} { return a.ended }

// call runs fn on the actor's goroutine and waits for it. Its error is why the
// actor has ended.
func (a *actor) call(fn func()) error {
	ran := make(chan struct{})
	select {
	case a.calls <- func() { defer close(ran); fn() }:
		<-ran
		return nil
	case <-a.ended:
		return context.Cause(a.ctx)
	}
}
