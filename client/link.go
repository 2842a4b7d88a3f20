package client

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// processStream is a bidirectional call that carries one process's events: Exec or Attach.
type processStream interface {
	Send(*guestdv1.ProcessRequest) error
	// Recv receives an event. Output's data is gone with the next Recv.
	Recv() (*guestdv1.ProcessEvent, error)
}

// outputPath leads from ExecResponse and from AttachResponse to the data of a ProcessOutput: event,
// output, data.
var outputPath = []protowire.Number{1, 3, 3}

// outputData is the data of an event of output, nil of another.
func outputData[M interface{ GetEvent() *guestdv1.ProcessEvent }](response M) *[]byte {
	if output := response.GetEvent().GetOutput(); output != nil {
		return &output.Data
	}
	return nil
}

type execStream struct {
	grpc.BidiStreamingClient[guestdv1.ExecRequest, guestdv1.ExecResponse]
	view *wire.View[*guestdv1.ExecResponse]
}

func newExecStream(stream grpc.BidiStreamingClient[guestdv1.ExecRequest, guestdv1.ExecResponse]) execStream {
	return execStream{stream, wire.NewView(&guestdv1.ExecResponse{}, outputData[*guestdv1.ExecResponse], outputPath...)}
}

func (s execStream) Send(request *guestdv1.ProcessRequest) error {
	return s.BidiStreamingClient.Send(&guestdv1.ExecRequest{Request: request})
}

func (s execStream) Recv() (*guestdv1.ProcessEvent, error) {
	err := s.RecvMsg(s.view)
	if err != nil {
		s.view.Free()
		return nil, err
	}
	return s.view.Message().GetEvent(), nil
}

type attachStream struct {
	grpc.BidiStreamingClient[guestdv1.AttachRequest, guestdv1.AttachResponse]
	view *wire.View[*guestdv1.AttachResponse]
}

func newAttachStream(stream grpc.BidiStreamingClient[guestdv1.AttachRequest, guestdv1.AttachResponse]) attachStream {
	return attachStream{stream, wire.NewView(&guestdv1.AttachResponse{}, outputData[*guestdv1.AttachResponse], outputPath...)}
}

func (s attachStream) Send(request *guestdv1.ProcessRequest) error {
	return s.BidiStreamingClient.Send(&guestdv1.AttachRequest{Request: request})
}

func (s attachStream) Recv() (*guestdv1.ProcessEvent, error) {
	err := s.RecvMsg(s.view)
	if err != nil {
		s.view.Free()
		return nil, err
	}
	return s.view.Message().GetEvent(), nil
}

// link is one stream of a session, from its opening to its break. Requests after the first are sent
// by one goroutine alone, which is started when there is something to send, so that a short command
// without input costs none.
type link struct {
	stream processStream
	ctx    context.Context
	cancel context.CancelCauseFunc
	// sending is closed when the sender has ended; nil before it is started. The session's outbox
	// guards it.
	sending chan struct{}
}

// openLink opens a stream for a first request, which it does not send yet.
func (c *Client) openLink(ctx context.Context, first *guestdv1.ProcessRequest, options ...grpc.CallOption) (*link, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := c.openStream(ctx, first, options)
	if err != nil {
		err = fromCall(ctx, err)
		cancel(err)
		return nil, err
	}
	return &link{stream: stream, ctx: ctx, cancel: cancel}, nil
}

func (c *Client) openStream(ctx context.Context, first *guestdv1.ProcessRequest, options []grpc.CallOption) (processStream, error) {
	if first.GetAttach() != nil {
		stream, err := c.processes.Attach(ctx, options...)
		return newAttachStream(stream), err
	}
	stream, err := c.processes.Exec(ctx, options...)
	return newExecStream(stream), err
}
