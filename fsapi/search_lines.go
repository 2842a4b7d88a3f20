package fsapi

import (
	"bytes"
	"context"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/internal/fscred"
)

const (
	// maxMatchedLine is how much of a line is in memory as a whole.
	maxMatchedLine = 1 << 20
	// searchRead is how much is read at once; the context is looked at before.
	searchRead = 64 << 10
	// binaryProbe is how much of a file tells whether it is binary.
	binaryProbe = 8 << 10
)

// readError is a failure to read the file, as opposed to one of whoever gets the
// matches.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// lineReader reads a file line by line. Its buffer grows with the longest line
// up to limit, and serves one file after the other.
type lineReader struct {
	// read reads the file; io.EOF is its end.
	read  func([]byte) (int, error)
	limit int // of a line's length; more of it is for more, or skipped

	buf        []byte
	start, end int // what of buf is not handed out yet
	searched   int // up to here there is no line end
	number     uint64
	atEnd      bool
	skip       bool // the rest of the line that was handed out
}

// reset makes the reader read another file.
func (r *lineReader) reset(limit int, read func([]byte) (int, error)) {
	*r = lineReader{read: read, limit: limit, buf: r.buf}
}

// readDescriptor reads a regular file as a user, as long as ctx lasts.
func readDescriptor(ctx context.Context, acc account.Account, fd int) func([]byte) (int, error) {
	return func(p []byte) (int, error) {
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		n := 0
		err := fscred.Here(acc, func() (err error) {
			n, err = retry(func() (int, error) { return unix.Read(fd, p) })
			return err
		})
		switch {
		case err != nil:
			return 0, &readError{err}
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// binary says whether there is a NUL byte in the file's beginning. It is for
// before the first next.
func (r *lineReader) binary() (bool, error) {
	for !r.atEnd && r.end < binaryProbe {
		if err := r.fill(); err != nil {
			return false, err
		}
	}
	return bytes.IndexByte(r.buf[:min(r.end, binaryProbe)], 0) >= 0, nil
}

// next returns the next line, without its end, until the following call. Of a
// line that is longer than the limit it is that much, and truncated. io.EOF is
// the end of the file.
func (r *lineReader) next() (line []byte, truncated bool, err error) {
	if err := r.skipRest(); err != nil {
		return nil, false, err
	}
	for {
		if i := bytes.IndexByte(r.buf[r.searched:r.end], '\n'); i >= 0 && r.searched+i-r.start <= r.limit {
			line = r.buf[r.start : r.searched+i]
			r.start = r.searched + i + 1
			break
		}
		r.searched = r.end
		if r.end-r.start > r.limit {
			line, truncated, r.skip = r.buf[r.start:r.start+r.limit], true, true
			r.start += r.limit
			break
		}
		if r.atEnd {
			if r.start == r.end {
				return nil, false, io.EOF
			}
			line, r.start = r.buf[r.start:r.end], r.end
			break
		}
		if err := r.fill(); err != nil {
			return nil, false, err
		}
	}
	r.searched = r.start
	r.number++
	if !truncated {
		line = bytes.TrimSuffix(line, []byte("\r"))
	}
	return line, truncated, nil
}

// more returns the next piece of a line that next has cut, until the following
// call. io.EOF is the line's end.
func (r *lineReader) more() ([]byte, error) {
	for r.skip {
		piece, _, ended := bytes.Cut(r.buf[r.start:r.end], []byte("\n"))
		r.start += len(piece)
		if ended {
			r.start++
			r.skip = false
		}
		r.searched = r.start
		if len(piece) > 0 {
			return piece, nil
		}
		if r.skip = r.skip && !r.atEnd; !r.skip {
			break
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
	return nil, io.EOF
}

// skipRest passes over what is left of a line that was too long.
func (r *lineReader) skipRest() error {
	for {
		if _, err := r.more(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// fill reads more of the file into the buffer, and makes room for it.
func (r *lineReader) fill() error {
	if r.start > 0 {
		copy(r.buf, r.buf[r.start:r.end])
		r.searched, r.end, r.start = r.searched-r.start, r.end-r.start, 0
	}
	if len(r.buf)-r.end < searchRead/2 {
		grown := make([]byte, max(2*len(r.buf), searchRead))
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	n, err := r.read(r.buf[r.end:min(len(r.buf), r.end+searchRead)])
	r.end += n
	if errors.Is(err, io.EOF) {
		r.atEnd = true
		return nil
	}
	return err
}
