package fsapi

import (
	"context"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"guestd.internal/fsapi/internal/inotify"
)

// folderMask is what the kernel is asked to tell of a watched folder's entries.
const folderMask = inotify.Structural | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

// maxScan bounds the entries of a folder that was made or moved in and is
// reported at once: they are all in memory. With more of them the client is told
// to look itself.
const maxScan = 256 << 10

// enter watches a folder and all that is below it, and tells of what is there.
func (l *watchLoop) enter(n *watchNode) error {
	stack := []*watchNode{n}
	for len(stack) > 0 {
		if err := context.Cause(l.ctx); err != nil {
			return err
		}
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		entries, err := l.begin(n)
		if err != nil {
			return err
		}
		if n.wd == unwatched {
			continue
		}
		subs, err := l.reconstruct(n, entries)
		if err != nil {
			return err
		}
		stack = append(stack, subs...)
	}
	return nil
}

// begin watches a folder, tells of it, and reads its entries. If it cannot be
// watched, or is known to be another one now, it stays unwatched.
func (l *watchLoop) begin(n *watchNode) ([]dirEntry, error) {
	n.deferred = false
	fd, err := l.openToRead(n)
	if err != nil {
		return nil, l.unentered(n, err)
	}
	defer unix.Close(fd)
	info, err := statAt(fd, "")
	if err != nil {
		return nil, l.unentered(n, err)
	}
	mask := uint32(folderMask)
	if n == l.top {
		mask |= rootMask
	}
	wd, err := l.inst.Add(fd, mask)
	if err != nil {
		return nil, l.unentered(n, watchLimit(err))
	}
	if err := l.catchUp(); err != nil {
		return nil, err
	}
	if n.parent != nil && l.pending.First(n.parent.wd, n.name) != 0 {
		// The folder that was opened need not be the one of the event.
		if l.nodes[wd] == nil {
			l.inst.Remove(wd)
		}
		return nil, l.unentered(n, errElsewhere)
	}
	if other := l.nodes[wd]; other != nil && other != n {
		return nil, l.meet(other, n)
	}
	if err := l.announce(n); err != nil {
		return nil, err
	}
	n.wd, n.dev, n.ino = wd, info.Device, info.Inode
	l.nodes[wd] = n
	if n == l.top && (info.Inode != l.root.Inode || info.Device != l.root.Device) {
		return nil, &watchEnd{l.successor()}
	}
	entries, err := l.read(fd)
	if errors.Is(err, inotify.ErrOverflow) {
		return nil, err
	}
	if err != nil {
		l.fsys.logger.Warn("reading a watched folder failed", "path", strconv.QuoteToASCII(l.path(n.rel())), "error", err)
	}
	return entries, l.pending.Fill()
}

// openToRead opens a folder where it should be.
func (l *watchLoop) openToRead(n *watchNode) (fd int, err error) {
	if n.parent == nil {
		fd, err = openAt(unix.AT_FDCWD, l.full, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	} else {
		var dir int
		if dir, err = l.folder(n.parent); err == nil {
			fd, err = openSubfolder(dir, n.name)
		}
	}
	if err != nil {
		return -1, err
	}
	if err := refuseOwnProc(fd, l.acc); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// announce tells of a folder's appearance, once.
func (l *watchLoop) announce(n *watchNode) error {
	if n.told {
		return nil
	}
	n.told = true
	return l.created(n.parent, n.name, TypeDirectory)
}

// unentered decides what it means that a folder could not be watched.
func (l *watchLoop) unentered(n *watchNode, err error) error {
	var limit *WatchLimitError
	if errors.As(err, &limit) || n.parent == nil {
		return err
	}
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return err
	case errors.Is(err, errElsewhere), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		n.deferred = true
	default:
		l.fsys.logger.Info("a folder is not watched", "path", strconv.QuoteToASCII(l.path(n.rel())), "uid", l.acc.UID, "error", err)
	}
	return l.announce(n)
}

// meet decides what it means that the folder found at n's place is watched at
// another: it was moved here before this place was watched. If it can be found at
// the other place all the same it is mounted at both, and stays where it is.
func (l *watchLoop) meet(other, n *watchNode) error {
	if other.parent == nil {
		return l.announce(n)
	}
	before := guard{other.parent.wd, other.name}
	if l.pending.First(before.wd, before.name)&unix.IN_MOVED_FROM != 0 {
		l.met[before] = true
		return l.renameFolder(other, n.parent, n.name)
	}
	l.release()
	if _, err := l.folder(other); err == nil {
		return l.announce(n)
	}
	return l.renameFolder(other, n.parent, n.name)
}

// read reads a folder. Of one whose files will not be told it keeps the
// sub-folders alone.
func (l *watchLoop) read(fd int) ([]dirEntry, error) {
	if l.silent && !l.recursive {
		return nil, nil
	}
	dir := newDirReader(fd)
	var entries []dirEntry
	for {
		entry, more, err := dir.next()
		if err != nil || !more {
			return entries, err
		}
		if entry.kind == TypeUnknown {
			if info, err := statAt(fd, entry.name); err == nil {
				entry.kind = info.Type
			}
		}
		if l.silent && entry.kind != TypeDirectory {
			continue
		}
		if len(entries) >= maxScan && !l.silent {
			return nil, inotify.ErrOverflow
		}
		entries = append(entries, entry)
	}
}

// reconstruct tells of a folder's contents as they were when its watch began, so
// that each later event is a change of that: what was read, without what has
// appeared since, and with what has gone. It returns the sub-folders to be
// entered.
func (l *watchLoop) reconstruct(n *watchNode, entries []dirEntry) (subs []*watchNode, err error) {
	seen := map[string]bool{}
	for _, entry := range entries {
		first := l.pending.First(n.wd, entry.name)
		if first&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 {
			continue // its own event tells of it
		}
		if first != 0 {
			seen[entry.name] = true
			if entry.kind != TypeDirectory || first&unix.IN_ISDIR == 0 {
				entry.kind = typeOfEvent(first) // another of that name
			}
		}
		sub, err := l.found(n, entry.name, entry.kind, first != 0)
		if err != nil {
			return nil, err
		}
		if sub != nil && first == 0 {
			subs = append(subs, sub)
		}
	}
	gone := map[string]uint32{}
	for name, first := range l.pending.Firsts(n.wd) {
		if first&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0 && !seen[name] {
			gone[name] = first
		}
	}
	for name, first := range gone {
		if _, err := l.found(n, name, typeOfEvent(first), true); err != nil {
			return nil, err
		}
	}
	return subs, nil
}

// typeOfEvent is what an event says of its entry's type.
func typeOfEvent(mask uint32) Type {
	if mask&unix.IN_ISDIR != 0 {
		return TypeDirectory
	}
	return TypeUnknown
}

// found tells of an entry that was there when its folder's watch began. For a
// sub-folder that belongs to the tree it returns it: with later, events are still
// to come for its name; else it is not told of yet.
func (l *watchLoop) found(n *watchNode, name string, kind Type, later bool) (*watchNode, error) {
	if kind != TypeDirectory || !l.enters(below(n, name)) {
		return nil, l.created(n, name, kind)
	}
	if n.children[name] != nil {
		return nil, nil // it met its watch meanwhile
	}
	sub := n.child(name)
	sub.deferred = later
	if later {
		return sub, l.announce(sub)
	}
	return sub, nil
}

// enters says whether a folder is watched for what is in it.
func (l *watchLoop) enters(rel string) bool {
	if !l.recursive {
		return false
	}
	_, enter := l.filter.Match(rel, true)
	return enter
}
