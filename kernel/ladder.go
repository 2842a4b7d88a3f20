package kernel

import (
	"fmt"
	"math"
	"time"

	"guestd.internal/kernel/internal/jupyter"
)

// The ladder by which a running execution is stopped. Its steps are never
// faster, since a storm of SIGINTs hits ipykernel's own machinery.
const (
	secondInterrupt = 2 * time.Second // after the first
	controlCheck    = 3 * time.Second // after the second
	killAfter       = 5 * time.Second // after the check
)

// stopping is the state of the ladder.
type stopping struct {
	status   Status // of the execution once it has ended: TimedOut or Interrupted
	steps    int    // done so far
	pending  bool   // an interrupt waits for the code to start
	next     time.Time
	check    string // id of the kernel_info_request on control
	answered bool
}

// deadline is when the execution's time is up, or zero.
func (r *run) deadline() time.Time {
	switch {
	case r.x.timeout == math.MaxInt64, r.stopping != nil && r.stopping.status == TimedOut:
		return time.Time{}
	case r.idle || r.reply != nil: // the code has ended
		return time.Time{}
	}
	return r.begun.Add(r.x.timeout)
}

// timeOut reports TimeoutError, whatever the code does, and starts the ladder. If
// somebody interrupted the execution before, the ladder goes on as it is.
func (r *run) timeOut() {
	r.fail(ErrorTimeout, fmt.Sprintf("the execution took longer than %s", r.x.timeout))
	r.stop(TimedOut)
}

// stop starts the ladder. From here on output is read even if nobody takes it
// from us: the kernel's last words are behind it.
func (r *run) stop(status Status) {
	r.log.unbind()
	if r.stopping != nil {
		r.stopping.status = status
		return
	}
	r.stopping = &stopping{status: status}
	r.escalate()
}

// escalate does the ladder's next step.
func (r *run) escalate() {
	s := r.stopping
	s.steps++
	now := time.Now()
	var err error
	switch s.steps {
	case 1:
		s.next = now.Add(secondInterrupt)
		err = r.interruptKernel()
	case 2:
		s.next = now.Add(controlCheck)
		err = r.interruptKernel()
	case 3:
		s.next = now.Add(killAfter)
		s.check, err = r.c.session.send(jupyter.Control, jupyter.TypeKernelInfoRequest, struct{}{}, nil)
	default:
		s.next = time.Time{}
		how := "its interpreter did not answer either"
		if s.answered {
			how = "its code went on"
		}
		r.c.kill("it was killed, since it ignored interrupts and " + how)
	}
	if err != nil {
		r.c.sever(err)
	}
}

// interruptKernel interrupts while the code runs: a SIGINT that comes before or
// after can end a stock ipykernel. One that is too early is sent when the code
// starts, or by the ladder's next step in any case.
func (r *run) interruptKernel() error {
	s := r.stopping
	switch {
	case r.idle:
		return nil
	case !r.started && s.steps == 1:
		s.pending = true
		return nil
	}
	s.pending = false
	return r.c.session.interrupt()
}

// interrupt stops the given execution, or whichever runs if it is nil, and says
// which one that was.
func (c *codeContext) interrupt(x *Execution) (stopped string, err error) {
	err = c.call(func() {
		switch {
		case x != nil && c.dequeue(x):
			x.log.append(Error{Name: ErrorInterrupted, Value: "it was taken out of the queue"})
			c.conclude(x, Finished{Status: Interrupted})
			stopped = x.id
		case c.run == nil || x != nil && c.run.x != x || c.death != nil:
		case c.run.phase == restoring || c.run.idle || c.run.reply != nil: // its code has ended
		default:
			stopped = c.run.x.id
			c.run.interrupt()
		}
	})
	return stopped, err
}

func (r *run) interrupt() {
	switch {
	case r.stopping != nil: // the ladder goes on
	case r.phase == preparing:
		r.stopping = &stopping{status: Interrupted}
	default:
		r.stop(Interrupted)
	}
}

// earliest is the earlier of two times, of which zero stands for never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func due(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// untilNext is how long the loop may wait for something to happen.
func (c *codeContext) untilNext() time.Duration {
	next := earliest(c.leaving, c.severed)
	if c.hidden != nil {
		next = earliest(next, c.hidden.deadline)
	}
	switch {
	case c.death != nil:
		next = earliest(next, c.death.next())
	case c.run != nil:
		next = earliest(next, c.run.nextTime())
	}
	if next.IsZero() {
		return time.Hour
	}
	return max(time.Until(next), 0)
}

// onTime does what is due.
func (c *codeContext) onTime(now time.Time) {
	switch {
	case c.death != nil:
		if due(c.death.next(), now) {
			c.bury()
		}
	case due(c.leaving, now):
		c.kill("it was killed, since it had been told to exit and did not")
	case due(c.severed, now):
		c.kill("it was killed, since its connection broke")
	case c.hidden != nil && due(c.hidden.deadline, now):
		c.kill("it was killed, since it did not answer")
	case c.run != nil:
		c.run.onTime(now)
	}
}
