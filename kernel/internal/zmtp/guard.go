package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// ErrProtocol is wrapped by every error that says that the peer broke ZMTP or
// went over a limit. The connection is of no use afterwards.
var ErrProtocol = errors.New("ZMTP protocol violation")

// Bits of a frame's first byte (https://rfc.zeromq.org/spec/23/).
const (
	flagMore     = 0x01
	flagLong     = 0x02
	flagCommand  = 0x04
	flagReserved = 0xf8
)

const (
	greetingSize = 64
	bufferSize   = 64 << 10
)

// guard is the net.Conn that zmq4 reads and writes. It follows the framing of
// the bytes that it lets through, so zmq4 only ever sees headers that keep to
// the limits.
//
// Reads and writes are each done by one goroutine at a time. During the
// handshake both are the same one.
type guard struct {
	net.Conn
	limits Limits
	in     *bufio.Reader
	out    *bufio.Writer

	handshake bool // until Open is done: flush before reads, small frames only
	passed    int  // bytes of the greeting that zmq4 has read

	header  []byte // of the current frame, what zmq4 has not read yet
	body    uint64 // bytes of the current frame's body, still to be read
	more    bool   // the current message goes on after this frame
	frames  int    // in the current message so far
	size    uint64 // of the current message's bodies so far
	skipped uint64 // bytes of bodies in the current message put aside as oversized
	err     error  // the first violation; sticky
	scratch [9]byte

	// command gets each command that comes after the handshake. zmq4 is never
	// shown one: it would answer PING from Recv's goroutine, between the two
	// halves of a frame that Send is writing.
	command func(body []byte) error
}

func newGuard(conn net.Conn, limits Limits) *guard {
	return &guard{
		Conn:      conn,
		limits:    limits,
		in:        bufio.NewReaderSize(conn, bufferSize),
		out:       bufio.NewWriterSize(conn, bufferSize),
		handshake: true,
	}
}

// Write buffers; Conn.Send and, during the handshake, Read flush.
func (g *guard) Write(p []byte) (int, error) { return g.out.Write(p) }

func (g *guard) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.read(p)
	if err != nil && errors.Is(err, ErrProtocol) {
		g.err = err
	}
	return n, err
}

func (g *guard) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if g.handshake {
		if err := g.out.Flush(); err != nil {
			return 0, err
		}
	}
	if g.passed < greetingSize {
		n, err := g.in.Read(p[:min(len(p), greetingSize-g.passed)])
		g.passed += n
		return n, err
	}
	if len(g.header) == 0 && g.body == 0 {
		if err := g.nextFrame(); err != nil {
			return 0, err
		}
	}
	if len(g.header) > 0 {
		n := copy(p, g.header)
		g.header = g.header[n:]
		return n, nil
	}
	return g.readBody(p)
}

func (g *guard) readBody(p []byte) (int, error) {
	if uint64(len(p)) > g.body {
		p = p[:g.body]
	}
	if g.in.Buffered() == 0 {
		if err := g.armStall(); err != nil {
			return 0, err
		}
	}
	n, err := g.in.Read(p)
	g.body -= uint64(n)
	if g.body > 0 {
		err = noEOF(err)
	}
	return n, err
}

// nextFrame reads and checks the header of the next frame. A body over
// MaxFrame is read and thrown away, and zmq4 is shown an empty one in its
// place; Conn.Recv reports how much that was.
func (g *guard) nextFrame() error {
	if !g.more {
		g.frames, g.size, g.skipped = 0, 0, 0
	}
	flags, size, err := g.nextHeader()
	for err == nil && flags&flagCommand != 0 && !g.handshake {
		if err = g.takeCommand(size); err == nil {
			flags, size, err = g.nextHeader()
		}
	}
	if err != nil {
		return err
	}
	g.more = flags&flagMore != 0
	g.frames++
	if size > g.limits.MaxFrame || g.size+size > g.limits.MaxMessage {
		if err := g.discard(size); err != nil {
			return err
		}
		g.skipped += size
		g.header = append(g.scratch[:0], flags&^flagLong, 0)
		return nil
	}
	g.size += size
	g.body = size
	return nil
}

func (g *guard) nextHeader() (flags byte, size uint64, err error) {
	if err := g.armHeader(); err != nil {
		return 0, 0, err
	}
	if flags, size, err = g.readHeader(); err != nil {
		return 0, 0, err
	}
	return flags, size, g.check(flags, size)
}

func (g *guard) takeCommand(size uint64) error {
	g.header = nil
	body := make([]byte, size)
	if err := g.armStall(); err != nil {
		return err
	}
	if _, err := io.ReadFull(g.in, body); err != nil {
		return fmt.Errorf("reading a command: %w", noEOF(err))
	}
	return g.command(body)
}

// noEOF is for reads within a frame, where the end of the stream is a cut.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readHeader consumes one frame header and keeps it for zmq4.
func (g *guard) readHeader() (flags byte, size uint64, err error) {
	first, err := g.in.ReadByte()
	if err != nil {
		if g.more {
			err = noEOF(err)
		}
		return 0, 0, err
	}
	g.scratch[0] = first
	length := 1
	if first&flagLong != 0 {
		length = 8
	}
	if g.in.Buffered() < length {
		if err := g.armStall(); err != nil {
			return 0, 0, err
		}
	}
	if _, err := io.ReadFull(g.in, g.scratch[1:1+length]); err != nil {
		return 0, 0, noEOF(err)
	}
	g.header = g.scratch[:1+length]
	if length == 1 {
		return first, uint64(g.scratch[1]), nil
	}
	return first, binary.BigEndian.Uint64(g.scratch[1:]), nil
}

func (g *guard) check(flags byte, size uint64) error {
	switch {
	case flags&flagReserved != 0:
		return fmt.Errorf("%w: reserved bits set in frame flags %#02x", ErrProtocol, flags)
	case flags&flagCommand != 0 && (flags&flagMore != 0 || g.more):
		return fmt.Errorf("%w: a command inside a multi-part message", ErrProtocol)
	case flags&flagCommand != 0 && size > g.limits.maxCommand():
		return fmt.Errorf("%w: a command of %d bytes", ErrProtocol, size)
	case g.handshake && flags&flagCommand == 0:
		return fmt.Errorf("%w: a message before the handshake ended", ErrProtocol)
	case size > g.limits.MaxSkip:
		return fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, size)
	case g.frames >= g.limits.MaxFrames:
		return fmt.Errorf("%w: more than %d frames in a message", ErrProtocol, g.limits.MaxFrames)
	}
	return nil
}

func (g *guard) discard(size uint64) error {
	for size > 0 {
		if err := g.armStall(); err != nil {
			return err
		}
		n, err := g.in.Discard(int(min(size, bufferSize)))
		size -= uint64(n)
		if err != nil {
			return noEOF(err)
		}
	}
	return nil
}

// armHeader sets the deadline for a header's first byte: none between
// messages, since a peer may be silent for as long as it likes.
func (g *guard) armHeader() error {
	switch {
	case g.handshake || g.in.Buffered() > 0:
		return nil
	case g.more:
		return g.armStall()
	}
	return g.SetReadDeadline(time.Time{})
}

// armStall gives the peer limits.Stall to go on with what it has begun. The
// handshake has one deadline for all of it, which stays.
func (g *guard) armStall() error {
	if g.handshake {
		return nil
	}
	return g.SetReadDeadline(time.Now().Add(g.limits.Stall))
}
