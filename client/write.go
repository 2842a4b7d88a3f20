package client

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"google.golang.org/protobuf/encoding/protowire"

	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// Placement says where written bytes go.
type Placement int

// The placements; the zero value replaces.
const (
	// Replace makes them the whole file, at once: until the commit the old file is whole.
	Replace Placement = iota
	// Append puts them behind the file's end.
	Append
	// AtOffset overwrites the file from WriteOptions.Offset on.
	AtOffset
)

// WriteOptions says how a file is written; nil means all defaults: it replaces the file at once,
// keeps an existing file's mode and owner, and makes missing parent directories.
type WriteOptions struct {
	// User is as in FileOptions.
	User string
	// Mode is the file's mode. Nil: an existing file's stays, a new one gets 0644.
	Mode *fs.FileMode
	// NoParents fails where the parent directory is missing.
	NoParents bool
	// Exclusive fails where the file exists.
	Exclusive bool
	// Placement says where the bytes go, Offset where they start with AtOffset.
	Placement Placement
	Offset    uint64
	// Fsync commits only when the contents are on the disk.
	Fsync bool
	// Size is how many bytes will come, SHA256 their sum (32 bytes); guestd refuses what does not
	// match. Nil is no check.
	Size   *uint64
	SHA256 []byte
}

// WriteResult tells what was written.
type WriteResult struct {
	// Info is the file as it is now.
	Info *FileInfo
	// Bytes were written.
	Bytes uint64
	// Created: it did not exist before.
	Created bool
	// InPlace: it was not replaced at once, because it is special or its file system cannot.
	InPlace bool
}

// FileWriter writes a file of the guest. It is for one goroutine, and ends with Commit or Abort;
// until Commit a file that is being replaced is as it was.
type FileWriter struct {
	upload[guestdv1.WriteRequest, guestdv1.WriteResponse]
}

func newFileWriter() *FileWriter {
	w := &FileWriter{}
	w.data = func(piece []byte) *guestdv1.WriteRequest {
		return &guestdv1.WriteRequest{Request: &guestdv1.WriteRequest_Data{Data: piece}}
	}
	w.early = errors.New("guestd committed the file before all of it was sent")
	w.ended = errors.New("guestd client: the file was committed or aborted already")
	return w
}

// Create begins to write a file. Whether guestd can write it is told by Write at some time, and by
// Commit at the latest.
func (c *Client) Create(ctx context.Context, path string, options *WriteOptions) (*FileWriter, error) {
	header, err := writeHeader(path, options)
	if err != nil {
		return nil, err
	}
	w := newFileWriter()
	if err := w.open(ctx, c.files.Write, &guestdv1.WriteRequest{Request: &guestdv1.WriteRequest_Header{Header: header}}); err != nil {
		return nil, err
	}
	return w, nil
}

func writeHeader(path string, options *WriteOptions) (*guestdv1.WriteHeader, error) {
	if options == nil {
		options = &WriteOptions{}
	}
	if err := checkText("user", options.User); err != nil {
		return nil, err
	}
	header := &guestdv1.WriteHeader{
		RequestId: newRequestID(), User: options.User, Path: []byte(path), Mode: optionalMode(options.Mode),
		Exclusive: options.Exclusive, Offset: options.Offset, Fsync: options.Fsync,
		ExpectedSize: options.Size, ExpectedSha256: options.SHA256,
	}
	if options.NoParents {
		header.CreateParents = new(bool)
	}
	switch options.Placement {
	case Append:
		header.Placement = guestdv1.WritePlacement_WRITE_PLACEMENT_APPEND
	case AtOffset:
		header.Placement = guestdv1.WritePlacement_WRITE_PLACEMENT_AT_OFFSET
	default:
		header.Placement = guestdv1.WritePlacement_WRITE_PLACEMENT_REPLACE
	}
	return header, nil
}

// Write implements io.Writer. It returns when the bytes are under way, not when they are written.
func (w *FileWriter) Write(p []byte) (int, error) { return w.write(p) }

// ReadFrom implements io.ReaderFrom, with pieces of the size that travels best.
func (w *FileWriter) ReadFrom(r io.Reader) (int64, error) {
	var total int64
	for {
		buf := wire.Pool.Get(chunkBytes)
		n, err := r.Read(*buf)
		if n > 0 {
			if sendErr := w.send(dataPiece(buf, n)); sendErr != nil {
				return total, sendErr
			}
			total += int64(n)
		} else {
			wire.Pool.Put(buf)
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// writeRequestData is the field of a WriteRequest that holds the data.
const writeRequestData protowire.Number = 2

// dataPiece is a WriteRequest with the first n bytes of a buffer from wire.Pool, which goes back
// there when it is sent.
func dataPiece(buf *[]byte, n int) *wire.Piece {
	return &wire.Piece{Number: writeRequestData, Data: (*buf)[:n], Release: func() { wire.Pool.Put(buf) }}
}

// Commit makes what was written the file, and returns when guestd has done so. The error is
// guestd's, or the first that Write has met.
func (w *FileWriter) Commit() (*WriteResult, error) {
	response, err := w.commit()
	if err != nil {
		return nil, err
	}
	return &WriteResult{
		Info: fileInfoOf(response.GetInfo()), Bytes: response.GetBytesWritten(),
		Created: response.GetCreated(), InPlace: response.GetInPlace(),
	}, nil
}

// Abort gives the write up: a file that was being replaced stays as it was. After Commit it does
// nothing, so it may be deferred.
func (w *FileWriter) Abort() { w.abort() }

// WriteFile writes a whole file.
func (c *Client) WriteFile(ctx context.Context, path string, data []byte, options *WriteOptions) (*WriteResult, error) {
	w, err := c.Create(ctx, path, options)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	return w.Commit()
}
