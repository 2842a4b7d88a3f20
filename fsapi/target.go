package fsapi

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// target is where a file is written: an entry of an open folder, with all links
// on the way resolved.
type target struct {
	dir    int // O_PATH, owned; -1 is none
	base   string
	exists bool
	info   Info // if it exists
}

func (t *target) close() {
	if t.dir >= 0 {
		unix.Close(t.dir)
		t.dir = -1
	}
}

// locate finds the entry that the handle's path leads to in the end, and makes
// missing folders if asked. Links at the end are followed here and not by the
// kernel, since a file is replaced by its name in its own folder.
func (h *WriteHandle) locate() error {
	folder, base, slash := split(h.full)
	t := &h.target
	dir, err := openFolder(folder)
	if errors.Is(err, unix.ENOENT) && h.opts.CreateParents {
		dir, h.made, err = makeFolders(folder)
	}
	if err != nil {
		return err
	}
	t.dir, t.base = dir, base
	for links := 0; ; links++ {
		if t.base == "" || t.base == "." || t.base == ".." {
			return unix.EISDIR
		}
		t.info, err = statAt(t.dir, t.base)
		switch {
		case errors.Is(err, unix.ENOENT) && slash:
			return unix.EISDIR
		case errors.Is(err, unix.ENOENT):
			return nil
		case err != nil:
			return err
		case t.info.Type == TypeSymlink && h.opts.Exclusive:
			return unix.EEXIST
		case t.info.Type == TypeSymlink && links >= maxLinks:
			return unix.ELOOP
		case t.info.Type == TypeSymlink:
			if slash, err = t.follow(h.acc.UID); err != nil {
				return err
			}
			continue
		case slash && t.info.Type != TypeDirectory:
			return unix.ENOTDIR
		}
		t.exists = true
		return nil
	}
}

// follow moves the target to where the link in its place leads.
func (t *target) follow(uid uint32) (slash bool, err error) {
	if err := mayFollow(t.dir, t.info, uid); err != nil {
		return false, err
	}
	// The kernel knows which links are magic.
	fd, err := openAt(t.dir, t.base, unix.O_PATH, 0)
	if err == nil {
		unix.Close(fd)
	} else if !errors.Is(err, unix.ENOENT) {
		return false, err
	}
	link, err := readLinkAt(t.dir, t.base)
	if err != nil {
		return false, err
	}
	if !strings.HasPrefix(link, "/") {
		link = "./" + link
	}
	folder, base, slash := split(link)
	dir, err := openAt(t.dir, folder, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false, err
	}
	t.close()
	t.dir, t.base = dir, base
	return slash, nil
}

// mayFollow is the rule of fs.protected_symlinks: in a folder where everybody
// may put links (world-writable, sticky), only one's own or the folder's
// owner's are followed.
func mayFollow(dir int, link Info, uid uint32) error {
	folder, err := statAt(dir, "")
	if err != nil {
		return err
	}
	const shared = unix.S_ISVTX | unix.S_IWOTH
	if folder.Mode&shared != shared || link.UID == uid || link.UID == folder.UID {
		return nil
	}
	return unix.EACCES
}

// writable asks whether the thread's user may write an existing file.
func writable(dir int, base string) error {
	err := unix.Faccessat2(dir, base, unix.W_OK, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW)
	if !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// Before Linux 5.8: opening asks the same, but refuses running programs.
	fd, err := openNoLinks(dir, base, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ETXTBSY) {
		return nil
	}
	if err == nil {
		unix.Close(fd)
	}
	return err
}
