package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// download is a call that guestd answers with a header and then data: a FileReader's or an
// ArchiveReader's. It is for one goroutine, and must be closed.
type download[Response fileResponse] struct {
	// what is read, for messages.
	what string
	// other gets the responses without data that follow the header.
	other func(Response)
	// atEnd is what the stream's end means: io.EOF where nothing is missing.
	atEnd func() error

	ctx    context.Context
	cancel context.CancelCauseFunc
	stream interface{ RecvMsg(any) error }
	view   *wire.View[Response]
	next   uint64 // offset of the next byte from guestd
	rest   []byte // of the last piece, in view
	err    error
}

// fileResponse is a ReadResponse or an ArchiveResponse.
type fileResponse interface {
	proto.Message
	GetData() *guestdv1.FileData
}

// fileDataPath leads from a fileResponse to the bytes: data, data.
var fileDataPath = []protowire.Number{2, 2}

// fileData is the bytes in a response, nil where it has none.
func fileData[Response fileResponse](response Response) *[]byte {
	if data := response.GetData(); data != nil {
		return &data.Data
	}
	return nil
}

func newDownload[Response fileResponse](what string, message Response) download[Response] {
	return download[Response]{
		what: what, other: func(Response) {}, atEnd: func() error { return io.EOF },
		view: wire.NewView(message, fileData[Response], fileDataPath...),
	}
}

// abandon ends a call that has failed before its header had come.
func (d *download[Response]) abandon(err error) error {
	err = fromCall(d.ctx, err)
	d.cancel(err)
	return err
}

// receive returns the next response, which lasts until the one after it.
func (d *download[Response]) receive() (Response, error) {
	if err := d.stream.RecvMsg(d.view); err != nil {
		d.view.Free()
		var none Response
		return none, err
	}
	return d.view.Message(), nil
}

// fill sees to it that rest has a byte.
func (d *download[Response]) fill() error {
	for len(d.rest) == 0 && d.err == nil {
		response, err := d.receive()
		switch {
		case errors.Is(err, io.EOF):
			d.err = d.atEnd()
		case err != nil:
			d.err = fromCall(d.ctx, err)
		default:
			d.err = d.take(response)
		}
	}
	if len(d.rest) > 0 {
		return nil
	}
	return d.err
}

func (d *download[Response]) take(response Response) error {
	data := response.GetData()
	if data == nil {
		d.other(response)
		return nil
	}
	if data.GetOffset() != d.next {
		return fmt.Errorf("guestd sent %s from byte %d on where %d was due", d.what, data.GetOffset(), d.next)
	}
	d.rest = data.GetData()
	d.next += uint64(len(d.rest))
	return nil
}

func (d *download[Response]) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := d.fill(); err != nil {
		return 0, err
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}
