package fsapi

import (
	"errors"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// aclAttribute holds a file's POSIX access control list.
const aclAttribute = "system.posix_acl_access"

// maxAttribute is the most that one extended attribute, or the list of their
// names, may take (XATTR_SIZE_MAX, XATTR_LIST_MAX).
const maxAttribute = 64 << 10

// openAttributes opens an existing file for reading its attributes, which takes
// a real descriptor, but no permission to read the contents.
func openAttributes(dir int, base string) (int, error) {
	const flags = unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_NOFOLLOW
	fd, err := openNoLinks(dir, base, unix.O_RDONLY|flags, 0)
	if errors.Is(err, unix.EACCES) {
		fd, err = openNoLinks(dir, base, unix.O_WRONLY|flags, 0)
	}
	return fd, err
}

// copyAttributes copies user attributes and the access list. A list that the new
// file has inherited from its folder goes if the old file has none.
func copyAttributes(from, to int) error {
	list, err := attributeNames(from)
	if err != nil {
		return err
	}
	if !strings.Contains(list, aclAttribute+"\x00") {
		if err := unix.Fremovexattr(to, aclAttribute); err != nil && !noAttribute(err) {
			return err
		}
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		if name != aclAttribute && !strings.HasPrefix(name, "user.") {
			continue
		}
		value := make([]byte, maxAttribute)
		n, err := unix.Fgetxattr(from, name, value)
		if err == nil {
			err = unix.Fsetxattr(to, name, value[:n], 0)
		}
		if err != nil && !noAttribute(err) {
			return err
		}
	}
	return nil
}

// attributeNames lists a file's attributes, each with a NUL after it.
func attributeNames(fd int) (string, error) {
	n, err := unix.Flistxattr(fd, nil)
	if n > 0 {
		buf := make([]byte, maxAttribute)
		if n, err = unix.Flistxattr(fd, buf); err == nil {
			return string(buf[:n]), nil
		}
	}
	if err != nil && !noAttribute(err) {
		return "", err
	}
	return "", nil
}

// noAttribute says that there is no such attribute, or that there are none at
// all on this file system or for this kind of file.
func noAttribute(err error) bool {
	return errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM)
}

// itself are the flags for a system call that is to work on the entry name of a
// folder, even if it is a link, or with "" on the descriptor itself.
func itself(name string) int {
	if name == "" {
		return unix.AT_SYMLINK_NOFOLLOW | unix.AT_EMPTY_PATH
	}
	return unix.AT_SYMLINK_NOFOLLOW
}

// setTimes sets when the entry name of dir, itself if it is a link, was last
// used and changed; with name "" it is about the descriptor dir.
func setTimes(dir int, name string, access, modified time.Time) error {
	a, err := timespec(&access)
	if err != nil {
		return err
	}
	m, err := timespec(&modified)
	if err != nil {
		return err
	}
	return setTimespecs(dir, name, a, m)
}

func setTimespecs(dir int, name string, access, modified unix.Timespec) error {
	times := []unix.Timespec{access, modified}
	err := unix.UtimesNanoAt(dir, name, times, itself(name))
	if name == "" && errors.Is(err, unix.EINVAL) { // before Linux 5.8
		err = unix.UtimesNanoAt(unix.AT_FDCWD, descriptorLink(dir), times, 0)
	}
	return err
}

// setOwner gives the entry name of dir, itself if it is a link, or with name ""
// the descriptor dir, an owner and group, and says which mode fits the outcome:
// without its owner a file must not keep set-user-id and set-group-id, which
// would be somebody else's rights.
func setOwner(dir int, name string, want Info) (mode uint32, err error) {
	err = unix.Fchownat(dir, name, int(want.UID), int(want.GID), itself(name))
	if err == nil {
		return want.Mode, nil
	}
	if !errors.Is(err, unix.EPERM) {
		return 0, err
	}
	// Another owner takes root, but the group may be one of the user's.
	have, err := statAt(dir, name)
	if err != nil {
		return 0, err
	}
	if err := unix.Fchownat(dir, name, -1, int(want.GID), itself(name)); err == nil {
		have.GID = want.GID
	}
	if have.UID == want.UID && have.GID == want.GID {
		return want.Mode, nil
	}
	return want.Mode &^ (unix.S_ISUID | unix.S_ISGID), nil
}
