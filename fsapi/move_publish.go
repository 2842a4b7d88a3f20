package fsapi

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// publication puts a finished copy in its place, and takes it away again if the
// source turns out to stay.
type publication struct {
	*mover
	copied place // where the copy is made; after publish what it has replaced, if that is kept
	info   Info  // of the source

	copy Info  // of the copy
	had  stand // what the destination had before
	old  Info  // of the folder it had
}

// stand is what was at a destination, and whether it can be had back.
type stand int

const (
	hadNothing stand = iota
	hadFile          // kept
	hadFolder        // an empty one, which can be made anew
	hadLost          // replaced for good
)

// publish gives the copy the destination's name, in one step.
func (p *publication) publish() (err error) {
	if p.copy, err = statAt(p.copied.dir, p.copied.name); err != nil {
		return err
	}
	err = p.relocate(p.copied, func() error {
		return renameNew(p.copied.dir, p.copied.name, p.to.dir, p.to.base)
	})
	if !errors.Is(err, unix.EEXIST) || p.opts.NoReplace {
		return err
	}
	if p.info.Type != TypeDirectory {
		return p.exchange()
	}
	if p.old, err = statAt(p.to.dir, p.to.base); err != nil {
		return err
	}
	p.had = hadFolder
	return p.relocate(p.copied, func() error {
		return unix.Renameat(p.copied.dir, p.copied.name, p.to.dir, p.to.base)
	})
}

// exchange has the copy and what is at the destination change places, so that the
// old one can be had back. Not every file system can do that.
func (p *publication) exchange() error {
	if err := p.swap(); err != nil {
		p.had = hadLost
		return unix.Renameat(p.copied.dir, p.copied.name, p.to.dir, p.to.base)
	}
	p.had = hadFile
	old, err := statAt(p.copied.dir, p.copied.name)
	if err == nil && old.Type == TypeDirectory { // since a moment ago; rename(2) would have refused it
		err = errors.Join(unix.EISDIR, p.swap())
	}
	return err
}

func (p *publication) swap() error {
	return unix.Renameat2(p.copied.dir, p.copied.name, p.to.dir, p.to.base, unix.RENAME_EXCHANGE)
}

// settle ends the move after the source was removed, or was not: err says why.
// whole says that all of it is there then.
func (p *publication) settle(whole bool, err error) error {
	err = pathError("remove", p.source, err)
	if err == nil || whole && p.takeBack() {
		return err
	}
	return fmt.Errorf("%w (the destination has the whole copy, and what is left of the source stays)", err)
}

// takeBack makes the destination what it was before publish; false means that it
// has the copy still, or something that has replaced that.
func (p *publication) takeBack() bool {
	now, err := statAt(p.to.dir, p.to.base)
	if err != nil || now.id() != p.copy.id() || p.had == hadLost {
		return false
	}
	if p.had == hadFile {
		return p.swap() == nil
	}
	err = p.relocate(place{p.to.dir, p.to.base}, func() error {
		return renameNew(p.to.dir, p.to.base, p.copied.dir, p.copied.name)
	})
	if err == nil && p.had == hadFolder {
		err = makeAnew(place{p.to.dir, p.to.base}, p.old)
	}
	return err == nil
}

// makeAnew makes an empty folder like one that was there.
func makeAnew(at place, like Info) error {
	if err := unix.Mkdirat(at.dir, at.name, 0o700); err != nil {
		return err
	}
	fd, err := openSubfolder(at.dir, at.name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	mode, err := setOwner(fd, "", like)
	if err != nil {
		return err
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	return setTimes(fd, "", like.AccessTime, like.ModTime)
}

// relocate runs rename, which gives the copy at the given place another parent.
// That changes a folder's "..", which takes write permission for it; one without
// gets it for that moment.
func (p *publication) relocate(at place, rename func() error) error {
	if p.info.Type != TypeDirectory || p.info.Mode&0o200 != 0 {
		return rename()
	}
	fd, err := openSubfolder(at.dir, at.name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fchmod(fd, p.copy.Mode|0o200); err != nil {
		return err
	}
	return errors.Join(rename(), unix.Fchmod(fd, p.copy.Mode))
}
