package fsapi

import (
	"errors"

	"golang.org/x/sys/unix"
)

// errNotAlike says that a temporary file cannot be given the existing file's
// owner, so that it cannot replace it.
var errNotAlike = errors.New("the file's owner cannot be kept")

// needsInPlace says whether err means that a temporary file cannot take the
// target's place, rather than that nothing can be written.
func needsInPlace(err error) bool {
	for _, reason := range []error{
		errNotAlike, unix.EACCES, unix.EPERM, unix.EOPNOTSUPP, unix.ENOENT, unix.EINVAL,
		unix.ENOSYS, unix.EXDEV, unix.EBUSY, unix.EROFS, unix.EEXIST,
	} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// openTemp opens a temporary file in the target's folder and makes it like the
// existing file, but for the mode, which Commit sets.
func (h *WriteHandle) openTemp() error {
	mode := uint32(newFileMode)
	if h.opts.Mode != nil {
		mode = *h.opts.Mode & 0o777
	}
	if h.target.exists {
		mode = 0o600 // until it has the right owner
	}
	fd, err := -1, error(nil)
	if !h.fsys.namedTemp {
		fd, err = openUnnamed(h.target.dir, mode)
	}
	if fd < 0 {
		if fd, h.temp, err = openNamed(h.target.dir, h.target.base, mode); err != nil {
			return err
		}
	}
	if err := h.adopt(fd); err != nil {
		return err
	}
	if h.target.exists {
		if err := h.makeAlike(fd); err != nil {
			h.file.Close()
			h.file = nil
			return errors.Join(err, h.removeTemp())
		}
	}
	if h.opts.Offset != nil {
		_, err = unix.Seek(fd, int64(*h.opts.Offset), unix.SEEK_SET)
	}
	return err
}

// openUnnamed makes a file in the folder dir that vanishes with its descriptor,
// whatever happens to this process. Giving it a name later takes /proc.
func openUnnamed(dir int, mode uint32) (int, error) {
	fd, err := openAt(dir, ".", unix.O_TMPFILE|unix.O_RDWR, mode)
	if err != nil {
		return -1, err
	}
	if _, err := descriptorPath(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openNamed makes a temporary file with a name, for the entry base of dir.
func openNamed(dir int, base string, mode uint32) (fd int, temp string, err error) {
	fd = -1
	temp, err = claimTemp(dir, base, func(name string) (err error) {
		fd, err = openNoLinks(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, mode)
		if err != nil {
			return err
		}
		if err := lockTemp(fd); err != nil {
			unix.Close(fd)
			fd = -1
			return err
		}
		return nil
	})
	return fd, temp, err
}

func (h *WriteHandle) removeTemp() error {
	if h.temp == "" {
		return nil
	}
	temp := h.temp
	h.temp = ""
	return unix.Unlinkat(h.target.dir, temp, 0)
}

// makeAlike gives the temporary file the existing file's owner, group, user
// attributes and access list. errNotAlike means that the user may not.
func (h *WriteHandle) makeAlike(temp int) error {
	have, err := statAt(temp, "")
	if err != nil {
		return err
	}
	want := h.target.info
	if have.UID != want.UID || have.GID != want.GID {
		if err := unix.Fchown(temp, int(want.UID), int(want.GID)); err != nil {
			return errors.Join(errNotAlike, err)
		}
	}
	old, err := openAttributes(h.target.dir, h.target.base)
	if err != nil {
		return err
	}
	defer unix.Close(old)
	return copyAttributes(old, temp)
}
