package client

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// ExtractOptions says how an archive is unpacked; nil means all defaults.
type ExtractOptions struct {
	// User is as in FileOptions.
	User string
	// Compression is how the stream is packed; AutoCompression finds out.
	Compression Compression
	// KeepOwners keeps the owners that the archive names; for root only.
	KeepOwners bool
	// NoReplace fails at the first entry that is there already.
	NoReplace bool
	// Include keeps only what matches one of these globs, Exclude leaves out what does.
	Include, Exclude []string
	// MaxBytes and MaxEntries bound what is unpacked; nil is 64 GiB and 10 million.
	MaxBytes, MaxEntries *uint64
}

// ArchiveWriter sends a tar stream that guestd unpacks as it comes. It is for one goroutine, and
// ends with Commit or Abort. What was unpacked before an Abort, or an error, stays; each file is
// either there as a whole or not at all.
type ArchiveWriter struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	stream grpc.ClientStreamingClient[guestdv1.ExtractRequest, guestdv1.ExtractResponse]
	err    error // what ended it
}

// errExtractEnded: a write after Commit or Abort.
var errExtractEnded = errors.New("guestd client: the extraction was committed or aborted already")

// Extract begins to unpack a tar stream below a directory of the guest, which is made if need be.
// Whether guestd can do that is told by Write at some time, and by Commit at the latest.
func (c *Client) Extract(ctx context.Context, path string, options *ExtractOptions) (*ArchiveWriter, error) {
	if options == nil {
		options = &ExtractOptions{}
	}
	if err := checkText("user", options.User); err != nil {
		return nil, err
	}
	w := &ArchiveWriter{}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	stream, err := c.files.Extract(w.ctx)
	if err != nil {
		err = fromCall(w.ctx, err)
		w.cancel(err)
		return nil, err
	}
	w.stream = stream
	header := &guestdv1.ExtractHeader{
		RequestId: newRequestID(), User: options.User, Path: []byte(path),
		Compression: options.Compression.message(), KeepOwners: options.KeepOwners,
		NoReplace: options.NoReplace, Include: byteStrings(options.Include), Exclude: byteStrings(options.Exclude),
		MaxBytes: options.MaxBytes, MaxEntries: options.MaxEntries,
	}
	if err := w.send(&guestdv1.ExtractRequest{Request: &guestdv1.ExtractRequest_Header{Header: header}}); err != nil {
		return nil, err
	}
	return w, nil
}

// Write implements io.Writer. It returns when the bytes are under way, not when they are unpacked.
func (w *ArchiveWriter) Write(p []byte) (int, error) {
	var written int
	for len(p) > 0 {
		piece := p[:min(len(p), chunkBytes)]
		// The message is encoded before Send returns, so the caller may use p again.
		err := w.send(&guestdv1.ExtractRequest{Request: &guestdv1.ExtractRequest_Data{Data: piece}})
		if err != nil {
			return written, err
		}
		written += len(piece)
		p = p[len(piece):]
	}
	return written, nil
}

func (w *ArchiveWriter) send(request *guestdv1.ExtractRequest) error {
	if w.err != nil {
		return w.err
	}
	err := w.stream.Send(request)
	if errors.Is(err, io.EOF) { // guestd has answered already, and the answer says why
		if _, err = w.stream.CloseAndRecv(); err == nil {
			err = errors.New("guestd unpacked the archive before all of it was sent")
		}
	}
	if err != nil {
		w.end(fromCall(w.ctx, err))
	}
	return w.err
}

// Commit ends the stream, and returns when guestd has unpacked all of it. The error is guestd's, or
// the first that Write has met.
func (w *ArchiveWriter) Commit() (*TreeSummary, error) {
	if w.err != nil {
		return nil, w.err
	}
	response, err := w.stream.CloseAndRecv()
	if err != nil {
		w.end(fromCall(w.ctx, err))
		return nil, w.err
	}
	w.end(errExtractEnded)
	return treeSummaryOf(response.GetSummary()), nil
}

// Abort gives the extraction up. After Commit it does nothing, so it may be deferred.
func (w *ArchiveWriter) Abort() {
	if w.err == nil {
		w.end(errExtractEnded)
	}
}

func (w *ArchiveWriter) end(err error) {
	w.err = err
	w.cancel(err)
}
