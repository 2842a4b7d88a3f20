package client

import (
	"fmt"
	"io"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// Stream names one stream of a process's output.
type Stream int32

// The streams.
const (
	Stdout   = Stream(guestdv1.OutputStream_OUTPUT_STREAM_STDOUT)
	Stderr   = Stream(guestdv1.OutputStream_OUTPUT_STREAM_STDERR)
	Terminal = Stream(guestdv1.OutputStream_OUTPUT_STREAM_TERMINAL)
)

// String names the stream as users know it.
func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case Terminal:
		return "terminal"
	default:
		return fmt.Sprintf("stream %d", int32(s))
	}
}

// Gap is a range of a stream that guestd dropped before it could be delivered: the log was full and
// this reader away for too long.
type Gap struct {
	// Stream is the stream.
	Stream Stream
	// Start is the first byte that is lost, End the first that is not.
	Start, End uint64
}

// sink hands one stream to the user's writer, each byte once and in order.
type sink struct {
	name string
	w    io.Writer // nil discards
	// next is the stream's first byte that was not handed over yet.
	next uint64
	// known are the streams that come in here; a process has a terminal or a stdout, never both.
	known [streamKinds]bool
	// err is what the writer failed with; what comes after it is discarded.
	err error
}

// begin makes offset the next byte expected of a stream.
func (s *sink) begin(stream guestdv1.OutputStream, offset uint64) {
	s.known[stream] = true
	s.next = offset
}

// deliver writes what is new of a piece; broke tells that the writer failed at this piece. The
// error is guestd's fault: it skipped bytes without a word.
func (s *sink) deliver(stream guestdv1.OutputStream, offset uint64, data []byte) (broke bool, err error) {
	s.known[stream] = true
	if offset > s.next {
		return false, fmt.Errorf("guestd sent %s from byte %d on where %d was due", s.name, offset, s.next)
	}
	seen := s.next - offset
	if seen >= uint64(len(data)) {
		return false, nil
	}
	data = data[seen:]
	s.next += uint64(len(data))
	if s.w == nil || s.err != nil {
		return false, nil
	}
	if _, err := s.w.Write(data); err != nil {
		s.err = fmt.Errorf("writing %s: %w", s.name, err)
		return true, nil
	}
	return false, nil
}
