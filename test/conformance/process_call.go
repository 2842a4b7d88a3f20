package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	pb "guestd.internal/proto/guestd/v1"
)

// processCall drives one Exec or Attach: it collects what comes, holds every
// event against the contract, and acknowledges.
//
// One goroutine of its own sends, because an acknowledgement must not wait until
// input has been taken; it ends with the call's context. Events are received by
// whoever calls next, one caller at a time.
type processCall struct {
	out    outcome
	recv   func() (*pb.ProcessEvent, error)
	cancel context.CancelCauseFunc

	requests chan *pb.ProcessRequest // input and control, in order
	ackable  chan struct{}           // something is to be acknowledged
	sent     chan struct{}           // closed when nothing will be sent any more
	taken    chan struct{}           // guestd has taken more input
	fed      uint64                  // bytes of input given to requests
	left     bool                    // the client has said that it goes, so that no exit is due

	// mu protects the following.
	mu       sync.Mutex
	acks     map[pb.OutputStream]uint64 // to be acknowledged
	accepted uint64                     // bytes of input that guestd has
	closed   bool                       // it wants no more
}

// errCallEnded is the cause of a call's end when its case has what it wants.
var errCallEnded = errors.New("the case is done with the call")

// openExec begins an Exec and reads its header. A start that fails is the error.
func (g *guest) openExec(ctx context.Context, start *pb.ExecStart) (*processCall, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := g.process.Exec(ctx)
	if err != nil {
		cancel(err)
		return nil, err
	}
	recv := func() (*pb.ProcessEvent, error) {
		response, err := stream.Recv()
		return response.GetEvent(), err
	}
	send := func(r *pb.ProcessRequest) error { return stream.Send(&pb.ExecRequest{Request: r}) }
	first := &pb.ProcessRequest{Request: &pb.ProcessRequest_Start{Start: start}}
	return openCall(ctx, cancel, first, send, recv)
}

// openAttach begins an Attach and reads its header.
func (g *guest) openAttach(ctx context.Context, attach *pb.ProcessAttach) (*processCall, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := g.process.Attach(ctx)
	if err != nil {
		cancel(err)
		return nil, err
	}
	recv := func() (*pb.ProcessEvent, error) {
		response, err := stream.Recv()
		return response.GetEvent(), err
	}
	send := func(r *pb.ProcessRequest) error { return stream.Send(&pb.AttachRequest{Request: r}) }
	first := &pb.ProcessRequest{Request: &pb.ProcessRequest_Attach{Attach: attach}}
	return openCall(ctx, cancel, first, send, recv)
}

func openCall(ctx context.Context, cancel context.CancelCauseFunc, first *pb.ProcessRequest,
	send func(*pb.ProcessRequest) error, recv func() (*pb.ProcessEvent, error),
) (*processCall, error) {
	c := &processCall{
		recv: recv, cancel: cancel,
		requests: make(chan *pb.ProcessRequest), ackable: make(chan struct{}, 1), sent: make(chan struct{}),
		taken: make(chan struct{}, 1),
		acks:  make(map[pb.OutputStream]uint64),
	}
	go c.sendAll(ctx, send)
	c.put(first)
	if err := c.next(); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

func (c *processCall) sendAll(ctx context.Context, send func(*pb.ProcessRequest) error) {
	defer close(c.sent)
	for {
		var batch []*pb.ProcessRequest
		select {
		case request := <-c.requests:
			batch = append(batch, request)
		case <-c.ackable:
			batch = c.takeAcks()
		case <-ctx.Done():
			return
		}
		for _, request := range batch {
			// What ended the stream is told by recv.
			if err := send(request); err != nil {
				return
			}
		}
	}
}

func (c *processCall) takeAcks() []*pb.ProcessRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	var batch []*pb.ProcessRequest
	for stream, offset := range c.acks {
		ack := &pb.StreamOffset{Stream: stream, Offset: offset}
		batch = append(batch, &pb.ProcessRequest{Request: &pb.ProcessRequest_Ack{Ack: ack}})
	}
	clear(c.acks)
	return batch
}

