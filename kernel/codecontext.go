package kernel

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"guestd.internal/kernel/internal/jupyter"
)

// codeContext is the context of a language that has kernels. Its loop owns all
// fields from session on.
type codeContext struct {
	identity
	queue
	watchers
	actor
	launcher launcher
	pythonic bool             // its kernels speak Python
	keep     func(*Execution) // takes finished executions
	log      *slog.Logger
	looping  atomic.Pointer[CrashLoopError] // why nothing is run, if kernels keep dying

	session    *session                         // nil without a kernel
	launched   chan launch                      // from the start in progress; nil without one
	stopLaunch func()                           // ends it
	waiters    []chan error                     // who wait for a kernel
	run        *run                             // the running execution, or nil
	hidden     *hidden                          // our own request that the kernel is dealing with, or nil
	asked      map[string]chan *jupyter.Message // questions, by message id
	recent     recent                           // whose late output is whose
	generation uint64                           // of the last kernel
	lastEnd    string                           // how the kernel before ended
	fresh      bool                             // nothing has run in this kernel
	death      *death                           // the kernel has died and is being drained
	crashes    crashes                          // tells a crash loop
	leaving    time.Time                        // exit() was called; kill it if it is still there by then
	killed     string                           // why we killed the kernel, or ""
	severed    time.Time                        // a connection has ended; kill the kernel if it is still there by then
	restarting bool                             // the kernel was killed for a fresh one
	background uint64                           // bytes that belonged to no execution
	closing    sync.WaitGroup                   // sessions being closed
}

// launch is the outcome of a kernel's start.
type launch struct {
	session *session
	err     error
}

func newCodeContext(id identity, l launcher, pythonic bool, keep func(*Execution)) *codeContext {
	c := &codeContext{
		identity: id,
		queue:    newQueue(),
		actor:    newActor(),
		launcher: l,
		pythonic: pythonic,
		keep:     keep,
		log:      l.cfg.Logger.With("context", id.id),
		asked:    make(map[string]chan *jupyter.Message),
	}
	go c.loop(c.ctx)
	return c
}

// loop is the context's actor. Every source of change is a case in step, none of
// them blocks for long, and what has become possible happens in advance.
func (c *codeContext) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		c.step(ctx, timer)
	}
	why := context.Cause(ctx)
	c.shutDown(why)
	c.watchers.end(endOf(why))
	close(c.ended)
}

func (c *codeContext) step(ctx context.Context, timer *time.Timer) {
	defer func() {
		if value := recover(); value != nil {
			c.onPanic(value)
		}
	}()
	c.advance(ctx)
	c.tellChange(c.now)
	iopub, replies, died, room := c.sources()
	timer.Reset(c.untilNext())
	select {
	case fn := <-c.calls:
		fn()
	case <-c.wake:
	case out := <-c.launched:
		c.onLaunched(out)
	case in := <-iopub:
		c.onIOPub(in)
	case in := <-replies:
		c.onReply(in)
	case <-died:
		c.onDeath()
	case <-room:
	case <-timer.C:
		c.onTime(time.Now())
	case <-ctx.Done():
	}
}

// onPanic contains a fault of our own to this context: what it had is given up,
// and it goes on with a fresh kernel.
func (c *codeContext) onPanic(value any) {
	c.log.Error("panic in a code context", "value", value, "stack", string(debug.Stack()))
	c.lastEnd = "the kernel was given up after an internal fault of guestd"
	if r := c.run; r != nil {
		if !r.failed {
			r.log.append(Error{Name: ErrorKernelDied, Value: c.lastEnd})
		}
		r.end(Finished{Status: KernelDied, StateLost: true})
	}
	if c.session != nil {
		c.giveUp()
	}
}

// sources are the channels that the loop may receive from now. Without iopub
// nobody reads the kernel's output, and the kernel has to wait.
func (c *codeContext) sources() (iopub, replies <-chan incoming, died, room <-chan struct{}) {
	s := c.session
	if s == nil {
		return nil, nil, nil, nil
	}
	if c.death == nil {
		died = s.child.Done()
	}
	iopub = s.iopub
	if c.run != nil {
		room = c.run.log.room
		if blocked, _ := c.run.log.blocked(); blocked {
			iopub = nil
			c.run.quietSince = time.Now() // silence that is not the kernel's
		}
	}
	return iopub, s.replies, died, room
}

// advance starts what can be started: a kernel when an execution waits for one,
// the next execution when the kernel is free.
func (c *codeContext) advance(ctx context.Context) {
	if c.alive() {
		c.tellWaiters(nil)
	}
	for c.run == nil && c.death == nil && c.leaving.IsZero() && c.severed.IsZero() {
		switch {
		case c.launched != nil || c.queued() == 0 && len(c.waiters) == 0:
			return
		case c.session == nil:
			c.launch(ctx)
		default:
			if x := c.next(); x != nil {
				c.begin(x)
			}
		}
	}
}

