package fsapi

import (
	"bufio"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"guestd.internal/fsapi/internal/inotify"
)

// What the kernel is asked to tell of the root itself, of its parent and of the
// folders above that: where the root has gone.
const (
	rootMask     = unix.IN_MOVE_SELF | unix.IN_DELETE_SELF
	fileMask     = rootMask | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB
	parentMask   = rootMask | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR
	ancestorMask = unix.IN_MOVE_SELF | unix.IN_ONLYDIR
)

// guard is a name on the way to the root, or with "" a folder on the way itself.
type guard struct {
	wd   int32
	name string
}

// openRoot makes an instance and watches the root, the way to it, and what is
// below it.
func (l *watchLoop) openRoot() error {
	if err := context.Cause(l.ctx); err != nil {
		return err
	}
	fd, err := openAt(unix.AT_FDCWD, l.full, unix.O_PATH, 0)
	if err != nil {
		if l.root.Inode != 0 {
			return &watchEnd{WatchRootRemoved}
		}
		return err
	}
	defer unix.Close(fd)
	if err := l.identify(fd); err != nil {
		return err
	}
	if l.inst, err = inotify.New(); err != nil {
		return watchLimit(err)
	}
	l.pending = inotify.NewPending(l.inst)
	l.guards, l.guarded, l.nodes = map[guard]bool{}, false, map[int32]*watchNode{}
	l.met = map[guard]bool{}
	l.mounts, err = retry(func() (int, error) {
		return unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		l.mounts = -1
	}
	if err := l.guardWay(fd); err != nil {
		return err
	}
	l.top = &watchNode{wd: unwatched, told: true, dev: l.root.Device, ino: l.root.Inode}
	if l.root.Type == TypeDirectory {
		return l.enter(l.top)
	}
	if l.top.wd, err = l.inst.Add(fd, fileMask); err != nil {
		return watchLimit(err)
	}
	l.nodes[l.top.wd] = l.top
	return nil
}

// identify describes the root at the first time; later it ends the watch unless it
// is still the same.
func (l *watchLoop) identify(fd int) error {
	info, err := statAt(fd, "")
	if err != nil {
		return err
	}
	if l.root.Inode != 0 {
		if !l.isRoot(info) {
			return &watchEnd{l.successor()}
		}
		return nil
	}
	if err := refuseOwnProc(fd, l.acc); err != nil {
		return err
	}
	described, err := stat(l.full, true, l.acc)
	if err != nil {
		return err
	}
	if described.Inode != info.Inode || described.Device != info.Device {
		return unix.ESTALE // replaced between the two looks
	}
	l.root, l.mount = described, mountOf(fd)
	return nil
}

func (l *watchLoop) isRoot(info Info) bool {
	return info.Inode == l.root.Inode && info.Device == l.root.Device && info.BirthTime.Equal(l.root.BirthTime)
}

// guardWay watches the folders on the way to the root, as it is written and as it
// is without links. Those that the user may not read are left out.
func (l *watchLoop) guardWay(root int) error {
	ways := []string{l.shown}
	if resolved, err := descriptorPath(root); err == nil && resolved != l.shown && strings.HasPrefix(resolved, "/") {
		ways = append(ways, resolved)
	}
	for _, way := range ways {
		mask := uint32(parentMask)
		for path := way; path != "/"; mask = ancestorMask {
			folder, base, _ := split(path)
			if err := l.guardFolder(folder, base, mask); err != nil {
				return err
			}
			path = tidy(folder)
		}
	}
	return nil
}

func (l *watchLoop) guardFolder(folder, base string, mask uint32) error {
	fd, err := openFolder(folder)
	if err != nil {
		return nil //nolint:nilerr // it is gone, or closed to the user: then it cannot be watched
	}
	defer unix.Close(fd)
	wd, err := l.inst.Add(fd, mask)
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return watchLimit(err)
	}
	l.guards[guard{wd, ""}] = true
	if mask == parentMask {
		l.guards[guard{wd, base}] = true
		l.guarded = true
	}
	return nil
}

// guardEvent looks whether an event is about the root or the way to it.
func (l *watchLoop) guardEvent(event inotify.Event) error {
	isTop := l.top != nil && event.Watch == l.top.wd && event.Name == ""
	if !isTop && !l.guards[guard{event.Watch, event.Name}] {
		return nil
	}
	switch {
	case isTop && event.Mask&unix.IN_UNMOUNT != 0:
		return &watchEnd{WatchRootUnmounted}
	case isTop && event.Mask&unix.IN_DELETE_SELF != 0, event.Name != "" && event.Mask&unix.IN_DELETE != 0:
		return l.check(WatchRootRemoved)
	case event.Mask&(unix.IN_MOVE_SELF|unix.IN_MOVED_FROM|unix.IN_MOVED_TO) != 0:
		return l.check(WatchRootReplaced)
	case isTop && !l.guarded && l.root.Type != TypeDirectory && event.Mask&unix.IN_ATTRIB != 0:
		return l.check(0) // its links are fewer when a name of it is removed
	case event.Mask&unix.IN_DELETE_SELF != 0:
		return l.check(0)
	}
	return nil
}

// check looks whether the path still leads to the root, and ends the watch if it
// does not. happened is what an event says: with WatchRootRemoved what had the
// root's name is gone in any case.
func (l *watchLoop) check(happened WatchEnd) error {
	fd, err := openAt(unix.AT_FDCWD, l.full, unix.O_PATH, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		if !l.mounted() {
			return &watchEnd{WatchRootUnmounted}
		}
		if happened == 0 {
			happened = WatchRootRemoved
		}
		return &watchEnd{happened}
	case err != nil:
		return nil //nolint:nilerr // the way is closed to the user now, which says nothing of the root
	}
	defer unix.Close(fd)
	info, err := statAt(fd, "")
	if err != nil {
		return err
	}
	if happened != WatchRootRemoved && l.isRoot(info) {
		return nil
	}
	return &watchEnd{l.successor()}
}

// successor is why something else than the root is at its path.
func (l *watchLoop) successor() WatchEnd {
	if !l.mounted() {
		return WatchRootUnmounted
	}
	return WatchRootReplaced
}

// mounted says whether the mount that the root was on is still there.
func (l *watchLoop) mounted() bool {
	if l.mount == 0 {
		return true
	}
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return true
	}
	defer file.Close()
	id := strconv.FormatUint(l.mount, 10)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if first, _, _ := strings.Cut(lines.Text(), " "); first == id {
			return true
		}
	}
	return lines.Err() != nil
}

// mountOf is the number of the mount that a descriptor's file is on, as in
// proc_pid_mountinfo(5); 0 before Linux 5.8.
func mountOf(fd int) uint64 {
	var st unix.Statx_t
	_, err := retry(func() (struct{}, error) {
		return struct{}{}, unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st)
	})
	if err != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return 0
	}
	return st.Mnt_id
}

// watchLimit says which limit a failed system call of inotify has reached, if it
// has.
func watchLimit(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC):
		return &WatchLimitError{Limit: "fs.inotify.max_user_watches", Err: err}
	case errors.Is(err, unix.EMFILE):
		return &WatchLimitError{Limit: "fs.inotify.max_user_instances", Err: err}
	}
	return err
}
