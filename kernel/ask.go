package kernel

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"guestd.internal/kernel/internal/jupyter"
)

var (
	// ErrNotSupported says that a language has no such operation.
	ErrNotSupported = errors.New("this context's language has no completion and no inspection")
	// ErrKernelEnded says that a kernel ended before it had answered.
	ErrKernelEnded = errors.New("the kernel ended before it had answered")
)

// maxAsked bounds the questions that wait for one kernel.
const maxAsked = 1000

// Cursor is a place in a piece of code, in Unicode code points.
type Cursor struct {
	Code string
	At   int
}

func (c Cursor) check() error {
	switch {
	case len(c.Code) > MaxCode:
		return &InvalidError{Field: "code", Problem: fmt.Sprintf("%d bytes, more than %d", len(c.Code), MaxCode)}
	case !utf8.ValidString(c.Code):
		return &InvalidError{Field: "code", Problem: "not valid UTF-8"}
	case c.At < 0 || c.At > utf8.RuneCountInString(c.Code):
		return &InvalidError{Field: "cursor", Problem: "not within the code"}
	}
	return nil
}

// Completion is what may stand in code between two places.
type Completion struct {
	Matches      []string
	Start, End   int    // in code points
	MetadataJSON []byte // a JSON object, or nil for none
}

// Complete completes code at a cursor. The kernel answers when it has run what
// it is running, so ctx should have a deadline. Errors are *InvalidError,
// ErrContextNotFound, ErrNotSupported, ErrKernelEnded, ErrQueueFull, those of
// Create about a kernel that does not start, and ctx's cause.
func (cs *Contexts) Complete(ctx context.Context, contextID string, at Cursor) (Completion, error) {
	var reply jupyter.CompleteReply
	request := jupyter.CompleteRequest{Code: at.Code, Cursor: at.At}
	if err := cs.ask(ctx, contextID, at, jupyter.TypeCompleteRequest, request, &reply); err != nil {
		return Completion{}, err
	}
	return Completion{Matches: reply.Matches, Start: reply.Start, End: reply.End, MetadataJSON: object(reply.Metadata)}, nil
}

// Inspect tells about the name at a cursor; detailed as "??" does. It returns nil
// where nothing is known. Errors are those of Complete.
func (cs *Contexts) Inspect(ctx context.Context, contextID string, at Cursor, detailed bool) ([]MIMEPart, error) {
	var reply jupyter.InspectReply
	request := jupyter.InspectRequest{Code: at.Code, Cursor: at.At}
	if detailed {
		request.Detail = 1
	}
	if err := cs.ask(ctx, contextID, at, jupyter.TypeInspectRequest, request, &reply); err != nil || !reply.Found {
		return nil, err
	}
	return plain(parts(reply.Data)), nil
}

func (cs *Contexts) ask(ctx context.Context, contextID string, at Cursor, msgType string, request, reply any) error {
	if err := at.check(); err != nil {
		return err
	}
	e, err := cs.context(contextID)
	if err != nil {
		return err
	}
	c, ok := e.(*codeContext)
	if !ok {
		return ErrNotSupported
	}
	msg, err := c.ask(ctx, msgType, request)
	if err != nil {
		return err
	}
	return msg.DecodeContent(reply)
}

// ask sends the kernel a question on shell, starting one if there is none, and
// waits for the answer.
func (c *codeContext) ask(ctx context.Context, msgType string, request any) (*jupyter.Message, error) {
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	var id string
	answer := make(chan *jupyter.Message, 1)
	outcome := ErrKernelEnded
	err := c.call(func() {
		switch {
		case !c.alive():
			return
		case len(c.asked) >= maxAsked:
			outcome = ErrQueueFull
			return
		}
		if id, outcome = c.session.send(jupyter.Shell, msgType, request, nil); outcome != nil {
			c.sever(outcome)
			outcome = ErrKernelEnded
			return
		}
		c.asked[id] = answer
	})
	if err = errors.Join(err, outcome); err != nil {
		return nil, err
	}
	select {
	case msg, ok := <-answer:
		if !ok {
			return nil, ErrKernelEnded
		}
		return msg, nil
	case <-ctx.Done(): // the kernel has the question all the same, and so it counts until it is answered
		return nil, context.Cause(ctx)
	}
}

// onAnswer gives a reply to whoever asked, and says whether somebody did.
func (c *codeContext) onAnswer(msg *jupyter.Message) bool {
	answer, ok := c.asked[msg.Parent.MsgID]
	if ok {
		delete(c.asked, msg.Parent.MsgID)
		answer <- msg
	}
	return ok
}

// leaveUnanswered ends all questions, because the kernel has.
func (c *codeContext) leaveUnanswered() {
	for _, answer := range c.asked {
		close(answer)
	}
	clear(c.asked)
}
