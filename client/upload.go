package client

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
)

// upload is a call whose requests carry a header and then data, and which guestd answers once: a
// FileWriter's or an ArchiveWriter's. It is for one goroutine, and ends with commit or abort.
type upload[Request, Response any] struct {
	// data makes a request of bytes.
	data func([]byte) *Request
	// early is what it means that guestd is content before all was sent, ended that something is sent
	// after the end.
	early, ended error

	ctx    context.Context
	cancel context.CancelCauseFunc
	stream grpc.ClientStreamingClient[Request, Response]
	err    error // what ended it
}

// open begins the call and sends its header.
func (u *upload[Request, Response]) open(ctx context.Context,
	call func(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[Request, Response], error), header *Request,
) error {
	u.ctx, u.cancel = context.WithCancelCause(ctx)
	stream, err := call(u.ctx)
	if err != nil {
		err = fromCall(u.ctx, err)
		u.cancel(err)
		return err
	}
	u.stream = stream
	return u.send(header)
}

// write sends bytes in pieces. The caller may use p again when it returns: messages are encoded then.
func (u *upload[Request, Response]) write(p []byte) (int, error) {
	var written int
	for len(p) > 0 {
		piece := p[:min(len(p), chunkBytes)]
		if err := u.send(u.data(piece)); err != nil {
			return written, err
		}
		written += len(piece)
		p = p[len(piece):]
	}
	return written, nil
}

// send sends a request, or a wire.Piece that is one.
func (u *upload[Request, Response]) send(request any) error {
	if u.err != nil {
		return u.err
	}
	err := u.stream.SendMsg(request)
	if errors.Is(err, io.EOF) { // guestd has answered already, and the answer says why
		if _, err = u.stream.CloseAndRecv(); err == nil {
			err = u.early
		}
	}
	if err != nil {
		u.end(fromCall(u.ctx, err))
	}
	return u.err
}

// commit ends the requests and returns guestd's answer.
func (u *upload[Request, Response]) commit() (*Response, error) {
	if u.err != nil {
		return nil, u.err
	}
	response, err := u.stream.CloseAndRecv()
	if err != nil {
		u.end(fromCall(u.ctx, err))
		return nil, u.err
	}
	u.end(u.ended)
	return response, nil
}

// abort gives the call up, unless it has ended.
func (u *upload[Request, Response]) abort() {
	if u.err == nil {
		u.end(u.ended)
	}
}

func (u *upload[Request, Response]) end(err error) {
	u.err = err
	u.cancel(err)
}
