package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// ReadOptions says what of a file is read; nil means all of it.
type ReadOptions struct {
	// User is as in FileOptions.
	User string
	// Offset is the first byte wanted.
	Offset uint64
	// Length is how many bytes at most; nil is to the end.
	Length *uint64
}

// FileReader reads a file of the guest. It is for one goroutine, and must be closed.
type FileReader struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	stream grpc.ServerStreamingClient[guestdv1.ReadResponse]
	view   *wire.View[*guestdv1.ReadResponse]
	info   *FileInfo
	next   uint64 // offset of the next byte from guestd
	rest   []byte // of the last piece, in view
	err    error
}

// Open opens a file for reading. It returns once guestd has opened it, so that its errors are those
// of open(2).
func (c *Client) Open(ctx context.Context, path string, options *ReadOptions) (*FileReader, error) {
	if options == nil {
		options = &ReadOptions{}
	}
	if err := checkText("user", options.User); err != nil {
		return nil, err
	}
	r := &FileReader{next: options.Offset, view: wire.NewView(&guestdv1.ReadResponse{}, fileData[*guestdv1.ReadResponse], fileDataPath...)}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	stream, err := c.files.Read(r.ctx, &guestdv1.ReadRequest{
		User: options.User, Path: []byte(path), Offset: options.Offset, Length: options.Length,
	})
	if err == nil {
		r.stream = stream
		err = r.readHeader()
	}
	if err != nil {
		err = fromCall(r.ctx, err)
		r.cancel(err)
		return nil, err
	}
	return r, nil
}

// fileDataPath leads from ReadResponse and from ArchiveResponse to the bytes: data, data.
var fileDataPath = []protowire.Number{2, 2}

// fileData is the bytes in a response, nil where it has none.
func fileData[M interface{ GetData() *guestdv1.FileData }](response M) *[]byte {
	if data := response.GetData(); data != nil {
		return &data.Data
	}
	return nil
}

func (r *FileReader) readHeader() error {
	response, err := r.stream.Recv()
	if err != nil {
		return err
	}
	header := response.GetHeader()
	if header == nil {
		return fmt.Errorf("guestd began with %T instead of a header", response.GetEvent())
	}
	r.info = fileInfoOf(header.GetInfo())
	return nil
}

// Info describes the file as it was when it was opened.
func (r *FileReader) Info() *FileInfo { return r.info }

// Read implements io.Reader.
func (r *FileReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := r.fill(); err != nil {
		return 0, err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// WriteTo implements io.WriterTo: pieces go to the writer as they come. A piece is the writer's
// until it returns.
func (r *FileReader) WriteTo(w io.Writer) (int64, error) {
	var written int64
	for {
		err := r.fill()
		if errors.Is(err, io.EOF) {
			return written, nil
		}
		if err != nil {
			return written, err
		}
		n, err := w.Write(r.rest)
		r.rest = r.rest[n:]
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
}

// fill sees to it that rest has a byte.
func (r *FileReader) fill() error {
	for len(r.rest) == 0 {
		if r.err != nil {
			return r.err
		}
		if err := r.stream.RecvMsg(r.view); err != nil {
			r.view.Free()
			r.err = err
			if !errors.Is(err, io.EOF) {
				r.err = fromCall(r.ctx, err)
			}
			return r.err
		}
		if data := r.view.Message().GetData(); data != nil {
			if data.GetOffset() != r.next {
				r.err = fmt.Errorf("guestd sent the file from byte %d on where %d was due", data.GetOffset(), r.next)
				return r.err
			}
			r.rest = data.GetData()
			r.next += uint64(len(r.rest))
		}
	}
	return nil
}

// Close ends the reading; the error is always nil.
func (r *FileReader) Close() error {
	r.cancel(context.Canceled)
	return nil
}

// ReadFile reads a whole file into memory.
func (c *Client) ReadFile(ctx context.Context, path string, options *ReadOptions) ([]byte, error) {
	r, err := c.Open(ctx, path, options)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out bytes.Buffer
	_, err = r.WriteTo(&out)
	return out.Bytes(), err
}
