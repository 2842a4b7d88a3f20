package kernel

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"guestd.internal/kernel/internal/jupyter"
)

// State says what a context is doing.
type State int

// States.
const (
	NoKernel     State = iota // the next execution starts one
	Starting                  // a kernel is starting
	Idle                      // a kernel is ready
	Busy                      // an execution runs
	Interrupting              // an execution is being interrupted
)

// Info describes a context.
type Info struct {
	ID         string
	Language   string
	User       string // the account's name, or its uid
	Created    time.Time
	State      State
	Queued     int    // executions that wait
	Execution  string // the id of the running execution, or ""
	Generation uint64 // of the current or last kernel; 0 before the first
	PID        int    // of the kernel; 0 without
	// BackgroundBytes counts the text that came from earlier executions after
	// their end, from threads for example. It belongs to none.
	BackgroundBytes uint64
}

// codeContext is one context. Its loop owns all fields but those that the mutex
// protects.
type codeContext struct {
	id       string
	launcher launcher
	created  time.Time
	keep     func(*Execution) // takes finished executions
	log      *slog.Logger

	calls chan func()   // run by the loop
	wake  chan struct{} // the queue has got an entry; capacity 1
	quit  func()        // asks the loop to end everything
	done  <-chan struct{}
	ended chan struct{} // the loop and all that it started are gone

	mu     sync.Mutex // protects the following
	queue  []*Execution
	active bool // an execution has left the queue and has not finished
	closed bool

	session    *session       // nil without a kernel
	launched   chan launch    // from the start in progress; nil without one
	stopLaunch func()         // ends it
	run        *run           // the running execution, or nil
	generation uint64         // of the last kernel
	lastEnd    string         // how the kernel before ended
	fresh      bool           // nothing has run in this kernel
	death      *death         // the kernel has died and is being drained
	crashes    crashes        // tells a crash loop
	leaving    time.Time      // exit() was called; kill it if it is still there by then
	killed     string         // why we killed the kernel, or ""
	severed    time.Time      // a connection has ended; kill the kernel if it is still there by then
	background uint64         // bytes that belonged to no execution
	closing    sync.WaitGroup // sessions being closed
}

// launch is the outcome of a kernel's start.
type launch struct {
	session *session
	err     error
}

func newCodeContext(id string, l launcher, keep func(*Execution)) *codeContext {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := &codeContext{
		id:       id,
		launcher: l,
		created:  time.Now(),
		keep:     keep,
		log:      l.cfg.Logger.With("context", id),
		calls:    make(chan func()),
		wake:     make(chan struct{}, 1),
		quit:     func() { cancel(ErrClosed) },
		done:     ctx.Done(),
		ended:    make(chan struct{}),
	}
	go c.loop(ctx)
	return c
}

// submit puts an execution into the queue.
func (c *codeContext) submit(x *Execution) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if len(c.queue) >= MaxQueue {
		return ErrQueueFull
	}
	position := len(c.queue)
	if c.active {
		position++
	}
	x.log.append(Accepted{QueuePosition: position})
	c.queue = append(c.queue, x)
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return nil
}

// next takes the first execution out of the queue, or returns nil.
func (c *codeContext) next() *Execution {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return nil
	}
	x := c.queue[0]
	c.queue[0] = nil
	c.queue = c.queue[1:]
	c.active = true
	return x
}

func (c *codeContext) queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue)
}

// dequeue removes an execution from the queue, and says whether it was there.
func (c *codeContext) dequeue(x *Execution) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, queued := range c.queue {
		if queued == x {
			c.queue = append(c.queue[:i:i], c.queue[i+1:]...)
			return true
		}
	}
	return false
}

// drainQueue takes everything out of the queue; with closed it stays empty.
func (c *codeContext) drainQueue(closed bool) []*Execution {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = c.closed || closed
	all := c.queue
	c.queue = nil
	return all
}

