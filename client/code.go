package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// CodeRequest is a piece of code to run.
type CodeRequest struct {
	// Code is the code, valid UTF-8.
	Code string
	// Language is a language's name or alias; empty is Python. ContextID is the context to run in;
	// empty is the language's default one.
	Language, ContextID string
	// Timeout is how long it may run; then it is interrupted and keeps its state. 0 is guestd's
	// default of 60 s; a negative one means for ever.
	Timeout time.Duration
	// Env changes the environment for this execution only, as Cmd.Env.
	Env []string
	// Dir is its working directory for this execution only; empty is the context's.
	Dir string
	// AllowStdin: this client answers InputRequest events; otherwise input() raises at once.
	AllowStdin bool
}

// Execution is one run of one piece of code. It goes on in the guest whatever becomes of its
// reader. It is for one goroutine, save Interrupt and ReplyInput.
type Execution struct {
	client   *Client
	id       string
	context  string
	request  *guestdv1.ExecuteRequest
	ctx      context.Context
	cancel   context.CancelCauseFunc
	stream   executionStream
	begun    time.Time // the stream
	useful   bool      // it has brought something new
	futile   futility
	place    eventPlace
	acks     acknowledger
	opened   bool // a request is under way, so that there may be an execution
	pending  *guestdv1.ExecutionEvent
	finished bool
	asked    atomic.Uint64 // number of the newest InputRequest; 0 before the first
}

// errExecutionEndedEarly: guestd ended the call without Finished.
var errExecutionEndedEarly = errors.New("guestd ended the call before it told the execution's end")

// executionStream gives an execution's events: Execute or AttachExecution.
type executionStream func() (*guestdv1.ExecutionEvent, error)

// Execute runs code, and returns once guestd has taken it: queued, where the context is busy. Its
// events must then be read, with Events or Result. When ctx is done the reading ends and the code
// goes on: Interrupt it to end it.
func (c *Client) Execute(ctx context.Context, request CodeRequest) (*Execution, error) {
	message, err := executeRequest(request)
	if err != nil {
		return nil, err
	}
	x := &Execution{client: c, request: message}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	err = x.begin()
	if x.opened && broken(err) {
		// guestd may have taken the code before the connection broke: the request id makes the
		// second Execute tell the same execution's events then, rather than run the code again.
		err = c.comeBack(x.ctx, err, x.begin)
	}
	if err != nil {
		x.cancel(err)
		return nil, err
	}
	if x.pending.GetAccepted() == nil {
		err := fmt.Errorf("guestd began with %T instead of a header", x.pending.GetEvent())
		x.cancel(err)
		return nil, err
	}
	x.id, x.context = x.pending.GetExecutionId(), x.pending.GetAccepted().GetContextId()
	x.acks = acknowledger{client: c, ctx: x.ctx, execution: x.id, reader: message.GetReader().GetReaderId()}
	return x, nil
}

func executeRequest(r CodeRequest) (*guestdv1.ExecuteRequest, error) {
	if !utf8.ValidString(r.Code) {
		return nil, invalid("code", "not valid UTF-8")
	}
	if strings.TrimSpace(r.Code) == "" {
		return nil, invalid("code", "empty")
	}
	for field, text := range map[string]string{"language": r.Language, "context_id": r.ContextID} {
		if err := checkText(field, text); err != nil {
			return nil, err
		}
	}
	return &guestdv1.ExecuteRequest{
		RequestId: newRequestID(), ContextId: r.ContextID, Language: r.Language, Code: r.Code,
		Timeout: optionalDuration(r.Timeout), AllowStdin: r.AllowStdin, Env: environment(r.Env), Cwd: []byte(r.Dir),
		Reader: &guestdv1.EventReader{ReaderId: newReader().GetReaderId()},
	}, nil
}

// ID is the execution's id.
func (x *Execution) ID() string { return x.id }

// ContextID is the context that it runs in.
func (x *Execution) ContextID() string { return x.context }

// Events gives the execution's events in order, each once, beginning with Accepted; the last is
// Finished, unless an error comes instead. A broken connection is mended on the way. It can be
// ranged over once; ending early leaves the code running.
func (x *Execution) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		defer x.acks.wait()
		defer x.cancel(context.Canceled)
		for !x.finished {
			message, err := x.take()
			if err != nil {
				yield(Event{}, err)
				return
			}
			event, known := eventOf(message)
			if known && !yield(event, nil) {
				return
			}
		}
	}
}

func (x *Execution) take() (*guestdv1.ExecutionEvent, error) {
	if message := x.pending; message != nil {
		x.pending = nil
		return message, nil
	}
	return x.receive()
}

// receive takes the next new event, over a new stream where one breaks.
func (x *Execution) receive() (*guestdv1.ExecutionEvent, error) {
	for {
		event, err := x.stream()
		if err != nil {
			if err = x.mend(err); err != nil {
				return nil, err
			}
			continue
		}
		if !x.place.advance(event) {
			continue
		}
		x.useful = true
		if number := x.place.acknowledge(proto.Size(event)); number > 0 && x.id != "" {
			x.acks.acknowledge(number)
		}
		if event.GetInputRequest() != nil {
			x.asked.Store(event.GetNumber())
		}
		x.finished = event.GetFinished() != nil
		return event, nil
	}
}

// mend opens a new stream after one ended with err, and tells why where it cannot.
func (x *Execution) mend(err error) error {
	if errors.Is(err, io.EOF) {
		return errExecutionEndedEarly
	}
	broke := fromCall(x.ctx, err)
	if !broken(broke) {
		return broke
	}
	if why := x.futile.pause(x.ctx, time.Since(x.begun), x.useful); why != nil {
		return fmt.Errorf("%w: %w", why, broke)
	}
	return x.client.comeBack(x.ctx, broke, x.reopen)
}
