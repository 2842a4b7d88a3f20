package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/kernel/internal/pykernel"
)

// newControl returns the two ends of a kernel's control socket: ours, and the
// kernel's, which its starter closes after the start.
func newControl() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a control socket: %w", err)
	}
	// What comes shows who has sent it; see greet.
	err = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	conn, connErr := net.FileConn(ours)
	_ = ours.Close() // conn has a duplicate
	if err := errors.Join(err, connErr); err != nil {
		_ = theirs.Close() // not used
		return nil, nil, fmt.Errorf("making a control socket: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}

// withDeadline runs fn, whose reads and writes of conn end with ctx.
func withDeadline(ctx context.Context, conn *net.UnixConn, fn func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := fn(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

// greet waits for the first message of a forked kernel and returns the process id
// and the user id that the system attests of its sender.
func greet(ctx context.Context, conn *net.UnixConn) (pid int, uid uint32, err error) {
	err = withDeadline(ctx, conn, func() error {
		hello := make([]byte, len("\x00\x00\x00\x02{}"))
		oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
		n, oobn, _, _, err := conn.ReadMsgUnix(hello, oob)
		if err != nil {
			return fmt.Errorf("%w: %w", errNoFork, err)
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return fmt.Errorf("%w: %w", errNoFork, err)
		}
		if n != len(hello) || len(messages) != 1 {
			return fmt.Errorf("%w: a greeting of %d bytes with %d control messages", errNoFork, n, len(messages))
		}
		cred, err := unix.ParseUnixCredentials(&messages[0])
		if err != nil {
			return fmt.Errorf("%w: %w", errNoFork, err)
		}
		pid, uid = int(cred.Pid), cred.Uid
		return nil
	})
	return pid, uid, err
}

// errNoFork says that a fork server did not fork.
var errNoFork = errors.New("the fork server made no kernel")

// settle gives a kernel that has run no user code yet its settings.
func settle(ctx context.Context, conn *net.UnixConn, settings pykernel.Settings) error {
	return withDeadline(ctx, conn, func() error {
		if err := pykernel.Send(conn, settings); err != nil {
			return err
		}
		var answer pykernel.Answer
		if err := pykernel.Receive(conn, &answer); err != nil {
			return fmt.Errorf("reading a kernel's answer: %w", err)
		}
		return answer.Err()
	})
}
