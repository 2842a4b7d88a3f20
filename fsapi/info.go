package fsapi

import (
	"errors"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// Type is the kind of a file.
type Type int

// The kinds of files. TypeUnknown is what could not be found out.
const (
	TypeUnknown Type = iota
	TypeRegular
	TypeDirectory
	TypeSymlink
	TypeFIFO
	TypeSocket
	TypeCharDevice
	TypeBlockDevice
)

var typeNames = [...]string{"unknown", "regular", "directory", "symlink", "fifo", "socket", "char device", "block device"}

// String is a short English name.
func (t Type) String() string {
	if t < 0 || int(t) >= len(typeNames) {
		return "Type(" + strconv.Itoa(int(t)) + ")"
	}
	return typeNames[t]
}

// Info describes one file.
type Info struct {
	// Path is absolute, with the caller's own spelling; Name is its last name,
	// "/" for the root.
	Path, Name string
	Type       Type
	Size       int64  // bytes; 0 for most files under /proc whatever they contain
	Mode       uint32 // permissions with set-user-id, set-group-id and sticky: 07777
	UID, GID   uint32
	// Owner and Group are names from /etc/passwd and /etc/group, "" if none.
	Owner, Group string
	ModTime      time.Time
	AccessTime   time.Time
	ChangeTime   time.Time
	BirthTime    time.Time // zero where the file system does not tell
	Inode        uint64
	Device       uint64 // of the file system, as makedev(3)
	RDevice      uint64 // which device a device file stands for
	Links        uint64 // hard links
	// LinkTarget is what the link says, if Path names a symbolic link, also when
	// it was followed and the other fields describe what it leads to.
	LinkTarget string
	// TargetType is, for a link, the type of what it leads to; TypeUnknown if
	// that is missing, a magic link under /proc, or out of the user's reach.
	TargetType Type
	// Broken says that a link leads to nothing, or in circles.
	Broken bool
	// ResolvedPath is, for a link that was followed, where it led to in the end,
	// without links. It is "" where /proc is not mounted.
	ResolvedPath string
}

const statxMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME

// statAt describes the entry name of the folder dir, or with "" the descriptor
// dir itself. Links are not followed.
func statAt(dir int, name string) (Info, error) {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	_, err := retry(func() (struct{}, error) {
		return struct{}{}, unix.Statx(dir, name, flags, statxMask, &st)
	})
	if err != nil {
		return Info{}, err
	}
	info := Info{
		Type: typeOf(uint32(st.Mode)), Mode: uint32(st.Mode) & 0o7777, Size: int64(st.Size),
		UID: st.Uid, GID: st.Gid, Inode: st.Ino, Links: uint64(st.Nlink),
		Device:  unix.Mkdev(st.Dev_major, st.Dev_minor),
		RDevice: unix.Mkdev(st.Rdev_major, st.Rdev_minor),
		ModTime: timeOf(st.Mtime), AccessTime: timeOf(st.Atime), ChangeTime: timeOf(st.Ctime),
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		info.BirthTime = timeOf(st.Btime)
	}
	return info, nil
}

func timeOf(ts unix.StatxTimestamp) time.Time { return time.Unix(ts.Sec, int64(ts.Nsec)) }

func typeOf(mode uint32) Type {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return TypeRegular
	case unix.S_IFDIR:
		return TypeDirectory
	case unix.S_IFLNK:
		return TypeSymlink
	case unix.S_IFIFO:
		return TypeFIFO
	case unix.S_IFSOCK:
		return TypeSocket
	case unix.S_IFCHR:
		return TypeCharDevice
	case unix.S_IFBLK:
		return TypeBlockDevice
	}
	return TypeUnknown
}

// readLinkAt reads a link's text; name "" means the descriptor dir itself.
func readLinkAt(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := retry(func() (int, error) { return unix.Readlinkat(dir, name, buf) })
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// describeLink completes the Info of a symbolic link, the entry name of dir,
// with what it says and leads to.
func describeLink(info *Info, dir int, name string) {
	target, err := readLinkAt(dir, name)
	if err != nil {
		return // it was replaced meanwhile, or may not be read
	}
	info.LinkTarget = target
	fd, err := openAt(dir, name, unix.O_PATH, 0)
	if err != nil {
		info.Broken = brokenLink(err, dir, name)
		return
	}
	defer unix.Close(fd)
	if end, err := statAt(fd, ""); err == nil {
		info.TargetType = end.Type
	}
}

// brokenLink says whether opening a link failed with err because it leads
// nowhere. A magic link fails like a circle does, but is none: the kernel can
// look at what it leads to.
func brokenLink(err error, dir int, name string) bool {
	if errors.Is(err, unix.ELOOP) {
		var st unix.Stat_t
		return errors.Is(unix.Fstatat(dir, name, &st, unix.AT_NO_AUTOMOUNT), unix.ELOOP)
	}
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

// names looks ids' names up, each once. It is for one call and one goroutine at
// a time, and forgets everything once it has grown.
type names struct {
	accounts      *account.DB
	users, groups map[uint32]string
}

// maxNames bounds each of the two caches; a hostile tree can own any uid.
const maxNames = 4096

func newNames(accounts *account.DB) *names {
	return &names{accounts: accounts, users: map[uint32]string{}, groups: map[uint32]string{}}
}

func (n *names) fill(info *Info) {
	info.Owner = cached(n.users, info.UID, n.accounts.UserName)
	info.Group = cached(n.groups, info.GID, n.accounts.GroupName)
}

func cached(cache map[uint32]string, id uint32, lookup func(uint32) (string, bool)) string {
	name, ok := cache[id]
	if !ok {
		if len(cache) >= maxNames {
			clear(cache)
		}
		name, _ = lookup(id)
		cache[id] = name
	}
	return name
}
