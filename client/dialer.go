package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/mdlayher/vsock"
)

// Back-off between two attempts to connect while nothing listens yet.
const (
	minBackoff = time.Millisecond
	maxBackoff = 50 * time.Millisecond
)

// handshakeTimeout bounds one attempt to get through a monitor's socket.
const handshakeTimeout = 5 * time.Second

// dialer connects to one target.
type dialer struct {
	target target
	// patience is how long one dial goes on while nothing listens.
	patience time.Duration
}

// dial connects, trying again as long as nothing listens and patience lasts. It has the form that
// grpc.WithContextDialer takes.
func (d *dialer) dial(ctx context.Context, _ string) (net.Conn, error) {
	giveUp := time.Now().Add(d.patience)
	backoff := minBackoff
	for {
		conn, err := d.attempt(ctx)
		if err == nil {
			return conn, nil
		}
		err = fmt.Errorf("connecting to %s: %w", d.target, err)
		if !isNotYet(err) || !time.Now().Add(backoff).Before(giveUp) {
			return nil, err
		}
		if !pause(ctx, backoff) {
			return nil, fmt.Errorf("%w; gave up: %w", err, context.Cause(ctx))
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

func (d *dialer) attempt(ctx context.Context) (net.Conn, error) {
	var plain net.Dialer
	switch d.target.transport {
	case transportVsock:
		conn, err := vsock.DialContext(ctx, d.target.cid, d.target.port, nil)
		if err != nil {
			return nil, err // not conn: a nil *vsock.Conn is no nil net.Conn
		}
		return conn, nil
	case transportFirecracker:
		conn, err := plain.DialContext(ctx, "unix", d.target.address)
		if err != nil {
			return nil, err
		}
		tune(conn)
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		defer stop()
		if err := handshake(conn, d.target.port, handshakeDeadline(ctx)); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	default:
		conn, err := plain.DialContext(ctx, string(d.target.transport), d.target.address)
		if err != nil {
			return nil, err
		}
		tune(conn)
		return conn, nil
	}
}

// tune lets more be under way in a Unix socket than the kernel's own 208 KiB, with which the two
// ends take turns instead of working at once. What the kernel does not grant is no error.
func tune(conn net.Conn) {
	if socket, ok := conn.(*net.UnixConn); ok {
		_ = socket.SetWriteBuffer(socketBytes)
	}
}

func handshakeDeadline(ctx context.Context) time.Time {
	deadline := time.Now().Add(handshakeTimeout)
	if outer, ok := ctx.Deadline(); ok && outer.Before(deadline) {
		return outer
	}
	return deadline
}

// isNotYet tells whether an error means that nobody listens at the target now, which a guest that
// is still booting, restarting or being restored puts right by itself.
func isNotYet(err error) bool {
	for _, errno := range []error{
		errNothingListens,
		syscall.ECONNREFUSED, // a socket or port without a listener
		syscall.ENOENT,       // a socket that is not made yet
		syscall.ECONNRESET,   // vsock: a guest that runs without a listener
		syscall.ENODEV,       // vsock: a CID without a guest
		syscall.ETIMEDOUT,    // vsock: a guest whose driver is not up
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func isConnectionClosed(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// pause waits for d and tells whether ctx let it.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
