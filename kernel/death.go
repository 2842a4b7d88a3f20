package kernel

import (
	"fmt"
	"time"

	"guestd.internal/internal/spawn"
	"guestd.internal/kernel/internal/jupyter"
)

const (
	// drainQuiet ends the reading of a dead kernel's output: what it had sent is
	// in our socket's buffer, but a forked child may hold the other end open.
	drainQuiet = 200 * time.Millisecond
	drainCap   = time.Second

	// exitGrace is how long a kernel may take to exit after exit().
	exitGrace = 5 * time.Second
	// severedGrace is how long a kernel may outlive its connection: the end of
	// file comes before the end of the process, and Python's exit handlers between.
	severedGrace = 2 * time.Second
	// killGrace is how long a killed kernel may take to be gone.
	killGrace = 10 * time.Second
)

// death is a dead kernel whose last output is being read.
type death struct {
	silentFrom time.Time // the last time that something came
	latest     time.Time
}

func (d *death) next() time.Time { return earliest(d.silentFrom.Add(drainQuiet), d.latest) }

// onDeath notices that the kernel's process has ended. Its end is told by the
// process alone: connections may stay open without it, or break before.
func (c *codeContext) onDeath() {
	now := time.Now()
	c.death = &death{silentFrom: now, latest: now.Add(drainCap)}
	if c.run == nil {
		c.bury() // nobody waits for its output
		return
	}
	c.run.log.unbind()
}

func (c *codeContext) sawOutput() {
	if c.death != nil {
		c.death.silentFrom = time.Now()
	}
}

// onConnectionEnd deals with the end of a connection, which is final.
func (c *codeContext) onConnectionEnd(in incoming) {
	switch {
	case c.death == nil:
		c.sever(in.err)
	case in.channel == jupyter.IOPub:
		c.bury() // all of its output has come
	}
}

// sever gives up a kernel that cannot be spoken to any more: if it has not ended
// by itself in a moment, it is killed.
func (c *codeContext) sever(err error) {
	if c.session.died() || !c.severed.IsZero() || !c.leaving.IsZero() {
		return
	}
	c.log.Info("a kernel's connection broke", "error", err)
	c.severed = time.Now().Add(severedGrace)
}

// kill ends the kernel and all its processes. The rest follows from its death.
func (c *codeContext) kill(why string) {
	c.log.Warn("killing a kernel", "reason", why)
	if c.killed == "" {
		c.killed = why
	}
	c.leaving = time.Time{}
	c.severed = time.Now().Add(killGrace) // tries again
	s := c.session
	c.closing.Go(func() {
		if err := s.child.KillTree(); err != nil {
			c.log.Warn("killing a kernel's processes", "error", err)
		}
	})
}

// bury ends the running execution with the kernel's end, gives back all that the
// kernel had, and leaves the context ready for a new one.
func (c *codeContext) bury() {
	s := c.session
	status := s.child.Status()
	c.lastEnd = "the kernel " + describeEnd(status)
	if c.killed != "" {
		c.lastEnd = "the kernel did not stop: " + c.killed
	}
	switch {
	case c.restarting:
		c.lastEnd = "the context was restarted"
	case c.leaving.IsZero():
		c.crashed(time.Since(s.ready), c.lastEnd)
	}
	c.log.Info("a kernel ended", "how", c.lastEnd, "generation", s.generation)
	if r := c.run; r != nil {
		r.onKernelDeath(status)
	}
	c.giveUp()
}

// giveUp ends all that is left of the kernel, in the background, and leaves the
// context without one.
func (c *codeContext) giveUp() {
	s := c.session
	c.session, c.death, c.hidden = nil, nil, nil
	c.leaving, c.severed, c.killed, c.restarting = time.Time{}, time.Time{}, "", false
	c.leaveUnanswered()
	c.closing.Go(s.close)
}

// crashed counts a death, or a start that failed. It comes before anybody is told
// of it: whoever sees an execution end by the last death of a crash loop, and
// submits another one, is refused.
func (c *codeContext) crashed(lived time.Duration, how string) {
	now := time.Now()
	c.crashes.record(now, lived, how)
	if err := c.crashes.check(now); err != nil {
		c.looping.Store(err)
	}
}

func (r *run) onKernelDeath(status spawn.Status) {
	if r.phase == restoring { // the code had ended before
		r.outcome.StateLost = true
		r.end(r.outcome)
		return
	}
	f := Finished{Status: KernelDied, StateLost: true, HasExit: true, ExitCode: status.Code, Signal: status.Signal}
	if r.stopping != nil && r.stopping.status == TimedOut {
		f.Status = TimedOut
	} else {
		r.fail(ErrorKernelDied, r.c.lastEnd)
	}
	r.end(f)
}

func describeEnd(status spawn.Status) string {
	switch {
	case status.OOMKilled:
		return "ran out of memory and was killed"
	case status.Signal != 0:
		return fmt.Sprintf("was ended by signal %d (%s)", int(status.Signal), status.Signal)
	}
	return fmt.Sprintf("exited with code %d", status.Code)
}

// A crash loop is maxCrashes deaths in a row of kernels that neither finished an
// execution nor lived for healthyAfter. No kernel is started for coolDown then.
const (
	maxCrashes   = 5
	healthyAfter = 10 * time.Second
	coolDown     = 10 * time.Second
)

// crashes counts deaths in a row.
type crashes struct {
	count int
	last  time.Time
	how   string // the last one
}

func (cr *crashes) healthy() { cr.count = 0 }

func (cr *crashes) record(now time.Time, lived time.Duration, how string) {
	if lived >= healthyAfter {
		cr.count = 0
	}
	cr.count++
	cr.last, cr.how = now, how
}

// check says whether a kernel may be started: nil or why not. After the cool-down
// one more try is free.
func (cr *crashes) check(now time.Time) *CrashLoopError {
	until := cr.last.Add(coolDown)
	if cr.count < maxCrashes || !now.Before(until) {
		return nil
	}
	return &CrashLoopError{Count: cr.count, How: cr.how, Until: until}
}

// submit queues an execution, unless kernels keep dying.
func (c *codeContext) submit(x *Execution) error {
	if loop := c.looping.Load(); loop != nil && time.Now().Before(loop.Until) {
		return loop
	}
	return c.queue.submit(x)
}
