package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/spawn"
	"guestd.internal/kernel/internal/jupyter"
	"guestd.internal/kernel/internal/zmtp"
)

const (
	// handshakeTimeout is generous: a machine may be short of CPU.
	handshakeTimeout = 10 * time.Second
	// maxOutput bounds a message on iopub, in bytes: MaxResult in Base64 fits.
	maxOutput = 72 << 20
	// maxReply bounds what comes on any connection but iopub, in bytes.
	maxReply = 16 << 20
)

// session is one kernel: its process, its connections, its folder. Its readers
// decode and hand over; the context's actor does everything else.
type session struct {
	id         string // of its process
	generation uint64
	child      *spawn.Child
	folder     *folder
	stderr     *stderrTail
	control    *net.UnixConn // a kernel of our launcher ends with it
	onClose    func()        // or nil; called once all of it is gone
	codec      *jupyter.Codec
	conns      map[jupyter.Channel]*zmtp.Conn
	log        *slog.Logger
	byMessage  bool // interrupts go by message instead of by signal
	ours       bool // it runs our launcher, and waits for a slow reader
	ready      time.Time

	// iopub is a channel of its own, so that the actor can leave it alone and so
	// hold the kernel back. Each is handed over one message at a time.
	iopub   chan incoming
	replies chan incoming

	rejected atomic.Uint64 // messages that were malformed or wrongly signed
	stopped  chan struct{} // tells the readers to end
	stop     sync.Once
	readers  sync.WaitGroup
}

// incoming is a message from a kernel, or the end of its connection.
type incoming struct {
	channel jupyter.Channel
	msg     *jupyter.Message
	err     error
}

// connect opens one connection and starts its reader.
func (s *session) connect(ctx context.Context, conn jupyter.Connection, channel jupyter.Channel, identity string) error {
	socket, err := dialUnix(s.folder.acc, conn.Path(channel))
	if err != nil {
		return err
	}
	typ, limits := zmtp.Sub, zmtp.Limits{Handshake: handshakeTimeout, MaxFrame: maxOutput, MaxMessage: maxOutput}
	if channel != jupyter.IOPub {
		typ, limits.MaxFrame, limits.MaxMessage = zmtp.Dealer, maxReply, maxReply
	}
	zconn, err := zmtp.Open(ctx, socket, typ, identity, limits)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", conn.Path(channel), err)
	}
	s.conns[channel] = zconn
	out := s.replies
	if channel == jupyter.IOPub {
		out = s.iopub
	}
	s.readers.Go(func() { s.read(zconn, channel, out) })
	return nil
}

// read is a connection's only reader. Messages that are not from our kernel, or
// are none, are counted and left out; the end of the connection is handed over
// as the last thing.
func (s *session) read(conn *zmtp.Conn, channel jupyter.Channel, out chan<- incoming) {
	for {
		msg, err := s.receive(conn)
		if channel == jupyter.Stdin && err == nil {
			s.letOutputPass()
		}
		select {
		case out <- incoming{channel: channel, msg: msg, err: err}:
		case <-s.stopped:
			return
		}
		if err != nil {
			return
		}
	}
}

// promptDelay is how long a question is held back. What was printed before it comes over
// another connection, which has no order with this one, and is to be shown before it.
const promptDelay = 10 * time.Millisecond

// letOutputPass holds the reader of questions back for a moment.
func (s *session) letOutputPass() {
	timer := time.NewTimer(promptDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.stopped:
	}
}

// receive returns the next good message, or the end of the connection. A panic
// over what a kernel sent is such an end.
func (s *session) receive(conn *zmtp.Conn) (msg *jupyter.Message, err error) {
	defer func() {
		if value := recover(); value != nil {
			s.log.Error("panic over a kernel's message", "value", value, "stack", string(debug.Stack()))
			msg, err = nil, fmt.Errorf("receiving a message: panic: %v", value)
		}
	}()
	for {
		raw, err := conn.Recv()
		if err != nil {
			return nil, err
		}
		msg, err := s.codec.Decode(raw.Frames, raw.Skipped)
		if err == nil {
			return msg, nil
		}
		if s.rejected.Add(1) == 1 {
			s.log.Warn("leaving out a kernel's message", "error", err)
		}
	}
}

// send sends a request and returns its id. An error means that the kernel can
// not be spoken to any more; a request is never sent twice.
func (s *session) send(channel jupyter.Channel, msgType string, content any, parent *jupyter.Header) (string, error) {
	id, frames, err := s.codec.Encode(msgType, content, parent)
	if err != nil {
		return "", err
	}
	if err := s.conns[channel].Send(frames...); err != nil {
		return "", fmt.Errorf("sending %s: %w", msgType, err)
	}
	return id, nil
}

func (s *session) died() bool {
	select {
	case <-s.child.Done():
		return true
	default:
		return false
	}
}

// interrupt asks the kernel to stop what it is running, as Ctrl-C in a terminal
// would: SIGINT to its process group, which it leads. The poke that follows wakes
// the event loop of a stock ipykernel that took the signal without noticing (await
// asyncio.sleep(30)).
func (s *session) interrupt() error {
	var err error
	switch {
	case s.died():
		return nil
	case s.byMessage:
		_, err = s.send(jupyter.Control, jupyter.TypeInterruptRequest, struct{}{}, nil)
	default:
		// The leader's number is its own until it is reaped, after Done. What is
		// left after a death between these lines is its orphaned group.
		if err = unix.Kill(-s.child.PID(), unix.SIGINT); errors.Is(err, unix.ESRCH) {
			err = nil
		}
	}
	if s.ours {
		return err
	}
	_, pokeErr := s.send(jupyter.Shell, jupyter.TypeKernelInfoRequest, struct{}{}, nil)
	return errors.Join(err, pokeErr)
}

// close ends and removes all that the session owns, whatever state it is in:
// the whole tree, a forked child that kept the sockets included. It returns when
// that is done, and may be called twice.
func (s *session) close() {
	s.stop.Do(func() {
		close(s.stopped)
		for _, conn := range s.conns {
			_ = conn.Close() // nothing is left to be delivered
		}
		s.readers.Wait()
		if err := s.child.KillTree(); err != nil {
			s.log.Warn("killing a kernel's processes", "error", err)
		}
		<-s.child.Done()
		s.child.Release()
		_ = s.control.Close() // whoever had the other end is gone
		s.stderr.close()
		if err := s.folder.remove(); err != nil {
			s.log.Warn("cleaning up after a kernel", "error", err)
		}
		if s.onClose != nil {
			s.onClose()
		}
	})
}
