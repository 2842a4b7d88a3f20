package fsapi

import (
	"errors"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// mayRemove says why the user could not remove an entry, by the rules that
// unlink(2) and rmdir(2) go by. Those of security modules are not among them, and
// a folder's contents are not looked at. It must be called on a worker.
func mayRemove(at place, acc account.Account) error {
	err := unix.Faccessat2(at.dir, ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	if err != nil && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	folder, err := removalStat(at.dir, "")
	if err != nil {
		return err
	}
	entry, err := removalStat(at.dir, at.name)
	if err != nil {
		return err
	}
	const fixed = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND
	sticky := folder.Mode&unix.S_ISVTX != 0
	switch {
	case entry.Attributes&fixed != 0, folder.Attributes&fixed != 0:
		return unix.EPERM
	case entry.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return unix.EBUSY
	case sticky && acc.UID != 0 && entry.Uid != acc.UID && folder.Uid != acc.UID:
		return unix.EPERM
	}
	return nil
}

// removalStat asks for what decides about a removal.
func removalStat(dir int, name string) (unix.Statx_t, error) {
	var st unix.Statx_t
	flags := itself(name) | unix.AT_NO_AUTOMOUNT
	_, err := retry(func() (struct{}, error) {
		return struct{}{}, unix.Statx(dir, name, flags, unix.STATX_MODE|unix.STATX_UID, &st)
	})
	return st, err
}
