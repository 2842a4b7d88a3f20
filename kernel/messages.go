package kernel

import (
	"errors"
	"fmt"
	"time"

	"guestd.internal/kernel/internal/jupyter"
)

// onIOPub deals with a kernel's broadcast. What belongs to the running execution
// goes to its log; what an earlier one left behind belongs to nobody.
func (c *codeContext) onIOPub(in incoming) {
	if in.err != nil {
		c.onConnectionEnd(in)
		return
	}
	c.sawOutput()
	r, msg := c.run, in.msg
	switch parent := msg.Parent.MsgID; {
	case c.hidden != nil && parent == c.hidden.id:
		c.onHiddenOutput(msg)
		return
	case r != nil && parent == r.id && parent != "" && r.phase == running:
		if err := r.onOutput(msg); err != nil {
			c.session.rejected.Add(1)
			c.log.Debug("leaving out a kernel's message", "error", err)
		}
	case r != nil && parent == r.barrier && parent != "" && msg.State() == jupyter.StateIdle:
		r.idle, r.idleAt, r.incomplete = true, time.Now(), true
	default:
		if r != nil && msg.State() == jupyter.StateIdle {
			r.onOthersEnd()
		}
		c.onBackground(msg)
		return
	}
	r.completeIfDone()
}

func (c *codeContext) onBackground(msg *jupyter.Message) {
	var stream jupyter.Stream
	if msg.Header.MsgType != jupyter.TypeStream || msg.DecodeContent(&stream) != nil {
		return
	}
	c.background += uint64(len(stream.Text))
	out := &BackgroundOutput{ExecutionID: c.recent.execution(msg.Parent.MsgID), Stream: StreamStdout, Text: stream.Text}
	if stream.Name == "stderr" {
		out.Stream = StreamStderr
	}
	c.tell(WatchEvent{Output: out})
}

// recent knows the executions behind the last requests.
type recent struct {
	requests [256]struct{ request, execution string }
	next     int
}

func (k *recent) add(request, execution string) {
	k.requests[k.next] = struct{ request, execution string }{request, execution}
	k.next = (k.next + 1) % len(k.requests)
}

// execution returns "" for what is not known, or not any more.
func (k *recent) execution(request string) string {
	for _, known := range k.requests {
		if known.request == request && request != "" {
			return known.execution
		}
	}
	return ""
}

// onOutput deals with a message on iopub whose parent is this execution.
func (r *run) onOutput(msg *jupyter.Message) error {
	r.quietSince = time.Now()
	if msg.Skipped > 0 {
		return r.onOversized(msg)
	}
	switch msg.Header.MsgType {
	case jupyter.TypeStatus:
		r.onStatus(msg.State())
	case jupyter.TypeExecuteInput:
		var input jupyter.ExecuteInput
		if err := msg.DecodeContent(&input); err != nil {
			return err
		}
		r.start(input.ExecutionCount)
	case jupyter.TypeStream:
		return r.onStream(msg)
	case jupyter.TypeExecuteResult:
		return r.onDisplay(msg, Main)
	case jupyter.TypeDisplayData:
		return r.onDisplay(msg, Display)
	case jupyter.TypeUpdateDisplayData:
		return r.onDisplay(msg, Update)
	case jupyter.TypeClearOutput:
		var clear jupyter.ClearOutput
		if err := msg.DecodeContent(&clear); err != nil {
			return err
		}
		r.emit(ClearOutput{Wait: clear.Wait})
	case jupyter.TypeError:
		var content jupyter.ErrorContent
		if err := msg.DecodeContent(&content); err != nil {
			return err
		}
		r.raise(content)
	}
	return nil
}

func (r *run) onStatus(state string) {
	if state == jupyter.StateIdle {
		r.idle, r.idleAt = true, time.Now()
	}
}

// onOthersEnd deals with the end of a request that is not the code: if the kernel
// had such to deal with first, the code begins now.
func (r *run) onOthersEnd() {
	if r.behind && !r.started {
		r.begun = time.Now()
	}
}

func (r *run) onStream(msg *jupyter.Message) error {
	var stream jupyter.Stream
	if err := msg.DecodeContent(&stream); err != nil {
		return err
	}
	switch stream.Name {
	case "stdout":
		r.emit(Stdout{Text: stream.Text})
	case "stderr":
		r.emit(Stderr{Text: stream.Text})
	default:
		return fmt.Errorf("%w: stream %.100q", jupyter.ErrMalformed, stream.Name)
	}
	return nil
}

func (r *run) onDisplay(msg *jupyter.Message, kind ResultKind) error {
	var display jupyter.Display
	if err := msg.DecodeContent(&display); err != nil {
		return err
	}
	r.emitResult(Result{
		Kind: kind, DisplayID: display.Transient.DisplayID,
		Parts: parts(display.Data), MetadataJSON: object(display.Metadata),
	})
	return nil
}

// emitResult adds a result under the next number.
func (r *run) emitResult(result Result) {
	r.results++
	result.Number = r.results
	r.emit(result)
}

// onReply deals with what comes on shell, control and stdin.
func (c *codeContext) onReply(in incoming) {
	if in.err != nil {
		c.onConnectionEnd(in)
		return
	}
	r, msg := c.run, in.msg
	if msg.Parent.MsgID == "" || c.onAnswer(msg) || r == nil {
		return
	}
	var err error
	switch {
	case c.hidden != nil && msg.Parent.MsgID == c.hidden.id:
		err = c.onHiddenReply(msg)
	case r.phase != running:
		return
	case in.channel == jupyter.Shell && msg.Parent.MsgID == r.id && msg.Header.MsgType == jupyter.TypeExecuteReply:
		err = r.onExecuteReply(msg)
	case in.channel == jupyter.Stdin && msg.Parent.MsgID == r.id && msg.Header.MsgType == jupyter.TypeInputRequest:
		err = r.onInputRequest(msg)
	case in.channel == jupyter.Control && r.stopping != nil && msg.Parent.MsgID == r.stopping.check:
		r.stopping.answered = true
	}
	if err != nil {
		c.session.rejected.Add(1)
		c.log.Warn("leaving out a kernel's message", "error", err)
	}
	r.completeIfDone()
}

func (r *run) onExecuteReply(msg *jupyter.Message) error {
	reply := new(jupyter.ExecuteReply)
	err := msg.DecodeContent(reply)
	if err != nil && !errors.Is(err, jupyter.ErrMalformed) {
		return err
	}
	// Even a reply that makes no sense, or is too large, is the code's end.
	r.reply, r.repliedAt = reply, time.Now()
	return err
}

func (r *run) onInputRequest(msg *jupyter.Message) error {
	if !r.x.allowStdin || r.asked != nil {
		return fmt.Errorf("%w: an input_request that nobody waits for", jupyter.ErrMalformed)
	}
	var input jupyter.InputRequest
	if err := msg.DecodeContent(&input); err != nil {
		return err
	}
	r.asked = &msg.Header
	r.start(0)
	r.askedAt = r.log.append(InputRequest{Prompt: input.Prompt, Password: input.Password})
	return nil
}
