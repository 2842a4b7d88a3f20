package fsapi

import (
	"errors"

	"golang.org/x/sys/unix"
)

// publish puts the temporary file in the target's place; on a worker.
func (h *WriteHandle) publish() error {
	fd := int(h.file.Fd())
	if err := h.setMode(fd); err != nil {
		return err
	}
	if h.opts.Fsync {
		if err := unix.Fsync(fd); err != nil {
			return err
		}
	}
	err := h.place(fd)
	if errors.Is(err, unix.ENOENT) && h.opts.CreateParents && h.temp == "" {
		// Another upload had made the folder and took it away when it was
		// aborted, as a file without a name does not keep it.
		h.target.close()
		h.made.close()
		h.made = madeFolders{dir: -1}
		if err = h.locate(); err == nil {
			err = h.place(fd)
		}
	}
	if err != nil && !h.opts.Exclusive && needsInPlace(err) {
		err = h.copyInPlace(fd, err)
	}
	if err == nil && h.opts.Fsync {
		err = syncFolder(h.target.dir)
	}
	return err
}

// setMode sets the mode last of all, as changing the owner drops special bits.
func (h *WriteHandle) setMode(fd int) error {
	switch {
	case h.opts.Mode != nil:
		return unix.Fchmod(fd, *h.opts.Mode)
	case h.target.exists:
		return unix.Fchmod(fd, h.target.info.Mode)
	}
	return nil // as it was made, under the folder's default access list
}

// place gives the temporary file the target's name. A name that must not be
// taken yet is never renamed over: with Exclusive that is an error, and with
// Append and Offset it means that somebody else has made the file meanwhile, so
// that it must be written into.
func (h *WriteHandle) place(fd int) error {
	t := h.target
	if !t.exists {
		err := h.placeNew(fd)
		if !errors.Is(err, unix.EEXIST) || h.opts.Exclusive || h.opts.partial() {
			return err
		}
	}
	if h.temp == "" {
		temp, err := claimTemp(t.dir, t.base, func(name string) error { return linkDescriptor(fd, t.dir, name) })
		if err != nil {
			return err
		}
		h.temp = temp
	}
	if err := unix.Renameat(t.dir, h.temp, t.dir, t.base); err != nil {
		return err
	}
	h.temp = ""
	return nil
}

// placeNew gives the temporary file the target's name if nobody has it.
func (h *WriteHandle) placeNew(fd int) error {
	t := h.target
	if h.temp == "" {
		return linkDescriptor(fd, t.dir, t.base)
	}
	if err := renameNew(t.dir, h.temp, t.dir, t.base); err != nil {
		return err
	}
	h.temp = ""
	return nil
}

// linkDescriptor gives an open file a name that nobody has.
func linkDescriptor(fd, dir int, name string) error {
	return unix.Linkat(unix.AT_FDCWD, descriptorLink(fd), dir, name, unix.AT_SYMLINK_FOLLOW)
}

// renameNew renames if the new name is free, else EEXIST.
func renameNew(fromDir int, from string, toDir int, to string) error {
	err := unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// The file system does not know the flag. A hard link is as good, for what
	// can have one; for a folder the look before is the best there is.
	if _, err := statAt(toDir, to); err == nil {
		return unix.EEXIST
	}
	switch err := unix.Linkat(fromDir, from, toDir, to, 0); {
	case err == nil:
		return unix.Unlinkat(fromDir, from, 0)
	case errors.Is(err, unix.EEXIST):
		return err
	}
	return unix.Renameat(fromDir, from, toDir, to)
}

// copyInPlace is what remains where a file cannot be renamed over, for the given
// reason: the existing one is written from the temporary one.
func (h *WriteHandle) copyInPlace(temp int, reason error) error {
	info, err := statAt(h.target.dir, h.target.base)
	if err != nil || info.Type == TypeSymlink {
		return reason
	}
	h.target.info = info
	start := int64(0)
	if h.opts.Offset != nil {
		start = int64(*h.opts.Offset)
	}
	if _, err := unix.Seek(temp, start, unix.SEEK_SET); err != nil {
		return err
	}
	fd, err := openTarget(h.target, h.opts)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	h.inPlace = true
	if err := copyRest(h.ctx, temp, fd); err != nil {
		return err
	}
	return h.finishInPlace(fd)
}

// finishInPlace sets the mode and syncs what was written in place.
func (h *WriteHandle) finishInPlace(fd int) error {
	if h.opts.Mode != nil {
		if err := unix.Fchmod(fd, *h.opts.Mode); err != nil {
			return err
		}
	}
	if !h.opts.Fsync {
		return nil
	}
	err := unix.Fsync(fd)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EROFS) {
		return nil // a FIFO or device, which has nothing to sync
	}
	return err
}

// syncFolder makes a folder's names durable.
func syncFolder(dir int) error {
	fd, err := openAt(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		if errors.Is(err, unix.EACCES) {
			return nil // writable but not readable: the user cannot ask for it
		}
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}