// put sends a request; it returns when the sender has it or sends no more.
func (c *processCall) put(request *pb.ProcessRequest) {
	select {
	case c.requests <- request:
	case <-c.sent:
	}
}

// next receives one event and adds it to out. io.EOF is the proper end.
func (c *processCall) next() error {
	event, err := c.recv()
	if errors.Is(err, io.EOF) && c.out.exit == nil && !c.left {
		return errors.New("the call ended with OK and without exited")
	}
	if err != nil {
		return err
	}
	if err := c.out.take(event); err != nil {
		return err
	}
	c.note(event)
	return nil
}

// note has an event acknowledged and makes way for more input.
func (c *processCall) note(event *pb.ProcessEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accepted, c.closed = c.out.accepted, c.out.inputClosed
	wake(c.taken)
	if output := event.GetOutput(); output != nil {
		c.acks[output.Stream] = c.out.next[output.Stream]
		wake(c.ackable)
	}
}

// wake leaves a token in a channel that holds one.
func wake(tokens chan<- struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}

// finish receives until the call's end.
func (c *processCall) finish() (*outcome, error) {
	defer c.end()
	for {
		if err := c.next(); errors.Is(err, io.EOF) {
			return &c.out, nil
		} else if err != nil {
			return &c.out, err
		}
	}
}

// end cancels the call, if it is not over, and waits for its sender.
func (c *processCall) end() {
	c.cancel(errCallEnded)
	<-c.sent
}

// exec starts a process that its case wants to talk to. Should the case end before
// the process does, the process is killed.
func (g *guest) exec(t *testing.T, spec *pb.ProcessSpec) *processCall {
	t.Helper()
	return g.execStart(t, &pb.ExecStart{Spec: spec})
}

func (g *guest) execStart(t *testing.T, start *pb.ExecStart) *processCall {
	t.Helper()
	call, err := g.openExec(within(t), start)
	if err != nil {
		t.Fatalf("starting: %v", err)
	}
	t.Cleanup(func() {
		call.end()
		if call.out.exit == nil {
			g.kill(t, call.out.started.Pid)
		}
	})
	return call
}

// attach reads a process's output.
func (g *guest) attach(t *testing.T, attach *pb.ProcessAttach) *processCall {
	t.Helper()
	call, err := g.openAttach(within(t), attach)
	if err != nil {
		t.Fatalf("attaching: %v", err)
	}
	t.Cleanup(call.end)
	return call
}

// wait receives until the proper end of the call.
func (c *processCall) wait(t *testing.T) *outcome {
	t.Helper()
	out, err := c.finish()
	if err != nil {
		t.Fatalf("receiving: %v (%v)", err, out)
	}
	return out
}

// until receives until holds is true of what has come.
func (c *processCall) until(t *testing.T, what string, holds func(*outcome) bool) {
	t.Helper()
	for !holds(&c.out) {
		if err := c.next(); err != nil {
			t.Fatalf("waiting for %s: %v (%v)", what, err, &c.out)
		}
	}
}

// failure receives until the call's end, which must be an error.
func (c *processCall) failure(t *testing.T) error {
	t.Helper()
	out, err := c.finish()
	if err == nil {
		t.Errorf("the call succeeded: %v", out)
	}
	return err
}

// complete runs a process to its end and returns all of its output.
func (g *guest) complete(t *testing.T, spec *pb.ProcessSpec) *outcome {
	t.Helper()
	return g.exec(t, spec).wait(t)
}

// refuseExec fails the case unless the start is refused as wanted.
func (g *guest) refuseExec(t *testing.T, spec *pb.ProcessSpec, want refusal) {
	t.Helper()
	call, err := g.openExec(within(t), &pb.ExecStart{Spec: spec})
	if err == nil {
		err = fmt.Errorf("it was started: %w", call.failure(t))
	}
	wantRefusal(t, err, want)
}
