package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/internal/fscred"
)

// errForeignPeer says that a kernel's socket is served by another user.
var errForeignPeer = errors.New("the socket belongs to another user's process")

// dialUnix connects to a Unix socket with acc's file-system rights and checks
// that acc serves it: the path lies in a folder in which the user may have put
// anything, a link to somebody else's socket included.
func dialUnix(acc account.Account, path string) (net.Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	// A non-blocking connect to a Unix socket is done or has failed when it
	// returns; with a full backlog it is EAGAIN.
	err = fscred.Do(acc, func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) })
	if err == nil {
		err = checkPeer(fd, acc)
	}
	file := os.NewFile(uintptr(fd), path)
	defer func() { _ = file.Close() }() // FileConn has a duplicate
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", path, err)
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", path, err)
	}
	return conn, nil
}

func checkPeer(fd int, acc account.Account) error {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return fmt.Errorf("asking for the peer: %w", err)
	}
	if peer.Uid != acc.UID {
		return fmt.Errorf("%w: uid %d instead of %d", errForeignPeer, peer.Uid, acc.UID)
	}
	return nil
}
