package fscred

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// errUnverified says that the kernel did not take on what it was told. The
// setfs*id calls report no errors themselves.
var errUnverified = errors.New("the thread's credentials are not those asked for")

// assume gives the calling thread acc's file-system rights. It cannot be undone;
// after an error the thread must not be used either.
func assume(acc account.Account) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unsharing umask and working directory: %w", err)
	}
	unix.Umask(0)
	if os.Geteuid() != 0 {
		return nil // its own user, which the thread already is
	}
	if err := setGroups(acc.Groups); err != nil {
		return fmt.Errorf("setting groups: %w", err)
	}
	// Group before user: changing the user takes the right to change the group.
	setID(unix.SYS_SETFSGID, acc.GID)
	setID(unix.SYS_SETFSUID, acc.UID)
	if acc.UID != 0 {
		if err := dropCapabilities(); err != nil {
			return fmt.Errorf("dropping capabilities: %w", err)
		}
	}
	return verify(acc)
}

// setGroups is setgroups(2) for this thread alone.
func setGroups(groups []uint32) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// setID is setfsuid(2) or setfsgid(2), which return the id before the call and
// report no failure.
func setID(call uintptr, id uint32) (before uint32) {
	previous, _, _ := unix.RawSyscall(call, uintptr(id), 0, 0)
	return uint32(previous)
}

// dropCapabilities empties all of the thread's capability sets. setfsuid(2)
// takes only the file capabilities out of the effective set; CAP_SYS_ADMIN,
// CAP_SYS_PTRACE, CAP_SYS_RESOURCE and others would stay, and some file systems
// and /proc ask for those.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// verify compares the thread's credentials with acc's. An id of -1 is never
// valid and changes nothing, so that the call only answers.
func verify(acc account.Account) error {
	const query = ^uint32(0)
	if uid := setID(unix.SYS_SETFSUID, query); uid != acc.UID {
		return fmt.Errorf("%w: fsuid is %d", errUnverified, uid)
	}
	if gid := setID(unix.SYS_SETFSGID, query); gid != acc.GID {
		return fmt.Errorf("%w: fsgid is %d", errUnverified, gid)
	}
	groups, err := getGroups()
	if err != nil {
		return fmt.Errorf("reading groups: %w", err)
	}
	want := slices.Clone(acc.Groups)
	slices.Sort(want) // the kernel sorts them
	slices.Sort(groups)
	if !slices.Equal(groups, want) {
		return fmt.Errorf("%w: groups are %v", errUnverified, groups)
	}
	if acc.UID == 0 {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	if caps != [2]unix.CapUserData{} {
		return fmt.Errorf("%w: capabilities are left", errUnverified)
	}
	return nil
}

// getGroups reads this thread's supplementary groups.
func getGroups() ([]uint32, error) {
	count, _, errno := unix.RawSyscall(unix.SYS_GETGROUPS, 0, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	groups := make([]uint32, count)
	if count == 0 {
		return groups, nil // a size of 0 asks for the count again
	}
	count, _, errno = unix.RawSyscall(unix.SYS_GETGROUPS, count, uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
	if errno != 0 {
		return nil, errno
	}
	return groups[:min(int(count), len(groups))], nil
}
