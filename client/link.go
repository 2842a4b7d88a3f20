package client

import (
	"context"

	"google.golang.org/grpc"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// processStream is a bidirectional call that carries one process's events: Exec or Attach.
type processStream interface {
	Send(*guestdv1.ProcessRequest) error
	Recv() (*guestdv1.ProcessEvent, error)
}

type execStream struct {
	grpc.BidiStreamingClient[guestdv1.ExecRequest, guestdv1.ExecResponse]
}

func (s execStream) Send(request *guestdv1.ProcessRequest) error {
	return s.BidiStreamingClient.Send(&guestdv1.ExecRequest{Request: request})
}

func (s execStream) Recv() (*guestdv1.ProcessEvent, error) {
	response, err := s.BidiStreamingClient.Recv()
	return response.GetEvent(), err
}

type attachStream struct {
	grpc.BidiStreamingClient[guestdv1.AttachRequest, guestdv1.AttachResponse]
}

func (s attachStream) Send(request *guestdv1.ProcessRequest) error {
	return s.BidiStreamingClient.Send(&guestdv1.AttachRequest{Request: request})
}

func (s attachStream) Recv() (*guestdv1.ProcessEvent, error) {
	response, err := s.BidiStreamingClient.Recv()
	return response.GetEvent(), err
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
		return attachStream{stream}, err
	}
	stream, err := c.processes.Exec(ctx, options...)
	return execStream{stream}, err
}
