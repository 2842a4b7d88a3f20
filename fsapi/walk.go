package fsapi

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links a path may lead through, as in the kernel.
const maxLinks = 40

// procRootInode is the inode of procfs's root folder, whose links (self,
// thread-self, mounts, net) are ordinary ones.
const procRootInode = 1

// walkOpen stands in for openat2(2) where the kernel has none. It looks one name
// up at a time, never lets the kernel follow a link, reads links itself, and
// refuses those of procfs below its root, which may be magic.
func walkOpen(dir int, path string, flags int, mode uint32, noLinks bool) (int, error) {
	w := walker{dir: -1, start: dir, rest: path}
	defer w.close()
	if err := w.rewind(); err != nil {
		return -1, err
	}
	for links := 0; ; {
		name, last := w.next()
		if last && w.wantFolder {
			flags |= unix.O_DIRECTORY
		}
		target, isLink, err := w.readLink(name)
		missing := errors.Is(err, unix.ENOENT) && last && flags&unix.O_CREAT != 0
		if err != nil && !missing {
			return -1, err
		}
		literal := last && !w.wantFolder && (flags&unix.O_NOFOLLOW != 0 || flags&(unix.O_CREAT|unix.O_EXCL) == unix.O_CREAT|unix.O_EXCL)
		if isLink && !literal {
			if links++; links > maxLinks || noLinks {
				return -1, unix.ELOOP
			}
			if err := w.splice(target, last); err != nil {
				return -1, err
			}
			continue
		}
		if last {
			return retry(func() (int, error) {
				return unix.Openat(w.dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
			})
		}
		if err := w.enter(name); err != nil {
			return -1, err
		}
	}
}

// walker is a place on the way: an open folder, and the names still to go.
type walker struct {
	start      int    // where a relative path starts
	dir        int    // the folder reached, owned
	rest       string // the names to go
	wantFolder bool   // the last name had a slash after it
}

func (w *walker) close() {
	if w.dir >= 0 {
		unix.Close(w.dir)
	}
}

// rewind goes to where rest starts: the root or the starting folder.
func (w *walker) rewind() error {
	if strings.HasPrefix(w.rest, "/") {
		return w.move(unix.AT_FDCWD, "/")
	}
	return w.move(w.start, ".")
}

func (w *walker) move(dir int, name string) error {
	fd, err := retry(func() (int, error) {
		return unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return err
	}
	w.close()
	w.dir = fd
	return nil
}

func (w *walker) enter(name string) error { return w.move(w.dir, name) }

// next cuts the first name off rest. An empty path means the folder itself.
func (w *walker) next() (name string, last bool) {
	name, rest, more := strings.Cut(strings.TrimLeft(w.rest, "/"), "/")
	rest = strings.TrimLeft(rest, "/")
	if w.rest = rest; rest == "" && more {
		w.wantFolder = true
	}
	if name == "" {
		name = "."
	}
	return name, rest == ""
}

// splice replaces a link that was just read by what it says.
func (w *walker) splice(target string, last bool) error {
	if target == "" {
		return unix.ENOENT
	}
	if w.rest = target + "/" + w.rest; last && !w.wantFolder {
		w.rest = target
	}
	w.wantFolder = false
	if target[0] == '/' {
		return w.rewind()
	}
	return nil
}

// readLink reads name if it is a link, and refuses links that may be magic.
func (w *walker) readLink(name string) (target string, isLink bool, err error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(w.dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return "", false, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", false, err
	}
	var fsInfo unix.Statfs_t
	if err := unix.Fstatfs(fd, &fsInfo); err != nil {
		return "", false, err
	}
	if fsInfo.Type == unix.PROC_SUPER_MAGIC {
		var parent unix.Stat_t
		if err := unix.Fstat(w.dir, &parent); err != nil || parent.Ino != procRootInode {
			return "", true, errors.Join(err, unix.ELOOP)
		}
	}
	target, err = readLinkAt(fd, "")
	return target, true, err
}
