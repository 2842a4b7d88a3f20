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

// errUnverified says that the kernel did not take on what it was told.
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
	if err := setEffective(unix.SYS_SETRESGID, acc.GID); err != nil {
		return fmt.Errorf("setting the group: %w", err)
	}
	if err := setEffective(unix.SYS_SETRESUID, acc.UID); err != nil {
		return fmt.Errorf("setting the user: %w", err)
	}
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

// unchanged is (uid_t)-1: "leave this id as it is".
const unchanged = ^uint32(0)

// setEffective sets this thread's effective user or group, and with it the
// file-system one, and leaves the real and saved ones. The file-system id alone
// would not do: /proc/sys lets whoever has the effective uid 0 write, which
// would give every user the kernel's settings, core_pattern among them. The real
// and saved ids stay guestd's, for they decide who may signal or trace a thread.
func setEffective(call uintptr, id uint32) error {
	keep := uintptr(unchanged)
	if _, _, errno := unix.RawSyscall(call, keep, uintptr(id), keep); errno != 0 {
		return errno
	}
	return nil
}

// fsID asks for this thread's file-system user or group. setfsuid(2) and
// setfsgid(2) return the id before the call; one that is not valid changes
// nothing, so that the call only answers.
func fsID(call uintptr) uint32 {
	id, _, _ := unix.RawSyscall(call, uintptr(unchanged), 0, 0)
	return uint32(id)
}

// dropCapabilities empties all of the thread's capability sets. Leaving the
// effective uid 0 empties the effective set, but what is permitted could be
// raised again.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// verify compares the thread's credentials with acc's.
func verify(acc account.Account) error {
	if uid := fsID(unix.SYS_SETFSUID); uid != acc.UID {
		return fmt.Errorf("%w: fsuid is %d", errUnverified, uid)
	}
	if gid := fsID(unix.SYS_SETFSGID); gid != acc.GID {
		return fmt.Errorf("%w: fsgid is %d", errUnverified, gid)
	}
	if uid := unix.Geteuid(); uid != int(acc.UID) {
		return fmt.Errorf("%w: effective uid is %d", errUnverified, uid)
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
