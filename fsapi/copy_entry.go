package fsapi

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

// copyFile copies a regular file. Nothing is left of it after a failure, and
// what was there before is still there.
func (c *copier) copyFile(e copyEntry) error {
	in, info, err := c.openSource(e.from, 0)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	if info.Type != TypeRegular {
		return ErrNotSupportedType // it was replaced just now
	}
	file, err := c.create(e, info)
	if err != nil {
		return c.destinationError(e, err)
	}
	defer file.close()
	if err := copyContents(c.ctx, in, file.fd); err != nil {
		if isFull(err) {
			return c.destinationError(e, err) // the source needs no room
		}
		return err
	}
	if err = c.finish(in, file.fd, info); err == nil {
		err = file.place(false)
	}
	if c.rules.merge && errors.Is(err, unix.EEXIST) {
		if err = c.replaceable(e.to, info); err == nil {
			err = file.place(true)
		}
	}
	if err != nil {
		return c.destinationError(e, err)
	}
	c.bytes += uint64(max(info.Size, 0))
	return nil
}

// create makes the file that an entry is copied to: under its own name if that
// is free and may be seen early, else a temporary one.
func (c *copier) create(e copyEntry, info Info) (newFile, error) {
	if e.below != "" || !c.rules.whole {
		file, err := createFile(e.to)
		if err == nil || !c.rules.merge || !errors.Is(err, unix.EEXIST) {
			return file, err
		}
	}
	if err := c.replaceable(e.to, info); err != nil && !errors.Is(err, unix.ENOENT) {
		return newFile{}, err
	}
	return createTemp(e.to, c.rules.namedTemp)
}

// replaceable says why what is at a file's or link's destination may not be
// replaced by it.
func (c *copier) replaceable(to place, source Info) error {
	old, err := statAt(to.dir, to.name)
	switch {
	case err != nil:
		return err
	case !c.rules.merge:
		return unix.EEXIST
	case old.id() == source.id():
		return errCopyIntoItself
	}
	return old.replaceable()
}

// replaceable says why a file or link may not take the place of what is there.
func (i Info) replaceable() error {
	switch i.Type {
	case TypeRegular, TypeSymlink:
		return nil
	case TypeDirectory:
		return unix.EISDIR
	}
	return ErrNotSupportedType // /dev/null shall stay what it is
}

func (c *copier) copyLink(e copyEntry, info Info) error {
	if err := refuseOwnProc(e.from.dir, c.acc); err != nil {
		return err
	}
	target, err := readLinkAt(e.from.dir, e.from.name)
	if err != nil {
		return err
	}
	return c.destinationError(e, c.make(e.to, info, func(to place) error {
		return unix.Symlinkat(target, to.dir, to.name)
	}))
}

// copyNode makes a FIFO, socket or, where the user may, a device.
func (c *copier) copyNode(e copyEntry, info Info) error {
	kinds := map[Type]uint32{
		TypeFIFO: unix.S_IFIFO, TypeSocket: unix.S_IFSOCK,
		TypeCharDevice: unix.S_IFCHR, TypeBlockDevice: unix.S_IFBLK,
	}
	kind, ok := kinds[info.Type]
	if !ok {
		return ErrNotSupportedType
	}
	return c.destinationError(e, c.make(e.to, info, func(to place) error {
		return unix.Mknodat(to.dir, to.name, kind|info.Mode&0o777, int(info.RDevice))
	}))
}

// make makes something that has no contents, in the place of what may be
// replaced.
func (c *copier) make(to place, info Info, create func(place) error) error {
	complete := func(to place) error {
		err := create(to)
		if err != nil || !c.rules.preserve {
			return err
		}
		if _, err := setOwner(to.dir, to.name, info); err != nil {
			return err
		}
		return setTimes(to.dir, to.name, info.AccessTime, info.ModTime)
	}
	err := complete(to)
	if !c.rules.merge || !errors.Is(err, unix.EEXIST) {
		return err
	}
	if err := c.replaceable(to, info); err != nil {
		return err
	}
	return replaceEntry(c.ctx, to, complete)
}

// replaceEntry puts what create makes in the place of what is there, in one step.
// It is made in a folder of its own, which is recognised as left over if guestd
// is killed.
func replaceEntry(ctx context.Context, at place, create func(place) error) error {
	lock := -1
	temp, err := claimTemp(at.dir, at.name, func(name string) (err error) {
		lock, err = makeTempFolder(at.dir, name)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(lock)
	made := place{lock, tempEntry}
	if err = create(made); err == nil {
		err = unix.Renameat(made.dir, made.name, at.dir, at.name)
	}
	if cleanErr := removeTempFolder(context.WithoutCancel(ctx), place{at.dir, temp}, lock); err == nil {
		err = cleanErr
	}
	return err
}

// newFile is a file that is being made. Until it is placed it has no name, a
// temporary one, or that of something that did not exist.
type newFile struct {
	fd   int
	at   place  // what it is to be
	name string // the name that it has in at.dir; "" for none
}

// createFile makes a file under its own name, which nobody may have.
func createFile(at place) (newFile, error) {
	fd, err := openNoLinks(at.dir, at.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return newFile{}, err
	}
	return newFile{fd: fd, at: at, name: at.name}, nil
}

// createTemp makes a file without a name, or else with a temporary one.
func createTemp(at place, named bool) (newFile, error) {
	if !named {
		if fd, err := openUnnamed(at.dir, 0o600); err == nil {
			return newFile{fd: fd, at: at}, nil
		}
	}
	fd, temp, err := openNamed(at.dir, at.name, 0o600)
	return newFile{fd: fd, at: at, name: temp}, err
}

// place gives the file its name: one that nobody has, or with over in the place
// of what has it.
func (f *newFile) place(over bool) (err error) {
	if f.name != f.at.name {
		switch {
		case !over && f.name == "":
			err = linkDescriptor(f.fd, f.at.dir, f.at.name)
		case !over:
			err = renameNew(f.at.dir, f.name, f.at.dir, f.at.name)
		default:
			err = f.placeOver()
		}
	}
	if err == nil {
		f.name = ""
	}
	return err
}

func (f *newFile) placeOver() (err error) {
	if f.name == "" {
		f.name, err = claimTemp(f.at.dir, f.at.name, func(name string) error { return linkDescriptor(f.fd, f.at.dir, name) })
		if err != nil {
			return err
		}
	}
	return unix.Renameat(f.at.dir, f.name, f.at.dir, f.at.name)
}

// close ends the file, and removes it unless it was placed.
func (f *newFile) close() {
	if f.name != "" {
		// If this fails, as it does only when the folder has been changed
		// meanwhile, the next write of the same path finds a temporary file.
		_ = unix.Unlinkat(f.at.dir, f.name, 0)
	}
	unix.Close(f.fd)
}
