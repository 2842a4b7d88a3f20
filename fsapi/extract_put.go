package fsapi

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// put puts a batch's entries into their places; on a worker. Its error ends the
// call; other failures are taken note of.
func (x *extractor) put(b *extractBatch) error {
	for i := range b.items {
		if err := context.Cause(x.ctx); err != nil {
			return err
		}
		item := &b.items[i]
		err := item.failure
		if err == nil {
			err = x.putItem(item)
		}
		switch {
		case err == nil:
			x.result.Entries++
			x.result.Bytes += uint64(item.size)
		case x.fatal(err):
			return pathError("extract", join(x.full, item.name), err)
		default:
			x.result.fail("extract", join(x.full, item.name), err)
		}
	}
	return nil
}

// fatal says whether a failure is the whole call's.
func (x *extractor) fatal(err error) bool {
	return isFull(err) || x.opts.NoReplace && errors.Is(err, unix.EEXIST) || x.ctx.Err() != nil
}

func (x *extractor) putItem(item *extractItem) error {
	if item.name == "." {
		return x.putRoot(item)
	}
	dir, base, err := x.openParent(item.name)
	if err != nil {
		return err
	}
	at := place{dir, base}
	switch {
	case item.large != nil:
		return x.placeFile(item.large.file, item)
	case item.kind == TypeDirectory:
		return x.putFolder(at, item)
	case item.kind == TypeRegular:
		return x.putFile(at, item)
	case item.kind == TypeUnknown:
		return x.putHardLink(at, item)
	}
	return x.putNode(at, item)
}

// openParent opens the folder that an entry goes into, following no link, and
// makes it if need be. It stays open for the next entry.
func (x *extractor) openParent(clean string) (dir int, base string, err error) {
	folder, base := cutEntry(clean)
	if folder == "." {
		return x.root, base, nil
	}
	if x.parent >= 0 && x.parentName == folder {
		return x.parent, base, nil
	}
	fd, err := openBeneath(x.root, folder, unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		fd, err = makeBeneath(x.root, folder)
	}
	if err != nil {
		return -1, "", err
	}
	if x.parent >= 0 {
		unix.Close(x.parent)
	}
	x.parent, x.parentName = fd, folder
	return fd, base, nil
}

// openBeneath opens what a clean name below root names, following no link.
func openBeneath(root int, clean string, flags int) (int, error) {
	return openResolved(root, clean, flags|unix.O_NOFOLLOW, 0, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_BENEATH)
}

// makeBeneath makes what is missing of a folder below root, and opens it.
func makeBeneath(root int, clean string) (int, error) {
	dir, err := openBeneath(root, ".", unix.O_PATH|unix.O_DIRECTORY)
	for name := range strings.SplitSeq(clean, "/") {
		if err != nil {
			return -1, err
		}
		if err = unix.Mkdirat(dir, name, newFolderMode); errors.Is(err, unix.EEXIST) {
			err = nil
		}
		next := -1
		if err == nil {
			next, err = openBeneath(dir, name, unix.O_PATH|unix.O_DIRECTORY)
		}
		unix.Close(dir)
		dir = next
	}
	return dir, err
}

// putFile makes a file with the contents at hand.
func (x *extractor) putFile(at place, item *extractItem) error {
	file, err := x.create(at)
	if err != nil {
		return err
	}
	defer file.close()
	if err := writeAt(file.fd, item.data, 0); err != nil {
		return err
	}
	return x.placeFile(&file, item)
}

