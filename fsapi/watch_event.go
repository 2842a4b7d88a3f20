package fsapi

import (
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/fsapi/internal/inotify"
)

// arrival is a rename to a name of a folder, from a name of the same or another; of
// one from outside the tree from is empty. The zero arrival is none.
type arrival struct {
	name string
	from guard
}

// handle brings the state up to an event and tells of the change.
func (l *watchLoop) handle(event inotify.Event) error {
	l.now = event.Read
	if err := l.guardEvent(event); err != nil {
		return err
	}
	n := l.nodes[event.Watch]
	if n == nil {
		return nil // of the way to the root, or a watch that was ended
	}
	switch {
	case event.Mask&unix.IN_UNMOUNT != 0:
		return l.unmounted(n)
	case event.Mask&unix.IN_IGNORED != 0:
		delete(l.nodes, n.wd)
		n.wd = unwatched
		return nil
	case event.Name == "" && n != l.top:
		return nil // its parent tells it too
	}
	dir := event.Mask&unix.IN_ISDIR != 0
	came := n.arrival
	if event.Mask&inotify.Structural != 0 {
		n.arrival = arrival{}
		if err := l.confirm(n, event.Name, event.Mask); err != nil {
			return err
		}
	}
	switch {
	case event.Mask&unix.IN_MOVED_TO != 0:
		n.arrival = arrival{name: event.Name}
		return l.appeared(n, event.Name, dir)
	case event.Mask&unix.IN_CREATE != 0:
		return l.appeared(n, event.Name, dir)
	case event.Mask&unix.IN_DELETE != 0:
		return l.disappeared(n, event.Name, dir, false)
	case event.Mask&unix.IN_MOVED_FROM != 0:
		return l.moved(n, event, came)
	case event.Mask&unix.IN_ATTRIB != 0:
		return l.changed(n, event.Name, dir, WatchAttributes)
	case event.Mask&unix.IN_MODIFY != 0:
		return l.changed(n, event.Name, dir, WatchWritten)
	case event.Mask&unix.IN_CLOSE_WRITE != 0:
		return l.changed(n, event.Name, dir, WatchWriteClosed)
	}
	return nil
}

// changed handles what happened to an entry that stays what it is.
func (l *watchLoop) changed(n *watchNode, name string, dir bool, kind WatchKind) error {
	if name == "" {
		return l.tell(kind, "", "", l.root.Type)
	}
	rel := below(n, name)
	if take, _ := l.filter.Match(rel, dir); take {
		typ := TypeDirectory
		if !dir {
			typ = l.typeOf(n, name)
		}
		if err := l.tell(kind, rel, "", typ); err != nil {
			return err
		}
	}
	if sub := n.children[name]; sub != nil && sub.wd == unwatched && kind == WatchAttributes {
		return l.enter(sub) // the user may be allowed to read it now
	}
	return nil
}

// created tells of an entry that is there now.
func (l *watchLoop) created(n *watchNode, name string, typ Type) error {
	rel := below(n, name)
	if take, _ := l.filter.Match(rel, typ == TypeDirectory); take {
		return l.tell(WatchCreated, rel, "", typ)
	}
	return nil
}

// appeared handles an entry that is new in a folder.
func (l *watchLoop) appeared(n *watchNode, name string, dir bool) error {
	if there := n.children[name]; there != nil { // a file takes a folder's name when the two are exchanged
		if err := l.drop(there); err != nil {
			return err
		}
	}
	switch {
	case !dir:
		return l.created(n, name, l.typeOf(n, name))
	case !l.enters(below(n, name)):
		return l.created(n, name, TypeDirectory)
	}
	return l.enter(n.child(name))
}

// disappeared handles an entry that a folder has no more: away says that it was
// not removed but moved out of what is watched, with all below it.
func (l *watchLoop) disappeared(n *watchNode, name string, dir, away bool) error {
	rel := below(n, name)
	take, enter := l.filter.Match(rel, dir)
	if sub := n.children[name]; sub != nil {
		if err := l.drop(sub); err != nil {
			return err
		}
	}
	typ := TypeUnknown
	if dir {
		typ = TypeDirectory
	}
	if take || away && enter && l.recursive {
		return l.tell(WatchRemoved, rel, "", typ)
	}
	return nil
}

// moved handles the first half of a rename, and the second with it. came is the
// folder's last change before, if it was an arrival.
func (l *watchLoop) moved(n *watchNode, event inotify.Event, came arrival) error {
	dir := event.Mask&unix.IN_ISDIR != 0
	second, ok, err := l.secondHalf(event)
	if err != nil {
		return err
	}
	if ok {
		if err := l.guardEvent(second); err != nil {
			return err
		}
	}
	target := l.nodes[second.Watch]
	var to guard
	if ok && target != nil {
		to = guard{target.wd, second.Name}
		target.arrival = arrival{second.Name, guard{n.wd, event.Name}}
		delete(target.doubts, second.Name)
	} else {
		target = nil
	}
	if from := (guard{n.wd, event.Name}); l.met[from] {
		delete(l.met, from) // it was told to be at another place
		if target == nil {
			return nil
		}
		return l.appeared(target, second.Name, dir)
	}
	if came.name == event.Name && (came.from == to || came.from == guard{} || l.recursive && dir != (n.children[event.Name] != nil)) {
		if done, err := l.exchanged(n, event.Name, target, second.Name, dir); done || err != nil {
			return err
		}
	}
	if target == nil {
		return l.disappeared(n, event.Name, dir, true)
	}
	if dir && l.recursive {
		sub := n.children[event.Name]
		if sub == nil { // left out
			if err := l.disappeared(n, event.Name, true, true); err != nil {
				return err
			}
			return l.appeared(target, second.Name, true)
		}
		return l.renameFolder(sub, target, second.Name)
	}
	return l.renameEntry(n, event.Name, target, second.Name, dir)
}

