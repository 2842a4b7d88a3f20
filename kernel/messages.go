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
	case r != nil && parent == r.id && parent != "":
		if err := r.onOutput(msg); err != nil {
			c.session.rejected.Add(1)
			c.log.Debug("leaving out a kernel's message", "error", err)
		}
	case r != nil && parent == r.barrier && parent != "" && msg.State() == jupyter.StateIdle:
		r.idle, r.idleAt, r.incomplete = true, time.Now(), true
	default:
		c.onBackground(msg)
		return
	}
	r.completeIfDone()
}

func (c *codeContext) onBackground(msg *jupyter.Message) {
	var stream jupyter.Stream
	if msg.Header.MsgType == jupyter.TypeStream && msg.DecodeContent(&stream) == nil {
		c.background += uint64(len(stream.Text))
	}
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
	switch state {
	case jupyter.StateBusy:
		if !r.started {
			r.begun = time.Now()
		}
	case jupyter.StateIdle:
		r.idle, r.idleAt = true, time.Now()
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
	result := Result{Kind: kind, DisplayID: display.Transient.DisplayID}
	for _, part := range jupyter.Parts(display.Data) {
		result.Parts = append(result.Parts, MIMEPart(part))
	}
	if metadata := string(display.Metadata); metadata != "" && metadata != "{}" && metadata != "null" {
		result.MetadataJSON = []byte(metadata)
	}
	r.emit(result)
	return nil
}

// onOversized tells what was too large to be taken. Of a stream not even the name
// is known; it is stdout nearly always.
func (r *run) onOversized(msg *jupyter.Message) error {
	gap := Gap{Stream: StreamResult, Bytes: msg.Skipped}
	if msg.Header.MsgType == jupyter.TypeStream {
		gap.Stream = StreamStdout
	}
	r.emit(gap)
	return nil
}

// onReply deals with what comes on shell, control and stdin.
func (c *codeContext) onReply(in incoming) {
	if in.err != nil {
		c.onConnectionEnd(in)
		return
	}
	r, msg := c.run, in.msg
	if r == nil || msg.Parent.MsgID == "" {
		return
	}
	var err error
	switch {
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
	r.emit(InputRequest{Prompt: input.Prompt, Password: input.Password})
	return nil
}
