package client

import (
	"context"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// eventPlace is where a reader stands among an execution's events, of which it may see some twice
// after a reconnect.
type eventPlace struct {
	// last is the greatest number seen.
	last uint64
	// data is how much of each large part of the last result was seen, by MIME type.
	data map[string]uint64
}

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
	return true
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
	return true
}

// open opens the first stream of the execution's events.
func (x *Execution) open() error {
	stream, err := x.client.code.Execute(x.ctx, x.request)
	if err != nil {
		return fromCall(x.ctx, err)
	}
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
		ExecutionId: x.id, FromNumber: x.place.last,
	})
	if err != nil {
		return fromCall(x.ctx, err)
	}
	// Only an answer shows that guestd serves the call and knows the execution.
	if _, err := stream.Recv(); err != nil {
		return fromCall(x.ctx, err)
	}
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

// ReplyInput answers the newest InputRequest event with a line, without its line end.
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
	_, err := x.client.code.ReplyInput(ctx, request)
	return fromCall(ctx, err)
}
