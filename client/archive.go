package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// Compression is how a tar stream is packed.
type Compression int

// The kinds of compression. AutoCompression is none for Archive; for Extract the stream's first
// bytes tell.
const (
	AutoCompression Compression = iota
	NoCompression
	Gzip
	Zstd
)

// message gives what a later version of this package may know for what it is: unknown.
func (c Compression) message() guestdv1.Compression {
	switch c {
	case AutoCompression:
		return guestdv1.Compression_COMPRESSION_UNSPECIFIED
	case NoCompression:
		return guestdv1.Compression_COMPRESSION_NONE
	case Gzip:
		return guestdv1.Compression_COMPRESSION_GZIP
	case Zstd:
		return guestdv1.Compression_COMPRESSION_ZSTD
	default:
		return guestdv1.Compression(-1)
	}
}

// TreeSummary counts what was packed or unpacked.
type TreeSummary struct {
	// Entries are files, links and directories.
	Entries uint64
	// Bytes of contents.
	Bytes uint64
	// Failures are the first 100 entries that were left out, each an *Error with its Path.
	Failures []error
	// FailureCount is how many were left out.
	FailureCount uint64
}

func treeSummaryOf(m *guestdv1.TreeSummary) *TreeSummary {
	s := &TreeSummary{Entries: m.GetEntries(), Bytes: m.GetBytes(), FailureCount: m.GetFailureCount()}
	for _, failure := range m.GetFailures() {
		s.Failures = append(s.Failures, failureError(failure))
	}
	return s
}

// ArchiveOptions says what of a tree is packed, and how; nil means all of it, uncompressed.
type ArchiveOptions struct {
	// User is as in FileOptions.
	User string
	// Compression is how the stream is packed.
	Compression Compression
	// Include keeps only what matches one of these globs, Exclude leaves out what does.
	Include, Exclude []string
}

// ArchiveReader reads a tree of the guest as a tar stream. It is for one goroutine, and must be
// closed. The stream is what the guest makes it: whoever unpacks it must trust no name in it
// (package hosttree does not).
type ArchiveReader struct {
	download[*guestdv1.ArchiveResponse]
	root    *FileInfo
	summary *TreeSummary
}

// errNoSummary: an archive's stream ended before guestd had said what is in it.
var errNoSummary = errors.New("guestd ended the archive without its summary")

// Archive packs a directory, whose entries get names relative to it and whose own is "./", or a
// file, which is the one entry, under its own name. It returns once guestd has opened it.
func (c *Client) Archive(ctx context.Context, path string, options *ArchiveOptions) (*ArchiveReader, error) {
	if options == nil {
		options = &ArchiveOptions{}
	}
	if err := checkText("user", options.User); err != nil {
		return nil, err
	}
	r := newArchiveReader()
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	stream, err := c.files.Archive(r.ctx, &guestdv1.ArchiveRequest{
		User: options.User, Path: []byte(path), Compression: options.Compression.message(),
		Include: byteStrings(options.Include), Exclude: byteStrings(options.Exclude),
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

func newArchiveReader() *ArchiveReader {
	r := &ArchiveReader{download: newDownload("the archive", &guestdv1.ArchiveResponse{})}
	r.other = func(response *guestdv1.ArchiveResponse) {
		if summary := response.GetSummary(); summary != nil {
			r.summary = treeSummaryOf(summary)
		}
	}
	r.atEnd = func() error {
		if r.summary == nil {
			return errNoSummary
		}
		return io.EOF
	}
	return r
}

func (r *ArchiveReader) readHeader() error {
	response, err := r.receive()
	if err != nil {
		return err
	}
	header := response.GetHeader()
	if header == nil {
		return fmt.Errorf("guestd began with %T instead of a header", response.GetEvent())
	}
	r.root = fileInfoOf(header.GetRoot())
	return nil
}

// Root describes what is packed.
func (r *ArchiveReader) Root() *FileInfo { return r.root }

// Summary tells what the archive holds, and what was left out; nil until Read has told io.EOF.
func (r *ArchiveReader) Summary() *TreeSummary {
	if !errors.Is(r.err, io.EOF) {
		return nil
	}
	return r.summary
}

// Read implements io.Reader. io.EOF means that guestd has packed the whole tree.
func (r *ArchiveReader) Read(p []byte) (int, error) { return r.read(p) }

// Close ends the reading; the error is always nil.
func (r *ArchiveReader) Close() error {
	r.cancel(context.Canceled)
	return nil
}
