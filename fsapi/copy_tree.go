package fsapi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// maxCopyDepth is how many levels of folders a copied tree may have. Each holds
// two descriptors.
const maxCopyDepth = 256

// maxCopyFailures is after how many entries that cannot be copied a copy gives
// up.
const maxCopyFailures = 1000

// maxHardLinks is how many files with several names are remembered during a
// copy; further ones are copied once for each name.
const maxHardLinks = 100_000

// errCopyIntoItself says that a copy's destination is its source, or within it.
var errCopyIntoItself = errors.New("the destination is the source or inside it")

// errCircle says that a link leads to a folder that it is in.
var errCircle = fmt.Errorf("a link leads back to a folder that it is in: %w", unix.ELOOP)

// copyRules says how a tree is copied.
type copyRules struct {
	// followLinks copies what links lead to.
	followLinks bool
	// preserve keeps owners as far as the user may set them, times, user
	// attributes, access lists, and hard links within the tree. Otherwise the
	// copy is the user's own, with the original's mode.
	preserve bool
	// merge copies into folders that are there already, and replaces files and
	// links. Otherwise nothing may be there.
	merge bool
	// goOn copies the others after an entry could not be copied.
	goOn bool
	// removable makes it a failure if the user could not remove an entry of the
	// source.
	removable bool
	// whole makes the root appear only when it is complete, if it is a file.
	whole bool
	// namedTemp is as in FS.
	namedTemp bool
}

// copier copies a tree, holes as holes. It works on one worker thread.
type copier struct {
	ctx   context.Context
	acc   account.Account
	rules copyRules
	// source and destination are what errors call the two roots.
	source, destination string

	root  place             // the copy's root
	links map[fileID]string // where a file with several names was copied to, below root
	own   []fileID          // folders of the destination, which must not be met on the way
	above []fileID          // the folders that are being copied, outermost first

	entries, bytes uint64 // what has been copied
	first          error
	failures       int
}

type fileID struct{ dev, ino uint64 }

func (i Info) id() fileID { return fileID{dev: i.Device, ino: i.Inode} }

// place is an entry of an open folder.
type place struct {
	dir  int
	name string
}

// copyEntry is one entry to copy. below is its path from the root, "" for that
// itself, else with a slash in front.
type copyEntry struct {
	from, to place
	below    string
}

func (e copyEntry) child(in, out int, name string) copyEntry {
	return copyEntry{from: place{in, name}, to: place{out, name}, below: e.below + "/" + name}
}

// run copies from to to. Its error is the first failure; then a part may be
// there.
func (c *copier) run(from, to place) error {
	folder, err := statAt(to.dir, "")
	if err != nil {
		return c.destinationError(copyEntry{}, err)
	}
	c.root, c.links, c.own = to, map[fileID]string{}, []fileID{folder.id()}
	if err := c.copy(copyEntry{from: from, to: to}); err != nil {
		c.fail(err)
	}
	if cause := context.Cause(c.ctx); c.first != nil && cause != nil {
		return cause
	}
	return c.first
}

// fail takes note of a failure, and says whether to give up.
func (c *copier) fail(err error) (giveUp bool) {
	c.failures++
	if c.first == nil {
		c.first = err
	}
	return !c.rules.goOn || c.failures >= maxCopyFailures || c.ctx.Err() != nil || errors.Is(err, ErrNoSpace)
}

func (c *copier) sourceError(e copyEntry, err error) error {
	return pathError("copy", c.source+e.below, err)
}

func (c *copier) destinationError(e copyEntry, err error) error {
	return pathError("copy to", c.destination+e.below, err)
}

// copy copies one entry and all below it. Failures below a folder are noted, and
// come back only to give up.
func (c *copier) copy(e copyEntry) error {
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	info, err := c.look(e.from)
	if err != nil {
		return c.sourceError(e, err)
	}
	if c.rules.removable {
		if err := mayRemove(e.from, c.acc); err != nil {
			return pathError("remove", c.source+e.below, err)
		}
	}
	if done, err := c.linkAgain(e, info); done {
		return err
	}
	switch info.Type {
	case TypeDirectory:
		err = c.copyFolder(e)
	case TypeRegular:
		err = c.copyFile(e)
	case TypeSymlink:
		err = c.copyLink(e, info)
	default:
		err = c.copyNode(e, info)
	}
	if err != nil {
		return c.sourceError(e, err)
	}
	c.entries++
	if c.rules.preserve && info.Links > 1 && info.Type != TypeDirectory && len(c.links) < maxHardLinks {
		c.links[info.id()] = e.below
	}
	return nil
}