// exchanged handles the rename from a name to which something came just before:
// from where this goes to, from outside, or of another kind. target is nil if it
// leaves the tree. Either what came moves on; or it is the other half of an
// exchange, told alike: then the name stands for what came. done is false if it
// moves on.
func (l *watchLoop) exchanged(n *watchNode, from string, target *watchNode, to string, dir bool) (done bool, err error) {
	came := n.children[from]
	p := presence{known: true, there: l.recursive && (came != nil) != dir} // what leaves is not what came
	if !p.there {
		if p, err = l.presence(n, from); err != nil || p.known && !p.there {
			return false, err
		}
	}
	if !p.known {
		err = l.doubt(n, from)
	} else if came != nil {
		err = l.enterDeferred(came) // its name had events to come until now
	}
	if err != nil || target == nil {
		return true, err
	}
	return true, l.appeared(target, to, dir)
}

// doubt handles a name of which it cannot be known yet whether it stands for
// anything: it is told to be gone until it can.
func (l *watchLoop) doubt(n *watchNode, name string) error {
	if n.doubts == nil {
		n.doubts = map[string]bool{}
	}
	n.doubts[name] = true
	return l.disappeared(n, name, n.children[name] != nil, true)
}

// settle looks again at the doubtful names of a folder.
func (l *watchLoop) settle(n *watchNode) error {
	for name := range n.doubts {
		p, err := l.presence(n, name)
		if err != nil {
			return err
		}
		if !p.known {
			continue
		}
		delete(n.doubts, name)
		if !p.there {
			continue
		}
		if l.pending.First(n.wd, name) != 0 {
			_, err = l.found(n, name, p.typ, true)
		} else {
			err = l.appeared(n, name, p.typ == TypeDirectory)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// confirm ends the doubts about a name with its next event.
func (l *watchLoop) confirm(n *watchNode, name string, mask uint32) error {
	if !n.doubts[name] {
		return nil
	}
	delete(n.doubts, name)
	if mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) == 0 {
		return nil
	}
	_, err := l.found(n, name, typeOfEvent(mask), true)
	return err
}

// secondHalf takes the other half of a rename out of the events to come. It waits
// until there cannot be one: when its folder tells something later, or after
// renameGrace.
func (l *watchLoop) secondHalf(first inotify.Event) (inotify.Event, bool, error) {
	if err := l.pending.Fill(); err != nil {
		return inotify.Event{}, false, err
	}
	for {
		if second, ok := l.pending.TakeMovedTo(first.Cookie); ok {
			return second, true, nil
		}
		left := time.Until(first.Read.Add(renameGrace))
		if left <= 0 || l.pending.Busy(first.Watch) {
			return inotify.Event{}, false, nil
		}
		if err := l.wait(left); err != nil {
			return inotify.Event{}, false, err
		}
	}
}

// renameEntry handles the rename of what has nothing below it that is watched.
func (l *watchLoop) renameEntry(n *watchNode, from string, target *watchNode, to string, dir bool) error {
	if there := target.children[to]; there != nil {
		if err := l.drop(there); err != nil {
			return err
		}
	}
	typ := TypeDirectory
	if !dir {
		typ = l.typeOf(target, to)
	}
	before, after := below(n, from), below(target, to)
	had, _ := l.filter.Match(before, dir)
	has, _ := l.filter.Match(after, dir)
	switch {
	case had && has:
		return l.tell(WatchRenamed, after, before, typ)
	case had:
		return l.tell(WatchRemoved, before, "", typ)
	case has:
		return l.tell(WatchCreated, after, "", typ)
	}
	return nil
}

// renameFolder handles the rename of a folder of the tree. Where another place
// means that other entries match, the folder goes, and comes anew.
func (l *watchLoop) renameFolder(sub, target *watchNode, to string) error {
	before, after := sub.rel(), below(target, to)
	if l.anchored || !l.enters(after) {
		if err := l.disappeared(sub.parent, sub.name, true, true); err != nil {
			return err
		}
		return l.appeared(target, to, true)
	}
	if err := l.relocate(sub, target, to); err != nil {
		return err
	}
	had, _ := l.filter.Match(before, true)
	has, _ := l.filter.Match(after, true)
	if had || has || l.included {
		if err := l.tell(WatchRenamed, after, before, TypeDirectory); err != nil {
			return err
		}
	}
	return l.enterDeferred(sub)
}

// enterDeferred enters what could not be found before, at or below a folder whose
// place is known again, and settles what was doubtful there.
func (l *watchLoop) enterDeferred(n *watchNode) error {
	var found []*watchNode
	stack := []*watchNode{n}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if n.wd == unwatched || len(n.doubts) > 0 {
			found = append(found, n)
		}
		for _, sub := range n.children {
			stack = append(stack, sub)
		}
	}
	for _, n := range found {
		if n.parent.children[n.name] != n {
			continue
		}
		err := l.settle(n)
		if err == nil && n.wd == unwatched {
			err = l.enter(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unmounted handles the end of the file system that a folder below the root was
// on: what it was mounted over is there again.
func (l *watchLoop) unmounted(n *watchNode) error {
	parent, name := n.parent, n.name
	if err := l.disappeared(parent, name, true, true); err != nil {
		return err
	}
	p, err := l.presence(parent, name)
	if err != nil || !p.there || l.pending.First(parent.wd, name) != 0 {
		return err
	}
	return l.appeared(parent, name, p.typ == TypeDirectory)
}