// call runs fn on the loop and waits for it.
func (c *codeContext) call(fn func()) error {
	ran := make(chan struct{})
	select {
	case c.calls <- func() { defer close(ran); fn() }:
		<-ran
		return nil
	case <-c.ended:
		return ErrClosed
	}
}

// loop is the context's actor. Every source of change is a case here, none of
// them blocks for long, and what has become possible happens in advance.
func (c *codeContext) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		c.advance(ctx)
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
	c.shutDown()
	close(c.ended)
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
	for c.run == nil && c.death == nil && c.leaving.IsZero() && c.severed.IsZero() {
		switch {
		case c.queued() == 0 || c.launched != nil:
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
		s, err := c.launcher.start(ctx, generation)
		launched <- launch{s, err}
	}()
}

func (c *codeContext) onLaunched(out launch) {
	c.stopLaunch()
	c.launched, c.stopLaunch = nil, nil
	if out.err != nil {
		c.log.Warn("starting a kernel failed", "error", out.err)
		if !errors.As(out.err, new(*LanguageUnavailableError)) {
			c.crashes.record(time.Now(), 0, "it did not start")
		}
		c.failQueued(out.err)
		return
	}
	c.session = out.session
	c.generation = out.session.generation
	c.fresh = true
}

// failQueued ends all that waits for a kernel that cannot be had. A start that
// is worth another try is tried by the next request.
func (c *codeContext) failQueued(err error) {
	name := ErrorKernelStart
	if errors.As(err, new(*LanguageUnavailableError)) || errors.As(err, new(*LanguageNotFoundError)) {
		name = ErrorLanguageUnavailable
	}
	for _, x := range c.drainQueue(false) {
		x.log.append(Error{Name: name, Value: err.Error()})
		c.conclude(x, Finished{Status: Failed, StateLost: true})
	}
}

// conclude is the only way for an execution to end.
func (c *codeContext) conclude(x *Execution, f Finished) {
	x.finish(f)
	c.keep(x)
}

// info describes the context as the loop sees it.
func (c *codeContext) info() (Info, error) {
	info := Info{ID: c.id, Language: c.launcher.language, User: c.launcher.userName(), Created: c.created}
	err := c.call(func() {
		info.Queued = c.queued()
		info.Generation = c.generation
		info.BackgroundBytes = c.background
		if c.session != nil {
			info.PID = c.session.child.PID()
		}
		if c.run != nil {
			info.Execution = c.run.x.id
		}
		info.State = c.state()
	})
	return info, err
}

func (c *codeContext) state() State {
	switch {
	case c.launched != nil:
		return Starting
	case c.run != nil && c.run.stopping != nil:
		return Interrupting
	case c.run != nil:
		return Busy
	case c.session == nil || c.death != nil:
		return NoKernel
	}
	return Idle
}

// shutDown ends everything that the context has. It is the loop's last act.
func (c *codeContext) shutDown() {
	queued := c.drainQueue(true)
	if c.launched != nil {
		c.stopLaunch()
		if out := <-c.launched; out.session != nil {
			out.session.close()
		}
	}
	lost := Finished{Status: KernelDied, StateLost: true}
	if c.run != nil {
		c.run.fail(ErrorKernelDied, "guestd is shutting down")
		c.run.end(lost)
	}
	for _, x := range queued {
		x.log.append(Error{Name: ErrorKernelDied, Value: "guestd is shutting down"})
		c.conclude(x, lost)
	}
	if c.session != nil {
		c.session.close()
	}
	c.closing.Wait()
}

// endOfInput is the reply by which ipykernel lets input() raise EOFError.
const endOfInput = "\x04"

// replyInput answers an input request of the running execution.
func (c *codeContext) replyInput(x *Execution, value string) error {
	outcome := ErrNoInputWanted
	err := c.call(func() {
		if c.run == nil || c.run.x != x || c.run.asked == nil {
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