// alive says whether there is a kernel that is not about to end.
func (c *codeContext) alive() bool {
	return c.session != nil && c.death == nil && c.leaving.IsZero() && c.severed.IsZero()
}

// launch starts a kernel in the background, within its own time.
func (c *codeContext) launch(ctx context.Context) {
	if err := c.crashes.check(time.Now()); err != nil {
		c.failQueued(err)
		return
	}
	ctx, stop := context.WithTimeoutCause(ctx, c.launcher.cfg.StartTimeout, errStartTimeout)
	launched := make(chan launch, 1)
	c.launched, c.stopLaunch = launched, stop
	generation := c.generation + 1
	go func() {
		out := launch{err: &StartError{Problem: "internal fault of guestd"}}
		defer func() {
			if value := recover(); value != nil {
				c.log.Error("panic while starting a kernel", "value", value, "stack", string(debug.Stack()))
			}
			launched <- out
		}()
		out.session, out.err = c.launcher.start(ctx, generation)
	}()
}

func (c *codeContext) onLaunched(out launch) {
	c.stopLaunch()
	c.launched, c.stopLaunch = nil, nil
	if out.err != nil {
		c.log.Warn("starting a kernel failed", "error", out.err)
		if !errors.As(out.err, new(*LanguageUnavailableError)) {
			c.crashed(0, "it did not start")
		}
		c.failQueued(out.err)
		return
	}
	c.session = out.session
	c.generation = out.session.generation
	c.fresh = true
}

// tellWaiters says that there is a kernel, or why there is none.
func (c *codeContext) tellWaiters(err error) {
	for _, waiter := range c.waiters {
		waiter <- err
	}
	c.waiters = nil
}

// prepare starts a kernel if there is none, and waits until there is.
func (c *codeContext) prepare(ctx context.Context) error {
	return c.await(ctx, func() {})
}

// await does something on the loop, and then waits for a kernel.
func (c *codeContext) await(ctx context.Context, first func()) error {
	ready := make(chan error, 1)
	if err := c.call(func() { first(); c.waiters = append(c.waiters, ready) }); err != nil {
		return err
	}
	select {
	case err := <-ready:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// restart ends the kernel, if there is one, and waits for a fresh one. What was
// queued runs there.
func (c *codeContext) restart(ctx context.Context) error {
	return c.await(ctx, func() {
		c.crashes.healthy()
		c.looping.Store(nil)
		if c.session != nil && c.death == nil {
			c.restarting = true
			c.kill("the context was restarted")
		}
	})
}

// failQueued ends all that waits for a kernel that cannot be had. A start that
// is worth another try is tried by the next request.
func (c *codeContext) failQueued(err error) {
	c.tellWaiters(err)
	name := ErrorKernelStart
	if errors.As(err, new(*LanguageUnavailableError)) || errors.As(err, new(*LanguageNotFoundError)) {
		name = ErrorLanguageUnavailable
	}
	for _, x := range c.drain(nil) {
		x.log.append(Error{Name: name, Value: err.Error()})
		c.conclude(x, Finished{Status: Failed, StateLost: true})
	}
}

// conclude is the only way for an execution to end.
func (c *codeContext) conclude(x *Execution, f Finished) {
	x.finish(f)
	c.keep(x)
}

// shutDown ends everything that the context has. It is the loop's last act.
func (c *codeContext) shutDown(why error) {
	queued := c.drain(why)
	c.tellWaiters(why)
	c.leaveUnanswered()
	if c.launched != nil {
		c.stopLaunch()
		if out := <-c.launched; out.session != nil {
			out.session.close()
		}
	}
	lost := Finished{Status: KernelDied, StateLost: true}
	if c.run != nil {
		c.run.fail(ErrorKernelDied, why.Error())
		c.run.end(lost)
	}
	for _, x := range queued {
		x.log.append(Error{Name: ErrorKernelDied, Value: why.Error()})
		c.conclude(x, lost)
	}
	if c.session != nil {
		c.session.close()
	}
	c.closing.Wait()
}

// endOfInput is the reply by which ipykernel lets input() raise EOFError.
const endOfInput = "\x04"

// replyInput answers an input request of the running execution: the one with the
// given event number or, with 0, the newest.
func (c *codeContext) replyInput(x *Execution, number uint64, value string) error {
	outcome := ErrNoInputWanted
	err := c.call(func() {
		if c.run == nil || c.run.x != x || c.run.asked == nil || number != 0 && number != c.run.askedAt {
			return
		}
		asked := c.run.asked
		c.run.asked = nil
		_, outcome = c.session.send(jupyter.Stdin, jupyter.TypeInputReply, jupyter.InputReply{Value: value}, asked)
		if outcome != nil {
			c.sever(outcome)
		}
	})
	return errors.Join(err, outcome)
}
