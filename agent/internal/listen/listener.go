package listen

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

// A Listener is a net.Listener whose connections are checked by [Credentials].
type Listener struct {
	address Address
	trust   Trust
	log     *slog.Logger
	inner   net.Listener
	release func() error // what there is to do after inner is closed; may be nil

	closed   chan struct{}
	close    func() error // once
	refusals logLimit
	failures logLimit
}

var _ net.Listener = (*Listener)(nil)

// Open opens the socket at address; log receives refusals and failing accepts.
func Open(address Address, trust Trust, log *slog.Logger) (*Listener, error) {
	inner, release, err := open(address, &trust)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	return newListener(address, trust, log, inner, release), nil
}

// newListener puts trust in front of inner.
func newListener(address Address, trust Trust, log *slog.Logger, inner net.Listener, release func() error) *Listener {
	l := &Listener{
		address: address, trust: trust, log: log,
		inner: inner, release: release, closed: make(chan struct{}),
	}
	l.close = sync.OnceValue(func() error {
		close(l.closed)
		err := l.inner.Close()
		if l.release != nil {
			err = errors.Join(err, l.release())
		}
		return err
	})
	return l
}

func open(address Address, trust *Trust) (net.Listener, func() error, error) {
	switch address.Kind {
	case Vsock:
		inner, err := vsock.ListenContextID(unix.VMADDR_CID_ANY, address.Port, nil)
		if err != nil {
			return nil, nil, fmt.Errorf("%w (is there a vsock device, and its driver loaded?)", err)
		}
		return inner, nil, nil
	case Unix:
		return openUnix(address.Path, trust.socketMode())
	default:
		inner, err := net.Listen("tcp", address.hostPort())
		return inner, nil, err
	}
}

// acceptedConn carries a connection from Accept to the handshake.
type acceptedConn struct {
	net.Conn
	listener *Listener
}

// RemoteAddr is never nil, which grpc could not bear.
func (c *acceptedConn) RemoteAddr() net.Addr {
	if addr := c.Conn.RemoteAddr(); addr != nil {
		return addr
	}
	return c.listener.Addr()
}

const (
	minAcceptDelay = 5 * time.Millisecond
	maxAcceptDelay = time.Second
)

// Accept implements net.Listener. It waits out whatever may pass, such as a want
// of descriptors (EMFILE), and fails when the listener is closed or its socket
// broken. It looks at nothing that comes from the peer.
func (l *Listener) Accept() (net.Conn, error) {
	for delay := minAcceptDelay; ; delay = min(2*delay, maxAcceptDelay) {
		conn, err := l.inner.Accept()
		if err == nil {
			l.tune(conn)
			return &acceptedConn{Conn: conn, listener: l}, nil
		}
		if broken(err) {
			return nil, err
		}
		if skipped, ok := l.failures.allow(); ok {
			l.log.Warn("accepting failed", "listener", l.address.String(), "error", err, "not_logged", skipped)
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-l.closed:
			timer.Stop()
			return nil, net.ErrClosed
		}
	}
}

// sendBuffer is how much may be under way in a Unix socket, in bytes, as far as
// net.core.wmem_max lets it: with the kernel's own 208 KiB the two ends take turns
// instead of working at once. There is no receive buffer to set: what is under way
// counts against the sender's (unix(7)).
const sendBuffer = 1 << 20

// tune makes a connection ready for streams.
func (l *Listener) tune(conn net.Conn) {
	if socket, ok := conn.(*net.UnixConn); ok {
		// A connection that is broken already is told by its first read.
		_ = socket.SetWriteBuffer(sendBuffer)
	}
}

// broken says that trying to accept again is of no use (accept(2)).
func broken(err error) bool {
	for _, fatal := range []error{net.ErrClosed, unix.EBADF, unix.EINVAL, unix.ENOTSOCK, unix.EOPNOTSUPP} {
		if errors.Is(err, fatal) {
			return true
		}
	}
	return false
}

// Close implements net.Listener. It may be called more than once. Connections
// that were accepted stay.
func (l *Listener) Close() error { return l.close() }

// Addr implements net.Listener: the socket's own address, with the port that was
// taken where 0 was asked for.
func (l *Listener) Addr() net.Addr {
	if addr := l.inner.Addr(); addr != nil {
		return addr
	}
	return &net.UnixAddr{Name: l.address.String(), Net: string(l.address.Kind)}
}

// String is the address that was opened, as ParseAddress reads it, with the port
// that was taken where 0 was asked for.
func (l *Listener) String() string {
	if l.address.Kind == TCP {
		return "tcp://" + l.Addr().String()
	}
	return l.address.String()
}
