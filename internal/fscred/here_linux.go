package fscred

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// errNotRestored says that a thread could not be given guestd's rights back.
var errNotRestored = errors.New("the thread's rights could not be restored")

// Here runs fn on the calling goroutine, whose thread meanwhile has acc's
// file-system ids and no effective capability, and returns fn's error. It is for
// reading from and writing to regular files that are open: then the kernel decides
// on quotas, on blocks reserved for root and on whether set-user-id stays as it does
// for the user. For everything else there is [Do]: here supplementary groups and the
// effective uid are still guestd's. fn must not start goroutines, nor do anything
// with paths.
//
// It costs five short system calls, and no other thread. The ids are undone in
// reverse; should that fail, the goroutine stays locked to the thread, which ends
// with it.
func Here(acc account.Account, fn func() error) (err error) {
	if err := check(acc); err != nil {
		return fmt.Errorf("taking on file-system rights of uid %d: %w", acc.UID, err)
	}
	if acc.UID == 0 || os.Geteuid() != 0 {
		return fn() // the ids that the thread has
	}
	runtime.LockOSThread()
	before, err := borrow(acc)
	defer func() {
		if restoreErr := before.restore(); restoreErr != nil {
			err = errors.Join(err, restoreErr)
			return
		}
		runtime.UnlockOSThread()
	}()
	if err != nil {
		return fmt.Errorf("taking on file-system rights of uid %d: %w", acc.UID, err)
	}
	return fn()
}

// borrowed is what a thread had before.
type borrowed struct {
	uid, gid uint32
	caps     [2]unix.CapUserData
}

// borrow takes on acc's file-system ids and lowers all capabilities, which stay
// permitted.
func borrow(acc account.Account) (borrowed, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	b := borrowed{uid: fsID(unix.SYS_SETFSUID), gid: fsID(unix.SYS_SETFSGID)}
	if err := unix.Capget(&header, &b.caps[0]); err != nil {
		return b, fmt.Errorf("reading capabilities: %w", err)
	}
	// The group first: changing the user takes the rights for it.
	setFSID(unix.SYS_SETFSGID, acc.GID)
	setFSID(unix.SYS_SETFSUID, acc.UID)
	lowered := b.caps
	lowered[0].Effective, lowered[1].Effective = 0, 0
	if err := unix.Capset(&header, &lowered[0]); err != nil {
		return b, fmt.Errorf("lowering capabilities: %w", err)
	}
	if uid, gid := fsID(unix.SYS_SETFSUID), fsID(unix.SYS_SETFSGID); uid != acc.UID || gid != acc.GID {
		return b, fmt.Errorf("%w: fsuid is %d and fsgid %d", errUnverified, uid, gid)
	}
	return b, nil
}

// restore gives a thread back what it had: its real ids allow that.
func (b borrowed) restore() error {
	setFSID(unix.SYS_SETFSUID, b.uid)
	setFSID(unix.SYS_SETFSGID, b.gid)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&header, &b.caps[0]); err != nil {
		return fmt.Errorf("%w: %w", errNotRestored, err)
	}
	if uid, gid := fsID(unix.SYS_SETFSUID), fsID(unix.SYS_SETFSGID); uid != b.uid || gid != b.gid {
		return fmt.Errorf("%w: fsuid is %d and fsgid %d", errNotRestored, uid, gid)
	}
	return nil
}

// setFSID sets this thread's file-system user or group; the kernel tells only by
// asking again whether it did.
func setFSID(call uintptr, id uint32) {
	_, _, _ = unix.RawSyscall(call, uintptr(id), 0, 0)
}
