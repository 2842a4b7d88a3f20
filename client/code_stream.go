package client

import (
	"context"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// eventPlace is where a reader stands among an execution's events, of which it may see some twice after a reconnect.
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

// complete is the number up to which everything has been seen for sure: more data may belong to the last event.
func (p *eventPlace) complete(e *guestdv1.ExecutionEvent) uint64 {
	if e.GetResult() != nil || e.GetData() != nil {
		return p.last - 1
	}
	return p.last
}

// open opens a stream of the execution's events: the first by Execute, which guestd knows by its request id should it see it twice; the next where
// the reader stands.
func (x *Execution) open() error {
	if x.place.last == 0 {
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
	x.stream = func() (*guestdv1.ExecutionEvent, error) {
		response, err := stream.Recv()
		return response.GetEvent(), err
	}
	return nil
}

// acknowledge tells guestd from time to time how far the reader has got, so that it need not keep what came before. A guestd that
// does not take acknowledgements goes by what it has sent.
func (x *Execution) acknowledge(e *guestdv1.ExecutionEvent) {
	x.unacked += payloadBytes(e)
	if x.noAcks || x.unacked < ackBytes || x.finished {
		return
	}
	x.unacked = 0
	_, err := x.client.code.AcknowledgeExecution(x.ctx, &guestdv1.AcknowledgeExecutionRequest{
		ExecutionId: x.id, ReaderId: x.request.GetReader().GetReaderId(), Number: x.place.complete(e),
	})
	x.noAcks = err != nil && !broken(fromRPC(err)) // a break is the stream's business
}

func payloadBytes(e *guestdv1.ExecutionEvent) int {
	n := len(e.GetStdout().GetText()) + len(e.GetStderr().GetText()) + len(e.GetData().GetBytes())
	for _, part := range e.GetResult().GetParts() {
		n += len(part.GetInline())
	}
	return n
}

// Interrupt interrupts the execution, or removes it from its context's queue. The context keeps its state.
func (x *Execution) Interrupt(ctx context.Context) error {
	_, err := x.client.code.Interrupt(ctx, &guestdv1.InterruptRequest{
		Target: &guestdv1.InterruptRequest_ExecutionId{ExecutionId: x.id},
	})
	return fromCall(ctx, err)
}

// ReplyInput answers an InputRequest event with a line, without its line end.
func (x *Execution) ReplyInput(ctx context.Context, request Event, line string) error {
	if err := checkText("value", line); err != nil {
		return err
	}
	return x.reply(ctx, &guestdv1.ReplyInputRequest{ExecutionId: x.id, RequestNumber: request.Number, Value: line})
}

// EndInput answers an InputRequest event with the end of input: input() raises EOFError.
func (x *Execution) EndInput(ctx context.Context, request Event) error {
	return x.reply(ctx, &guestdv1.ReplyInputRequest{ExecutionId: x.id, RequestNumber: request.Number, EndOfInput: true})
}

func (x *Execution) reply(ctx context.Context, request *guestdv1.ReplyInputRequest) error {
	_, err := x.client.code.ReplyInput(ctx, request)
	return fromCall(ctx, err)
}
