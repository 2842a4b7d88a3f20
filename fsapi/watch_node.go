package fsapi

import (
	"errors"

	"golang.org/x/sys/unix"

	"guestd.internal/fsapi/internal/inotify"
)

// unwatched is the number of a folder without a watch; the kernel's begin at 1.
const unwatched int32 = -1

// watchNode is a folder that is known to be in the tree: the root, or with a
// recursive watch any below it that is not left out.
type watchNode struct {
	parent   *watchNode // nil for the root
	name     string
	wd       int32
	dev, ino uint64 // which folder is watched
	children map[string]*watchNode
	arrival  arrival // the last change of its entries, if it was one
	told     bool    // the client knows of it, or of none like it
	// doubts are names of which it is not known whether they stand for anything;
	// the client was told that they do not.
	doubts map[string]bool
	// deferred says that it could not be looked at where it should be, and that
	// events which explain that are still to come.
	deferred bool
}

// rel is the folder's path below the root.
func (n *watchNode) rel() string {
	if n.parent == nil {
		return ""
	}
	return below(n.parent, n.name)
}

// below is the path below the root of an entry of a folder.
func below(n *watchNode, name string) string {
	if rel := n.rel(); rel != "" {
		return rel + "/" + name
	}
	return name
}

// child returns the folder's new sub-folder of that name.
func (n *watchNode) child(name string) *watchNode {
	sub := &watchNode{parent: n, name: name, wd: unwatched}
	n.attach(sub)
	return sub
}

func (n *watchNode) attach(sub *watchNode) {
	if n.children == nil {
		n.children = map[string]*watchNode{}
	}
	n.children[sub.name] = sub
}

// drop forgets a folder and all below it, and ends their watches.
func (l *watchLoop) drop(n *watchNode) error {
	if n.parent != nil && n.parent.children[n.name] == n {
		delete(n.parent.children, n.name)
	}
	stack := []*watchNode{n}
	for count := 1; len(stack) > 0; count++ {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, sub := range n.children {
			stack = append(stack, sub)
		}
		if l.held.node == n {
			l.release()
		}
		if n.wd == unwatched {
			continue
		}
		delete(l.nodes, n.wd)
		l.inst.Remove(n.wd)
		n.wd = unwatched
		if count%1024 == 0 { // each leaves an event in the kernel's queue
			if err := l.pending.Fill(); err != nil {
				return err
			}
		}
	}
	return nil
}

// relocate gives a folder another place, instead of what was known there.
func (l *watchLoop) relocate(n, parent *watchNode, name string) error {
	for above := parent; above != nil; above = above.parent {
		if above == n {
			return inotify.ErrOverflow // no folder is below itself: begin anew
		}
	}
	if n.parent.children[n.name] == n {
		delete(n.parent.children, n.name)
	}
	if there := parent.children[name]; there != nil && there != n {
		if err := l.drop(there); err != nil {
			return err
		}
	}
	n.parent, n.name = parent, name
	parent.attach(n)
	return nil
}

// errElsewhere says that a folder is not where the events so far have put it.
var errElsewhere = errors.New("the folder has moved on")

// folder opens a watched folder as a place to look names up from, and makes sure
// that it is that folder. It stays open until the next one is, or release.
func (l *watchLoop) folder(n *watchNode) (int, error) {
	if l.held.node == n {
		return l.held.fd, nil
	}
	l.release()
	fd, err := l.openBelow(n.rel(), unix.O_RDONLY|unix.O_NONBLOCK)
	if errors.Is(err, unix.EACCES) { // it can be read no more
		fd, err = l.openBelow(n.rel(), unix.O_PATH)
	}
	if err != nil {
		return -1, err
	}
	info, err := statAt(fd, "")
	if err == nil && (info.Inode != n.ino || info.Device != n.dev) {
		err = errElsewhere
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	l.held = heldFolder{n, fd}
	return fd, nil
}

// openBelow opens a folder below the root, or with "" the root itself.
func (l *watchLoop) openBelow(rel string, flags int) (int, error) {
	flags |= unix.O_DIRECTORY
	if rel == "" {
		return openAt(unix.AT_FDCWD, l.full, flags, 0)
	}
	top, err := openAt(unix.AT_FDCWD, l.full, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(top)
	return openNoLinks(top, rel, flags|unix.O_NOFOLLOW, 0)
}

// catchUp reads all events of changes that a look into the folder held open has
// seen. A change can be seen before its event can be read, but reading a folder
// waits for its lock, which whoever changes it holds until the event is there.
func (l *watchLoop) catchUp() error {
	if l.held.node != nil {
		var entry [512]byte // has room for any one
		_, _ = unix.Seek(l.held.fd, 0, unix.SEEK_SET)
		_, _ = unix.Getdents(l.held.fd, entry[:])
	}
	return l.pending.Fill()
}

// release closes the folder that is held open.
func (l *watchLoop) release() {
	if l.held.node != nil {
		unix.Close(l.held.fd)
		l.held.node = nil
	}
}

// typeOf is the type of an entry at the time of the last event, as far as that can
// be known now.
func (l *watchLoop) typeOf(n *watchNode, name string) Type {
	if l.silent || l.pending.First(n.wd, name) != 0 {
		return TypeUnknown
	}
	fd, err := l.folder(n)
	if err != nil {
		return TypeUnknown
	}
	info, err := statAt(fd, name)
	if err != nil {
		return TypeUnknown
	}
	return info.Type
}

// presence is what is known of a name of a folder right after the last event.
type presence struct {
	known bool
	there bool
	typ   Type // if it is there
}

// presence looks whether a name stands for anything.
func (l *watchLoop) presence(n *watchNode, name string) (presence, error) {
	var p presence
	fd, err := l.folder(n)
	if err == nil {
		var info Info
		info, err = statAt(fd, name)
		p = presence{known: err == nil || errors.Is(err, unix.ENOENT), there: err == nil, typ: info.Type}
	}
	if err := l.catchUp(); err != nil {
		return presence{}, err
	}
	switch first := l.pending.First(n.wd, name); {
	case first == 0:
		return p, nil
	case first&unix.IN_MOVED_TO != 0:
		return presence{}, nil // over what was there, or not
	default:
		return presence{known: true, there: first&unix.IN_CREATE == 0, typ: typeOfEvent(first)}, nil
	}
}