// look describes an entry of the source, or what it leads to.
func (c *copier) look(from place) (Info, error) {
	if !c.rules.followLinks {
		return statAt(from.dir, from.name)
	}
	fd, err := openAt(from.dir, from.name, unix.O_PATH, 0)
	if err != nil {
		return Info{}, err
	}
	defer unix.Close(fd)
	return statAt(fd, "")
}

// linkAgain makes an entry another name of a file that has been copied, if it is
// one; done says so.
func (c *copier) linkAgain(e copyEntry, info Info) (done bool, err error) {
	first, ok := c.links[info.id()]
	if !ok || info.Links < 2 {
		return false, nil
	}
	err = unix.Linkat(c.root.dir, c.root.name+first, e.to.dir, e.to.name, 0)
	if c.rules.merge && errors.Is(err, unix.EEXIST) {
		return false, nil // replaced by a copy of its own
	}
	if err == nil {
		c.entries++
	}
	return true, c.destinationError(e, err)
}

// openSource opens a file or folder of the source for reading.
func (c *copier) openSource(from place, flags int) (int, Info, error) {
	flags |= unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	open := openNoLinks
	if c.rules.followLinks {
		open = openAt
	} else {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := open(from.dir, from.name, flags, 0)
	if err != nil {
		return -1, Info{}, err
	}
	info, err := statAt(fd, "")
	if err == nil {
		err = refuseOwnProc(fd, c.acc)
	}
	if err != nil {
		unix.Close(fd)
		return -1, Info{}, err
	}
	return fd, info, nil
}

func (c *copier) copyFolder(e copyEntry) error {
	if len(c.above) >= maxCopyDepth {
		return ErrTooDeep
	}
	in, info, err := c.openSource(e.from, unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	reader := newDirReader(in)
	defer reader.close()
	switch {
	case slices.Contains(c.own, info.id()):
		return errCopyIntoItself
	case slices.Contains(c.above, info.id()):
		return errCircle
	}
	out, made, err := c.makeFolder(e)
	if err != nil {
		return c.destinationError(e, err)
	}
	defer unix.Close(out)
	c.above = append(c.above, info.id())
	defer func() { c.above = c.above[:len(c.above)-1] }()
	for {
		entry, more, err := reader.next()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if err := c.copy(e.child(in, out, entry.name)); err != nil && c.fail(err) {
			return err
		}
	}
	if !made && !c.rules.preserve {
		return nil
	}
	return c.destinationError(e, c.finish(in, out, info))
}

// makeFolder makes the folder that an entry is copied to, and opens it.
func (c *copier) makeFolder(e copyEntry) (fd int, made bool, err error) {
	err = unix.Mkdirat(e.to.dir, e.to.name, 0o700)
	made = err == nil
	if err != nil && (!c.rules.merge || !errors.Is(err, unix.EEXIST)) {
		return -1, false, err
	}
	fd, err = openSubfolder(e.to.dir, e.to.name)
	if err != nil || e.below != "" {
		return fd, made, err
	}
	info, err := statAt(fd, "")
	if err != nil {
		unix.Close(fd)
		return -1, made, err
	}
	c.own = append(c.own, info.id())
	return fd, made, nil
}

// finish gives a copied file or folder the attributes that it should have.
func (c *copier) finish(in, out int, info Info) error {
	if !c.rules.preserve {
		return c.finishOwn(out, info)
	}
	mode, err := setOwner(out, "", info)
	if err != nil {
		return err
	}
	if err := copyAttributes(in, out); err != nil {
		return err
	}
	if err := unix.Fchmod(out, mode); err != nil {
		return err
	}
	return setTimes(out, "", info.AccessTime, info.ModTime)
}

// finishOwn gives a copy that belongs to the user the original's mode.
// Set-user-id and set-group-id would be the user's rights and not the owner's;
// a folder's set-group-id comes from the folder that it was made in.
func (c *copier) finishOwn(out int, info Info) error {
	const special = unix.S_ISUID | unix.S_ISGID
	mode := info.Mode &^ special
	if info.Type == TypeDirectory {
		have, err := statAt(out, "")
		if err != nil {
			return err
		}
		mode |= have.Mode & unix.S_ISGID
	}
	return unix.Fchmod(out, mode)
}