// create makes a file that has no name yet, or a temporary one. Once a file
// without a name could be made, the next are made without a second look: that is most of
// what a small file costs.
func (x *extractor) create(at place) (newFile, error) {
	if x.unnamed {
		fd, err := retry(func() (int, error) {
			return unix.Openat(at.dir, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		})
		if err == nil {
			return newFile{fd: fd, at: at}, nil
		}
	}
	file, err := createTemp(at, x.fsys.namedTemp)
	x.unnamed = err == nil && file.name == ""
	return file, err
}

// nameNew gives a complete file its name, which nobody may have.
func nameNew(file *newFile) error {
	if file.name != "" {
		return file.place(false)
	}
	// Without a way through /proc, where the kernel lets a thread do that with what it
	// has opened itself (since Linux 6.10).
	err := unix.Linkat(file.fd, "", file.at.dir, file.at.name, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.ENOENT) {
		return file.place(false)
	}
	return err
}

// nameOver gives a complete file its name in the place of what has it.
func nameOver(file *newFile) error {
	// A temporary name without a lock would be taken for left over.
	if err := unix.Flock(file.fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	return file.place(true)
}

// placeFile gives a complete file its attributes and then its name.
func (x *extractor) placeFile(file *newFile, item *extractItem) error {
	attrErr := setAttributes(file.fd, item.attrs)
	if err := x.chown(file.fd, "", item.owner); err != nil {
		return err
	}
	if err := unix.Fchmod(file.fd, item.mode); err != nil {
		return err
	}
	if err := setTimes(file.fd, "", item.modTime, item.modTime); err != nil {
		return err
	}
	err := nameNew(file)
	if errors.Is(err, unix.EEXIST) {
		if err = x.replaceable(file.at); err == nil {
			err = nameOver(file)
		}
	}
	if err == nil && attrErr != nil {
		x.result.fail("extract", join(x.full, item.name), attrErr)
	}
	return err
}

// replaceable says why what is at an entry's place may not be replaced by it.
func (x *extractor) replaceable(at place) error {
	if x.opts.NoReplace {
		return unix.EEXIST
	}
	old, err := statAt(at.dir, at.name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil // it has gone just now
	case err != nil:
		return err
	}
	return old.replaceable()
}

// putNode makes a symbolic link, FIFO or device.
func (x *extractor) putNode(at place, item *extractItem) error {
	return x.make(at, func(at place) error {
		var err error
		switch item.kind {
		case TypeSymlink:
			err = unix.Symlinkat(item.link, at.dir, at.name)
		case TypeFIFO:
			err = unix.Mknodat(at.dir, at.name, unix.S_IFIFO|item.mode&0o777, 0)
		case TypeCharDevice:
			err = unix.Mknodat(at.dir, at.name, unix.S_IFCHR|item.mode&0o777, int(item.device))
		case TypeBlockDevice:
			err = unix.Mknodat(at.dir, at.name, unix.S_IFBLK|item.mode&0o777, int(item.device))
		default:
			err = ErrNotSupportedType
		}
		if err != nil {
			return err
		}
		if err := x.chown(at.dir, at.name, item.owner); err != nil {
			return err
		}
		return setTimes(at.dir, at.name, item.modTime, item.modTime)
	})
}

// putHardLink makes an entry another name of a file below the folder.
func (x *extractor) putHardLink(at place, item *extractItem) error {
	folder, base := cutEntry(item.link)
	from, err := openBeneath(x.root, folder, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	target, err := statAt(from, base)
	if err != nil {
		return err
	}
	if target.Type == TypeDirectory {
		return unix.EISDIR
	}
	if old, err := statAt(at.dir, at.name); err == nil && old.id() == target.id() && !x.opts.NoReplace {
		return nil
	}
	// Without AT_SYMLINK_FOLLOW a link is linked itself.
	return x.make(at, func(at place) error { return unix.Linkat(from, base, at.dir, at.name, 0) })
}

// make makes something without contents, in the place of what may be replaced.
func (x *extractor) make(at place, create func(place) error) error {
	err := create(at)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if err := x.replaceable(at); err != nil {
		return err
	}
	return replaceEntry(x.ctx, at, create)
}

// chown gives an entry an owner, if it is to have another one.
func (x *extractor) chown(dir int, name string, to entryOwner) error {
	if to == nobodyElse {
		return nil
	}
	return unix.Fchownat(dir, name, to.uid, to.gid, itself(name))
}

// setAttributes sets user attributes, where the file system has such.
func setAttributes(fd int, attrs map[string]string) error {
	for attr, value := range attrs {
		err := unix.Fsetxattr(fd, attr, []byte(value), 0)
		if err != nil && !noAttribute(err) {
			return err
		}
	}
	return nil
}
