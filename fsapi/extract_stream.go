package fsapi

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxZstdWindow is the largest window of a zstd stream that is unpacked: what
// zstd(1) makes up to level 19, and some more.
const maxZstdWindow = 32 << 20

// maxHeaderBytes is how much of a stream may lie between the contents of one
// entry and those of the next: names and attributes, which archive/tar takes up to
// 1 MiB each. It bounds a stream of nothing but headers.
const maxHeaderBytes = 8 << 20

// tarBlock is the unit of a tar stream.
const tarBlock = 512

// tarStream reads a tar stream out of what may be a compressed one. It tells the
// errors of whoever sends the stream from those of its contents.
type tarStream struct {
	ctx    context.Context
	from   io.Reader
	failed error // from's error, io.EOF excepted

	plain io.Reader // the unpacked stream
	free  func()    // what unpacking holds

	// The following watch for the end, which archive/tar does not demand.
	inHeader bool // a header is being read
	header   int  // how much of it
	ended    bool // the last block was the mark of the end
}

// openTarStream looks at the first bytes of a stream and prepares to unpack it.
// The caller calls free in the end.
func openTarStream(ctx context.Context, from io.Reader, c Compression) (*tarStream, error) {
	s := &tarStream{ctx: ctx, from: from, free: func() {}}
	buffered := bufio.NewReaderSize(streamSource{s}, archiveBuffer)
	if c == CompressionAuto {
		head, err := buffered.Peek(len(xzMagic))
		if err != nil && !errors.Is(err, io.EOF) {
			return s, s.explain(err)
		}
		if c, err = detectCompression(head); err != nil {
			return s, err
		}
	}
	switch c {
	case CompressionGzip:
		r, err := gzip.NewReader(buffered)
		if err != nil {
			return s, s.explain(err)
		}
		s.plain = r
	case CompressionZstd:
		r, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return s, s.explain(err)
		}
		s.plain, s.free = r, r.Close
	default:
		s.plain = buffered
		return s, nil
	}
	// Decompressors give small pieces.
	s.plain = bufio.NewReaderSize(s.plain, smallFile)
	return s, nil
}

// The first bytes of compressed streams.
var (
	gzipMagic  = []byte("\x1f\x8b")
	zstdMagic  = []byte("\x28\xb5\x2f\xfd")
	bzip2Magic = []byte("BZh")
	xzMagic    = []byte("\xfd7zXZ\x00")
)

// detectCompression says how a stream with these first bytes is packed.
func detectCompression(head []byte) (Compression, error) {
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		return CompressionGzip, nil
	case bytes.HasPrefix(head, zstdMagic):
		return CompressionZstd, nil
	case bytes.HasPrefix(head, bzip2Magic):
		return 0, fmt.Errorf("%w: it is packed with bzip2, which is not served", ErrBadArchive)
	case bytes.HasPrefix(head, xzMagic):
		return 0, fmt.Errorf("%w: it is packed with xz, which is not served", ErrBadArchive)
	}
	return CompressionNone, nil
}

// streamSource reads what comes in, and remembers its error.
type streamSource struct{ s *tarStream }

// Read implements io.Reader.
func (r streamSource) Read(p []byte) (int, error) {
	if err := context.Cause(r.s.ctx); err != nil {
		r.s.failed = err
		return 0, err
	}
	n, err := r.s.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.s.failed = err
	}
	return n, err
}

// explain says what an error of reading means: the sender's own, a limit, or a
// stream that is not what it should be.
func (s *tarStream) explain(err error) error {
	switch {
	case s.failed != nil:
		return s.failed
	case errors.Is(err, ErrBadArchive), errors.Is(err, ErrArchiveLimit):
		return err
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("%w: its zstd window has over %d bytes", ErrArchiveLimit, maxZstdWindow)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: it ends in the middle", ErrBadArchive)
	}
	return fmt.Errorf("%w: %w", ErrBadArchive, err)
}

// Read implements io.Reader for archive/tar, which reads headers by the block.
func (s *tarStream) Read(p []byte) (int, error) {
	if !s.inHeader {
		return s.plain.Read(p)
	}
	if s.header > maxHeaderBytes {
		return 0, fmt.Errorf("%w: a header has over %d bytes", ErrArchiveLimit, maxHeaderBytes)
	}
	n, err := io.ReadFull(s.plain, p[:min(len(p), tarBlock)])
	s.header += n
	switch {
	case n == tarBlock:
		s.ended = allZero(p[:n])
	case n > 0:
		s.ended = false
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF // as much as there is; the reader knows what it needs
	}
	return n, err
}

// finish checks, once archive/tar has come to an end, that it was the archive's,
// and that nothing but padding follows.
func (s *tarStream) finish() error {
	if !s.ended {
		return fmt.Errorf("%w: it ends without an end mark", ErrBadArchive)
	}
	buf := make([]byte, smallFile)
	for {
		n, err := s.plain.Read(buf)
		if !allZero(buf[:n]) {
			return fmt.Errorf("%w: something follows its end mark", ErrBadArchive)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return s.explain(err)
		}
		if s.header += n; s.header > maxHeaderBytes {
			return fmt.Errorf("%w: over %d bytes follow its end mark", ErrArchiveLimit, maxHeaderBytes)
		}
	}
}

var zeroPage [4096]byte

// allZero says whether p has nothing but zeros.
func allZero(p []byte) bool {
	for len(p) > len(zeroPage) {
		if !bytes.Equal(p[:len(zeroPage)], zeroPage[:]) {
			return false
		}
		p = p[len(zeroPage):]
	}
	return bytes.Equal(p, zeroPage[:len(p)])
}
