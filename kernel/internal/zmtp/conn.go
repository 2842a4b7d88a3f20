package zmtp

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
)

// SocketType is this end's ZeroMQ socket type, announced in the handshake.
type SocketType string

// The socket types that a Jupyter client uses.
const (
	Dealer SocketType = "DEALER"
	Sub    SocketType = "SUB"
)

// Limits bounds what a peer may do to us. The zero value of a field means its
// default.
type Limits struct {
	Handshake  time.Duration // for the whole handshake; 2 s
	Write      time.Duration // for one Send; 5 s
	Stall      time.Duration // for a peer to go on within a message; 60 s
	MaxFrame   uint64        // bytes of a frame that are kept; 64 MiB
	MaxMessage uint64        // bytes of all of a message's frames that are kept; 64 MiB
	MaxSkip    uint64        // bytes of a frame that are read at all; 16 GiB
	MaxFrames  int           // frames in a message; 64
}

// maxCommand bounds ZMTP commands (READY, PING): nothing legitimate is near it.
func (l Limits) maxCommand() uint64 { return min(l.MaxFrame, 16<<10) }

func (l Limits) withDefaults() Limits {
	setDefault(&l.Handshake, 2*time.Second)
	setDefault(&l.Write, 5*time.Second)
	setDefault(&l.Stall, time.Minute)
	setDefault(&l.MaxFrame, 64<<20)
	setDefault(&l.MaxMessage, 64<<20)
	setDefault(&l.MaxSkip, 16<<30)
	setDefault(&l.MaxFrames, 64)
	return l
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Message is one multi-part message as it came.
type Message struct {
	Frames [][]byte
	// Skipped is how many bytes of frames over Limits.MaxFrame were thrown
	// away. Those frames are there, and empty.
	Skipped uint64
}

// Conn is one ZMTP connection after its handshake. Send and Close may be called
// by several goroutines, Recv by one.
type Conn struct {
	guard *guard
	zmq   *zmq4.Conn

	sending sync.Mutex
	broken  error // a Send failed half way: nothing may follow it
}

// Open does the handshake over conn, which it owns from now on: conn is closed
// if Open fails. It ends with ctx or after limits.Handshake, whichever is first.
// identity is the routing id that a ROUTER peer knows us by; empty lets it choose.
func Open(ctx context.Context, conn net.Conn, typ SocketType, identity string, limits Limits) (_ *Conn, err error) {
	limits = limits.withDefaults()
	defer func() {
		if err != nil {
			_ = conn.Close() // the handshake's error is the one that matters
		}
	}()
	if err := conn.SetDeadline(time.Now().Add(limits.Handshake)); err != nil {
		return nil, fmt.Errorf("setting the handshake deadline: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	guard := newGuard(conn, limits)
	zmq, err := handshake(guard, typ, identity)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("opening a ZMTP connection: %w", err)
	}
	if !stop() {
		return nil, fmt.Errorf("opening a ZMTP connection: %w", context.Cause(ctx))
	}
	guard.handshake = false
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("clearing the handshake deadline: %w", err)
	}
	c := &Conn{guard: guard, zmq: zmq}
	guard.command = c.command
	if typ == Sub {
		if err := c.Send([]byte{1}); err != nil { // subscribes to every topic
			return nil, fmt.Errorf("subscribing: %w", err)
		}
	}
	return c, nil
}

// handshake runs zmq4.Open, which indexes past the end of a READY whose
// properties are cut short.
func handshake(guard *guard, typ SocketType, identity string) (conn *zmq4.Conn, err error) {
	defer func() {
		if r := recover(); r != nil {
			conn, err = nil, fmt.Errorf("%w: handshake: %v", ErrProtocol, r)
		}
	}()
	conn, err = zmq4.Open(guard, nullSecurity{}, zmq4.SocketType(typ), zmq4.SocketIdentity(identity), false, nil)
	if err != nil {
		return nil, err
	}
	return conn, guard.out.Flush()
}

// Send sends one message and returns once it is handed to the operating system.
// After an error the connection only fails: a message may have been cut short.
func (c *Conn) Send(frames ...[]byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	if c.broken != nil {
		return c.broken
	}
	if err := c.send(frames); err != nil {
		c.broken = fmt.Errorf("sending a ZMTP message: %w", err)
		return c.broken
	}
	return nil
}

func (c *Conn) send(frames [][]byte) error {
	return c.write(func() error { return c.zmq.SendMsg(zmq4.NewMsgFrom(frames...)) })
}

func (c *Conn) write(message func() error) error {
	if err := c.guard.SetWriteDeadline(time.Now().Add(c.guard.limits.Write)); err != nil {
		return err
	}
	if err := message(); err != nil {
		return err
	}
	return c.guard.out.Flush()
}

// Recv waits for the next message. Any error is final; io.EOF says that the
// peer closed the connection between two messages. Commands are dealt with on
// this layer and never returned.
func (c *Conn) Recv() (Message, error) {
	msg, err := c.zmq.RecvMsg()
	if err != nil {
		return Message{}, fmt.Errorf("receiving a ZMTP message: %w", err)
	}
	return Message{Frames: msg.Frames, Skipped: c.guard.skipped}, nil
}

// command answers PING with its context, as https://rfc.zeromq.org/spec/37/
// demands, and takes ERROR for the peer's last word. It runs within Recv.
func (c *Conn) command(body []byte) error {
	if len(body) == 0 || int(body[0]) > len(body)-1 {
		return fmt.Errorf("%w: a command without a name", ErrProtocol)
	}
	name, rest := string(body[1:1+body[0]]), body[1+body[0]:]
	switch name {
	case zmq4.CmdPing:
		const ttl, maxContext = 2, 16
		if len(rest) < ttl || len(rest) > ttl+maxContext {
			return fmt.Errorf("%w: a PING of %d bytes", ErrProtocol, len(rest))
		}
		return c.pong(rest[ttl:])
	case zmq4.CmdError:
		return fmt.Errorf("%w: the peer sent ERROR", ErrProtocol)
	}
	return nil
}

func (c *Conn) pong(pingContext []byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	if c.broken != nil {
		return c.broken
	}
	if err := c.write(func() error { return c.zmq.SendCmd(zmq4.CmdPong, pingContext) }); err != nil {
		c.broken = fmt.Errorf("sending PONG: %w", err)
	}
	return c.broken
}

// Close closes the connection and ends a pending Recv and Send.
func (c *Conn) Close() error { return c.guard.Close() }
