package listen

import (
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

// HostCID is the context id of a virtual machine's host (VMADDR_CID_HOST,
// vsock(7)).
const HostCID = 2

// Trust says which peers are taken. Its zero value takes the host over vsock,
// and root and this process's own user over Unix sockets.
type Trust struct {
	// VsockCIDs are the context ids that may connect over vsock; nil is HostCID
	// alone. Code in the guest that connects through loopback comes as 1 or as the
	// guest's own.
	VsockCIDs []uint32
	// UnixUIDs may connect to Unix sockets besides root and this process's own.
	UnixUIDs []uint32
	// UnixOutsideOnly takes peers on Unix sockets only from outside this process's
	// pid namespace, and then whatever their uid. Nothing in a container with a pid
	// namespace of its own can then connect, root included.
	UnixOutsideOnly bool
}

// Peer is who is at a connection's other end, as the kernel tells it.
type Peer struct {
	CID uint32 // vsock: the context id
	UID uint32 // Unix: effective uid when it connected
	PID int32  // Unix: pid when it connected; 0 is outside this pid namespace
}

// RefusedError says who was refused and why.
type RefusedError struct {
	Peer   Peer
	Reason string
}

// Error implements error.
func (e *RefusedError) Error() string { return "peer refused: " + e.Reason }

// refusal is why p may not connect over kind; "" is that it may.
func (t *Trust) refusal(kind Kind, p Peer) string {
	switch kind {
	case Vsock:
		if !slices.Contains(t.cids(), p.CID) {
			return fmt.Sprintf("context id %d is not served", p.CID)
		}
	case Unix:
		if t.UnixOutsideOnly {
			if p.PID != 0 {
				return fmt.Sprintf("pid %d is inside guestd's pid namespace", p.PID)
			}
			return ""
		}
		if p.UID != 0 && p.UID != uint32(os.Geteuid()) && !slices.Contains(t.UnixUIDs, p.UID) {
			return fmt.Sprintf("uid %d is not served", p.UID)
		}
	}
	return ""
}

func (t *Trust) cids() []uint32 {
	if t.VsockCIDs == nil {
		return []uint32{HostCID}
	}
	return t.VsockCIDs
}

// socketMode is the mode of a Unix socket's file. Connecting needs write
// permission, which is left open where users other than its owner and root are
// to get as far as the check of their uid.
func (t *Trust) socketMode() os.FileMode {
	if t.UnixOutsideOnly || len(t.UnixUIDs) > 0 {
		return 0o666
	}
	return 0o600
}

// peerOf asks the kernel who is at the other end of conn.
func peerOf(kind Kind, conn net.Conn) (Peer, error) {
	switch kind {
	case Vsock:
		addr, ok := conn.RemoteAddr().(*vsock.Addr)
		if !ok || addr == nil {
			return Peer{}, fmt.Errorf("a vsock connection without the peer's address (%T)", conn.RemoteAddr())
		}
		return Peer{CID: addr.ContextID}, nil
	case Unix:
		return unixPeer(conn)
	default:
		return Peer{}, nil
	}
}

// unixPeer reads SO_PEERCRED: the credentials that the peer had when it
// connected (unix(7)). Passing the socket on to another process does not change
// them.
func unixPeer(conn net.Conn) (Peer, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return Peer{}, fmt.Errorf("a Unix connection without a descriptor (%T)", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return Peer{}, err
	}
	if credErr != nil {
		return Peer{}, os.NewSyscallError("getsockopt", credErr)
	}
	return Peer{UID: cred.Uid, PID: cred.Pid}, nil
}
