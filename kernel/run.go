package kernel

import (
	"encoding/json"
	"time"

	"guestd.internal/kernel/internal/jupyter"
)

const (
	// replyGrace is how long to wait for the reply after idle: a stock ipykernel
	// that is interrupted in its own code sends none.
	replyGrace = 500 * time.Millisecond
	// idleGrace is how long to wait for idle, or anything else on iopub, after the
	// reply, before the barrier asks.
	idleGrace = 5 * time.Second
	// maxBarriers is how often the barrier is tried before idle counts as lost.
	maxBarriers = 3
)

// lostReply is logged when a kernel has ended an execution without a reply.
const lostReply = "no reply came for an execution"

// run is the running execution. It is complete when the kernel has said idle on
// iopub, which is after all output, and has replied on shell; these two race.
type run struct {
	c   *codeContext
	x   *Execution
	log *eventLog // x's

	phase    phase
	replaced *surroundings // what the execution's own have replaced, or nil
	outcome  Finished      // while it is restoring

	id        string    // of the execute_request, parent of all that belongs to it
	begun     time.Time // when the code was sent, or what the kernel had to do before had ended
	behind    bool      // the kernel had questions to answer before
	started   bool      // Started is in the log
	first     bool      // in its kernel
	count     int64
	failed    bool // there is an Error event
	idle      bool
	idleAt    time.Time
	reply     *jupyter.ExecuteReply
	repliedAt time.Time
	asked     *jupyter.Header // the input_request that waits for an answer
	askedAt   uint64          // number of its event
	results   uint32          // in the log

	quietSince time.Time // the last time that iopub had something, or was not read
	barrier    string    // id of the last barrier's kernel_info_request
	barriers   int
	incomplete bool // idle was lost, and so may be output

	stopping *stopping // it is being interrupted
}

// begin gives an execution to the idle kernel.
func (c *codeContext) begin(x *Execution) {
	r := &run{c: c, x: x, log: x.log, first: c.fresh}
	c.run = r
	if !c.session.ours {
		// Whoever does not read such a kernel makes it lose output, or grow.
		r.log.unbind()
	}
	if own := newSurroundings(x.dir, x.env); own != nil {
		r.prepare(own)
	} else {
		r.send()
	}
}

// send sends the code. An idle kernel begins with it at once, and so it has begun
// now: when the kernel's own word of that is read the code has run for a while, and
// a duration counted from there would be shorter than what the code took.
func (r *run) send() {
	c, x := r.c, r.x
	c.fresh = false
	r.begun = time.Now()
	r.quietSince = r.begun
	r.behind = len(c.asked) > 0
	id, err := c.session.send(jupyter.Shell, jupyter.TypeExecuteRequest, jupyter.ExecuteRequest{
		Code:            x.code,
		StoreHistory:    true,
		UserExpressions: map[string]string{},
		AllowStdin:      x.allowStdin,
	}, nil)
	x.code = ""
	r.id = id
	c.recent.add(id, x.id)
	if err != nil {
		c.sever(err)
	}
}

// start puts Started into the log, once.
func (r *run) start(count int64) {
	if r.started {
		return
	}
	r.started = true
	r.count = count
	started := Started{ExecutionCount: count, KernelGeneration: r.c.session.generation}
	if r.first && started.KernelGeneration > 1 {
		started.FreshKernel, started.PreviousEnd = true, r.c.lastEnd
	}
	r.log.appendAt(r.begun, started)
	if r.stopping != nil && r.stopping.pending {
		if err := r.interruptKernel(); err != nil {
			r.c.sever(err)
		}
	}
}

// emit adds an event, after Started in any case.
func (r *run) emit(body Body) {
	r.start(0)
	r.log.append(body)
}

// fail adds the execution's error unless it has one. A KeyboardInterrupt that is
// the effect of a time-out comes after the TimeoutError and is left out so.
func (r *run) fail(name, value string) {
	r.raise(jupyter.ErrorContent{Name: name, Value: value})
}

func (r *run) raise(e jupyter.ErrorContent) {
	if r.failed {
		return
	}
	r.failed = true
	r.emit(boundedError(e))
}

// completeIfDone ends the execution once both halves are there.
func (r *run) completeIfDone() {
	if r.phase == running && r.idle && r.reply != nil {
		r.complete()
	}
}

