package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// The parts of a shutdown after the drain, out of MaxShutdown.
const (
	// stopReserve is kept for killing what SIGTERM did not end, and for the calls and
	// connections that are left then.
	stopReserve = 4 * time.Second
	// farewell is how long calls that still run get to send what they have, such as
	// a process's exit, before they are ended.
	farewell = 300 * time.Millisecond
	// goodbye is how long connections then get to close in order.
	goodbye = 700 * time.Millisecond
	// lastKill is how long a shutdown that is about to give up waits for what it kills.
	lastKill = time.Second
)

// shutdown is the state of an Agent's end.
type shutdown struct {
	once   sync.Once
	begun  chan struct{} // closed when it begins
	done   chan struct{} // closed when all is over; err and gaveUp are then set
	err    error
	gaveUp bool            // not everything has ended; set with err
	hurry  context.Context // ends when there is to be no more waiting
	rushed context.CancelCauseFunc
}

func (s *shutdown) init() {
	s.begun, s.done = make(chan struct{}), make(chan struct{})
	s.hurry, s.rushed = context.WithCancelCause(context.Background())
}

// Shutdown ends everything, in this order: new work is refused (UNAVAILABLE, reason
// SHUTTING_DOWN) and health says NOT_SERVING; running calls get Config.Drain to
// end; processes and kernels get SIGTERM and then SIGKILL; calls that are left
// end; connections close. It takes MaxShutdown at most, and what can be waited
// for no longer is left: a process in uninterruptible sleep, a client that does
// not read.
//
// It may be called more than once and by several at the same time; all wait for
// the same end and return the same error. When the context of any of them ends,
// nothing is waited for any more: processes are killed and connections cut at
// once.
func (a *Agent) Shutdown(ctx context.Context) error {
	a.beginShutdown(a.cfg.drain(), false)
	unhook := context.AfterFunc(ctx, func() { a.shutdown.rushed(context.Cause(ctx)) })
	defer unhook()
	<-a.shutdown.done
	return a.shutdown.err
}

// Stopping is closed when a shutdown has begun.
func (a *Agent) Stopping() <-chan struct{} { return a.shutdown.begun }

// beginShutdown starts the shutdown, unless it has been. Its goroutine ends within
// MaxShutdown; whoever serves waits for it.
func (a *Agent) beginShutdown(drain time.Duration, sync bool) {
	a.shutdown.once.Do(func() {
		drained := a.gate.shut(errShuttingDown)
		a.health.Shutdown()
		close(a.shutdown.begun)
		go func() {
			defer close(a.shutdown.done)
			a.shutdown.err = a.boundShutdown(drained, drain)
			if sync {
				syscall.Sync()
			}
		}()
	})
}

// boundShutdown is runShutdown in MaxShutdown at most: what the kernel does not
// let go of is left to itself.
func (a *Agent) boundShutdown(drained <-chan struct{}, drain time.Duration) error {
	result := make(chan error, 1)
	go func() { result <- a.runShutdown(drained, drain) }()
	select {
	case err := <-result:
		return err
	case <-time.After(MaxShutdown - lastKill):
		return a.abandon(result)
	}
}

// abandon kills what a shutdown has not got to, and lets go of it where that does not bring
// its result soon: whoever waits for guestd's end is not to wait for that, too. The goroutine
// that kills is not waited for. It ends when each tree is dead or has been through
// as many rounds of killing as there are, unless the kernel holds on to it, or with guestd.
func (a *Agent) abandon(result <-chan error) error {
	go a.spawner.Kill()
	select {
	case err := <-result: // everything has ended after all
		return err
	case <-time.After(lastKill):
	}
	a.shutdown.gaveUp = true
	go a.server.Stop() // ends with the calls that are left
	return fmt.Errorf("not everything has ended within %v", MaxShutdown)
}

// runShutdown is everything after new work is refused.
func (a *Agent) runShutdown(drained <-chan struct{}, drain time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(a.shutdown.hurry, MaxShutdown-stopReserve, errors.New("the shutdown's time is over"))
	defer cancel()
	waitFor(ctx, drained, drain)
	err := a.closeWork(ctx)
	a.stopServer(ctx)
	return errors.Join(err, a.closeResources())
}

// waitFor waits until done, for as long as limit and ctx allow.
func waitFor(ctx context.Context, done <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// closeWork ends processes and kernels, side by side: SIGTERM, then SIGKILL.
func (a *Agent) closeWork(ctx context.Context) error {
	defer context.AfterFunc(ctx, a.spawner.KillStarts)() // what both may be waiting for
	var both sync.WaitGroup
	var processes, contexts error
	both.Go(func() { processes = a.processes.Close(ctx) })
	both.Go(func() { contexts = a.contexts.Close(ctx) })
	both.Wait()
	if processes != nil {
		processes = fmt.Errorf("ending processes: %w", processes)
	}
	if contexts != nil {
		contexts = fmt.Errorf("ending code contexts: %w", contexts)
	}
	return errors.Join(processes, contexts)
}

// stopServer ends calls and connections, in order while there is time.
func (a *Agent) stopServer(ctx context.Context) {
	stopped := make(chan struct{})
	go func() { // ends with Stop at the latest
		defer close(stopped)
		a.server.GracefulStop()
	}()
	waitFor(ctx, stopped, farewell)
	a.stopServing(errShuttingDown)
	waitFor(ctx, stopped, goodbye)
	a.server.Stop()
	<-stopped
}
