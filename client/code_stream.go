package client

import (
	"context"
	"errors"
	"io"
	"time"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// eventPlace is where a reader stands among an execution's events, of which it may see some twice
// after a reconnect.
type eventPlace struct {
	// last is the greatest number seen.
	last uint64
	// data is how much of each large part of the last result was seen, by MIME type.
	data map[string]uint64
	// missing is how many large parts of the last result have not come to their end.
	missing int
	// unacknowledged is how many bytes of events have come since the last acknowledgement.
	unacknowledged int
	// acknowledged: there was one.
	acknowledged bool
}

// firstAckBytes is after how many bytes of events the first acknowledgement is due. It comes early:
// guestd takes a reader that says nothing for half a second for one that never does, and lets go of
// what is on its way. A short execution needs none.
const firstAckBytes = 16 << 10

// advance tells whether an event is new, and takes from a piece of data what is not.
func (p *eventPlace) advance(e *guestdv1.ExecutionEvent) bool {
	if e.GetAttached() != nil {
		return false
	}
	if d := e.GetData(); d != nil && e.GetNumber() == p.last {
		return p.advanceData(d)
	}
	if e.GetNumber() <= p.last {
		return false
	}
	p.last = e.GetNumber()
	p.data = nil
	p.missing = 0
	for _, part := range e.GetResult().GetParts() {
		if part.GetSize() > 0 {
			p.missing++
		}
	}
	return true
}

// acknowledge notes an event of so many bytes, and tells the number up to which to acknowledge now:
// 0 for not yet. A result counts when all of it has come, since a reader that comes back is sent all
// of it again.
func (p *eventPlace) acknowledge(bytes int) uint64 {
	p.unacknowledged += bytes
	due := ackBytes
	if !p.acknowledged {
		due = firstAckBytes
	}
	if p.missing > 0 || p.unacknowledged < due {
		return 0
	}
	p.unacknowledged, p.acknowledged = 0, true
	return p.last
}

func (p *eventPlace) advanceData(d *guestdv1.ExecutionData) bool {
	seen := p.data[d.GetMime()]
	end := d.GetOffset() + uint64(len(d.GetBytes()))
	if end <= seen && seen > 0 {
		return false
	}
	if d.GetOffset() < seen {
		d.Bytes = d.GetBytes()[seen-d.GetOffset():]
		d.Offset = seen
	}
	if p.data == nil {
		p.data = make(map[string]uint64)
	}
	p.data[d.GetMime()] = end
	if d.GetLast() {
		p.missing--
	}
	return true
}

// begin opens the first stream of the execution's events, and takes its header.
func (x *Execution) begin() error {
	stream, err := x.client.code.Execute(x.ctx, x.request)
	if err != nil {
		return fromCall(x.ctx, err)
	}
	x.opened = true
	response, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return errExecutionEndedEarly
	}
	if err != nil {
		return fromCall(x.ctx, err)
	}
	x.pending, x.begun = response.GetEvent(), time.Now()
	x.place.advance(x.pending)
	x.stream = func() (*guestdv1.ExecutionEvent, error) {
		response, err := stream.Recv()
		return response.GetEvent(), err
	}
	return nil
}

// reopen opens another stream, from the last event on, of whose data a part may be missing. It is
// not Execute with the same request id: a guestd that was restarted would run the code again.
func (x *Execution) reopen() error {
	stream, err := x.client.code.AttachExecution(x.ctx, &guestdv1.AttachExecutionRequest{
		ExecutionId: x.id, FromNumber: x.place.last, Reader: x.request.GetReader(),
	})
	if err != nil {
		return fromCall(x.ctx, err)
	}
	// Only an answer shows that guestd serves the call and knows the execution.
	if _, err := stream.Recv(); err != nil {
		return fromCall(x.ctx, err)
	}
	x.begun, x.useful = time.Now(), false
	x.stream = func() (*guestdv1.ExecutionEvent, error) {
		response, err := stream.Recv()
		return response.GetEvent(), err
	}
	return nil
}

// Interrupt interrupts the execution, or removes it from its context's queue. The context keeps its
// state.
func (x *Execution) Interrupt(ctx context.Context) error {
	_, err := x.client.code.Interrupt(ctx, &guestdv1.InterruptRequest{
		Target: &guestdv1.InterruptRequest_ExecutionId{ExecutionId: x.id},
	})
	return fromCall(ctx, err)
}

// ReplyInput answers the newest InputRequest event with a line, without its line end. Where the code
// no longer waits for it the error's reason is NO_INPUT_REQUEST.
func (x *Execution) ReplyInput(ctx context.Context, line string) error {
	if err := checkText("value", line); err != nil {
		return err
	}
	return x.reply(ctx, &guestdv1.ReplyInputRequest{ExecutionId: x.id, Value: line})
}

// EndInput answers the newest InputRequest event with the end of input: input() raises EOFError.
func (x *Execution) EndInput(ctx context.Context) error {
	return x.reply(ctx, &guestdv1.ReplyInputRequest{ExecutionId: x.id, EndOfInput: true})
}

func (x *Execution) reply(ctx context.Context, request *guestdv1.ReplyInputRequest) error {
	request.RequestNumber = x.asked.Load() // a later request is another question
	_, err := x.client.code.ReplyInput(ctx, request)
	return fromCall(ctx, err)
}
