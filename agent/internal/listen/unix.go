package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// probeTime bounds how long a socket file that is in the way may take to show
// that somebody listens on it. The kernel answers at once unless the listener's
// backlog is full, and then somebody does listen.
const probeTime = time.Second

// openUnix listens on a Unix socket at path. A socket file that nobody answers
// on is replaced; anything else in the way stays and is an error. The returned
// function removes the file, unless another socket has taken its place.
func openUnix(path string, mode os.FileMode) (net.Listener, func() error, error) {
	if err := clearStale(path); err != nil {
		return nil, nil, err
	}
	inner, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	// Go would remove whatever is at the path by then.
	inner.SetUnlinkOnClose(false)
	info, err := os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		return nil, nil, errors.Join(err, inner.Close(), os.Remove(path))
	}
	return inner, func() error { return removeIfSame(path, info) }, nil
}

// clearStale removes a socket file at path that nobody answers on.
func clearStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return &fs.PathError{Op: "listen", Path: path, Err: fmt.Errorf("%w, and is no socket", syscall.EEXIST)}
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), probeTime, errors.New("probing the socket took too long"))
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		conn.Close()
		return &fs.PathError{Op: "listen", Path: path, Err: fmt.Errorf("%w: somebody answers on this socket", unix.EADDRINUSE)}
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("looking whether somebody listens on the socket: %w", err)
	}
	return removeIfSame(path, info)
}

// removeIfSame removes the file at path if it is still the one that info is of.
func removeIfSame(path string, info os.FileInfo) error {
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, now) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}