// complete ends the execution with what the kernel said. The reply may be
// missing.
func (r *run) complete() {
	r.start(0)
	reply := r.reply
	if reply == nil {
		r.c.log.Warn(lostReply)
		reply = &jupyter.ExecuteReply{Status: jupyter.StatusOK}
	}
	if reply.ExecutionCount > 0 {
		r.count = reply.ExecutionCount
	}
	r.takePayload(reply.Payload)
	switch reply.Status {
	case jupyter.StatusError:
		r.raise(reply.ErrorContent) // in case iopub's was lost
	case jupyter.StatusAborted, "abort":
		r.fail(ErrorAborted, "the kernel did not run the code")
	}
	if r.reply == nil && r.c.session.ours && r.stopping == nil {
		// A stock kernel loses replies. In ours there is none only if user code has
		// broken it, and nobody knows what has run.
		r.fail(ErrorAborted, "the kernel did not say how the code ended")
	}
	f := Finished{Status: OK, OutputIncomplete: r.incomplete, StateLost: !r.c.leaving.IsZero()}
	switch {
	case r.stopping != nil:
		f.Status = r.stopping.status
	case r.failed:
		f.Status = Failed
	}
	r.c.crashes.healthy()
	f.Duration = time.Since(r.begun)
	r.restore(f)
}

// takePayload deals with what a reply asks a front end to do.
func (r *run) takePayload(payload []jupyter.Payload) {
	for _, p := range payload {
		switch p.Source {
		case "page": // the pager of help: name?
			r.emitResult(Result{Kind: Display, Parts: plain(parts(p.Data))})
		case "set_next_input": // %load and %recall: code to go on with
			r.emitResult(Result{Kind: Display, Parts: []MIMEPart{{MIME: "text/plain", Data: []byte(p.Text)}}})
		case "ask_exit": // exit() and quit(): the kernel is about to end
			r.c.leaving = time.Now().Add(exitGrace)
		}
	}
}

// end puts Finished into the log and frees the context for the next execution.
func (r *run) end(f Finished) {
	f.ExecutionCount = r.count
	if r.started && f.Duration == 0 {
		f.Duration = time.Since(r.begun)
	}
	r.c.run = nil
	r.c.done()
	r.c.conclude(r.x, f)
}

// nextTime is when this execution needs attention next if nothing happens.
func (r *run) nextTime() time.Time {
	if r.phase != running {
		return time.Time{} // the hidden request has its own
	}
	next := earliest(time.Time{}, r.deadline())
	if r.stopping != nil {
		next = earliest(next, r.stopping.next)
	}
	if blocked, until := r.log.blocked(); blocked {
		next = earliest(next, until)
	}
	switch {
	case r.idle && r.reply == nil:
		next = earliest(next, r.idleAt.Add(replyGrace))
	case r.reply != nil && !r.idle:
		next = earliest(next, r.barrierTime())
	}
	return next
}

func (r *run) barrierTime() time.Time {
	if r.quietSince.After(r.repliedAt) {
		return r.quietSince.Add(idleGrace)
	}
	return r.repliedAt.Add(idleGrace)
}

// onTime does what is due.
func (r *run) onTime(now time.Time) {
	if r.phase != running {
		return
	}
	if blocked, _ := r.log.blocked(); blocked {
		r.quietSince = now
	}
	switch {
	case due(r.deadline(), now):
		r.timeOut()
	case r.stopping != nil && due(r.stopping.next, now):
		r.escalate()
	case r.idle && r.reply == nil && due(r.idleAt.Add(replyGrace), now):
		r.complete()
	case r.reply != nil && !r.idle && due(r.barrierTime(), now):
		r.askBarrier(now)
	}
}

// askBarrier finds out whether idle was lost: iopub is first in, first out, so
// when the idle of a later request is there, all that came before it has come.
func (r *run) askBarrier(now time.Time) {
	if r.barriers == maxBarriers {
		r.incomplete = true
		r.complete()
		return
	}
	r.barriers++
	r.quietSince = now
	id, err := r.c.session.send(jupyter.Shell, jupyter.TypeKernelInfoRequest, json.RawMessage("{}"), nil)
	r.barrier = id
	if err != nil {
		r.c.sever(err)
	}
}
