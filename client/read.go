package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

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
	download[*guestdv1.ReadResponse]
	info *FileInfo
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
	r := &FileReader{download: newDownload("the file", &guestdv1.ReadResponse{})}
	r.next = options.Offset
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	stream, err := c.files.Read(r.ctx, &guestdv1.ReadRequest{
		User: options.User, Path: []byte(path), Offset: options.Offset, Length: options.Length,
	})
	if err == nil {
		r.stream = stream
		err = r.readHeader()
	}
	if err != nil {
		return nil, r.abandon(err)
	}
	return r, nil
}

func (r *FileReader) readHeader() error {
	response, err := r.receive()
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
func (r *FileReader) Read(p []byte) (int, error) { return r.read(p) }

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
