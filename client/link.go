package client

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// processStream is a bidirectional call that carries one process's events: Exec or Attach.
type processStream interface {
	Send(*guestdv1.ProcessRequest) error
	// SendInput sends a request that is encoded already.
	SendInput(*wire.Piece) error
	// Recv receives an event. Output's data is gone with the next Recv.
	Recv() (*guestdv1.ProcessEvent, error)
}

// response is an ExecResponse or an AttachResponse.
type response interface {
	proto.Message
	GetEvent() *guestdv1.ProcessEvent
}

// eventStream is a call whose responses are of type R.
type eventStream[R response] struct {
	grpc.ClientStream
	request func(*guestdv1.ProcessRequest) proto.Message // makes a message of the call's own type
	view    *wire.View[R]
}

func newEventStream[R response](stream grpc.ClientStream, request func(*guestdv1.ProcessRequest) proto.Message, response R) eventStream[R] {
	// The data's path: event, output, data.
	return eventStream[R]{stream, request, wire.NewView(response, outputData[R], 1, 3, 3)}
}

// outputData is the data of an event of output, nil of another.
func outputData[R response](response R) *[]byte {
	if output := response.GetEvent().GetOutput(); output != nil {
		return &output.Data
	}
	return nil
}

func (s eventStream[R]) Send(request *guestdv1.ProcessRequest) error {
	return s.SendMsg(s.request(request))
}

func (s eventStream[R]) SendInput(input *wire.Piece) error { return s.SendMsg(input) }

func (s eventStream[R]) Recv() (*guestdv1.ProcessEvent, error) {
	if err := s.RecvMsg(s.view); err != nil {
		s.view.Free()
		return nil, err
	}
	return s.view.Message().GetEvent(), nil
}

func execRequest(request *guestdv1.ProcessRequest) proto.Message {
	return &guestdv1.ExecRequest{Request: request}
}

func attachRequest(request *guestdv1.ProcessRequest) proto.Message {
	return &guestdv1.AttachRequest{Request: request}
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
func (c *Client) openLink(ctx context.Context, first *guestdv1.ProcessRequest) (*link, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := c.openStream(ctx, first)
	if err != nil {
		err = fromCall(ctx, err)
		cancel(err)
		return nil, err
	}
	return &link{stream: stream, ctx: ctx, cancel: cancel}, nil
}

func (c *Client) openStream(ctx context.Context, first *guestdv1.ProcessRequest) (processStream, error) {
	if first.GetAttach() != nil {
		stream, err := c.processes.Attach(ctx)
		return newEventStream(stream, attachRequest, &guestdv1.AttachResponse{}), err
	}
	stream, err := c.processes.Exec(ctx)
	return newEventStream(stream, execRequest, &guestdv1.ExecResponse{}), err
}
