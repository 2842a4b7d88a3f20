package client

import (
	"context"
	"errors"

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
	upload[guestdv1.ExtractRequest, guestdv1.ExtractResponse]
}

func newArchiveWriter() *ArchiveWriter {
	w := &ArchiveWriter{}
	w.data = func(piece []byte) *guestdv1.ExtractRequest {
		return &guestdv1.ExtractRequest{Request: &guestdv1.ExtractRequest_Data{Data: piece}}
	}
	w.early = errors.New("guestd unpacked the archive before all of it was sent")
	w.ended = errors.New("guestd client: the extraction was committed or aborted already")
	return w
}

// Extract begins to unpack a tar stream below a directory of the guest, which is made if need be.
// Whether guestd can do that is told by Write at some time, and by Commit at the latest.
func (c *Client) Extract(ctx context.Context, path string, options *ExtractOptions) (*ArchiveWriter, error) {
	if options == nil {
		options = &ExtractOptions{}
	}
	if err := checkText("user", options.User); err != nil {
		return nil, err
	}
	header := &guestdv1.ExtractHeader{
		RequestId: newRequestID(), User: options.User, Path: []byte(path),
		Compression: options.Compression.message(), KeepOwners: options.KeepOwners,
		NoReplace: options.NoReplace, Include: byteStrings(options.Include), Exclude: byteStrings(options.Exclude),
		MaxBytes: options.MaxBytes, MaxEntries: options.MaxEntries,
	}
	w := newArchiveWriter()
	if err := w.open(ctx, c.files.Extract, &guestdv1.ExtractRequest{Request: &guestdv1.ExtractRequest_Header{Header: header}}); err != nil {
		return nil, err
	}
	return w, nil
}

// Write implements io.Writer. It returns when the bytes are under way, not when they are unpacked.
func (w *ArchiveWriter) Write(p []byte) (int, error) { return w.write(p) }

// Commit ends the stream, and returns when guestd has unpacked all of it. The error is guestd's, or
// the first that Write has met.
func (w *ArchiveWriter) Commit() (*TreeSummary, error) {
	response, err := w.commit()
	if err != nil {
		return nil, err
	}
	return treeSummaryOf(response.GetSummary()), nil
}

// Abort gives the extraction up. After Commit it does nothing, so it may be deferred.
func (w *ArchiveWriter) Abort() { w.abort() }
