package kernel

import (
	"errors"
	"time"

	"guestd.internal/kernel/internal/jupyter"
)

// hiddenTimeout is how long a kernel may take for a request of ours, which has
// nothing to wait for: one that does not answer will not answer the user either.
const hiddenTimeout = 10 * time.Second

// hidden is a request of ours that the kernel deals with between executions.
type hidden struct {
	id       string
	idle     bool
	reply    *jupyter.ExecuteReply
	deadline time.Time
	done     func(reply *jupyter.ExecuteReply) // not called if the kernel ends
}

// hide sends a request of ours.
func (c *codeContext) hide(request jupyter.ExecuteRequest, done func(*jupyter.ExecuteReply)) {
	id, err := c.session.send(jupyter.Shell, jupyter.TypeExecuteRequest, request, nil)
	c.hidden = &hidden{id: id, deadline: time.Now().Add(hiddenTimeout), done: done}
	if err != nil {
		c.sever(err)
	}
}

// onHiddenOutput deals with what comes on iopub for the hidden request: of all
// that, only its end matters.
func (c *codeContext) onHiddenOutput(msg *jupyter.Message) {
	if msg.State() == jupyter.StateIdle {
		c.hidden.idle = true
		c.completeHidden()
	}
}

func (c *codeContext) onHiddenReply(msg *jupyter.Message) error {
	reply := new(jupyter.ExecuteReply)
	err := msg.DecodeContent(reply)
	c.hidden.reply = reply
	c.completeHidden()
	return err
}

func (c *codeContext) completeHidden() {
	h := c.hidden
	if h.idle && h.reply != nil {
		c.hidden = nil
		h.done(h.reply)
	}
}

// phase is what a run is doing.
type phase int

const (
	running   phase = iota
	preparing       // the kernel is taking on the execution's surroundings
	restoring       // it is giving them up again
)

// prepare has the kernel take on the execution's surroundings. The code follows.
func (r *run) prepare(own *surroundings) {
	request, err := own.request()
	if err != nil {
		r.refuse(err)
		return
	}
	r.phase = preparing
	r.c.hide(request, r.onPrepared)
}

func (r *run) onPrepared(reply *jupyter.ExecuteReply) {
	replaced, err := before(reply)
	r.phase = running
	r.replaced = replaced
	switch {
	case err != nil:
		r.refuse(err)
	case r.stopping != nil: // interrupted before it began
		r.log.append(Error{Name: ErrorInterrupted, Value: "it had not begun"})
		r.restore(Finished{Status: r.stopping.status})
	default:
		r.send()
	}
}

// refuse ends the run without running its code.
func (r *run) refuse(err error) {
	e := Error{Name: ErrorSurroundings, Value: err.Error()}
	if refused, ok := errors.AsType[*changeError](err); ok {
		e = Error{Name: refused.Name, Value: refused.Value}
	}
	r.log.append(e)
	r.end(Finished{Status: Failed})
}

// restore ends the run once the kernel has its own surroundings again.
func (r *run) restore(f Finished) {
	if r.replaced == nil || f.StateLost {
		r.end(f)
		return
	}
	request, err := r.replaced.request()
	if err != nil {
		r.c.log.Error("restoring a kernel's environment", "error", err)
		r.end(f)
		return
	}
	r.phase, r.outcome = restoring, f
	r.c.hide(request, func(reply *jupyter.ExecuteReply) {
		if _, err := before(reply); err != nil {
			// The code has removed the folder that it was called from, or broken
			// its Python: it goes on where it is.
			r.c.log.Info("restoring a kernel's environment", "error", err)
		}
		r.end(f)
	})
}
