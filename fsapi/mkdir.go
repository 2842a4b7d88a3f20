package fsapi

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// newFolderMode is the mode of folders that are made without a mode of their
// own.
const newFolderMode = 0o755

// MakeDir makes a folder that belongs to the user, with the given mode (at most
// 07777; nil is 0755), and describes it. With parents missing folders above it
// are made too, with mode 0755, and a folder that exists already is no error and
// left as it is (created is false); without, it is fs.ErrExist.
func (fsys *FS) MakeDir(ctx context.Context, user, path string, mode *uint32, parents bool) (info Info, created bool, err error) {
	acc, err := fsys.account(user)
	if err != nil {
		return Info{}, false, err
	}
	full, err := absolute("path", path, acc.Home)
	if err != nil {
		return Info{}, false, err
	}
	if mode != nil && *mode > 0o7777 {
		return Info{}, false, &InvalidError{Field: "mode", Problem: "has bits beyond 07777"}
	}
	err = fsys.as(ctx, acc, func() (err error) {
		info, created, err = makeDir(full, mode, parents)
		return err
	})
	if err != nil {
		return Info{}, false, pathError("mkdir", path, err)
	}
	newNames(fsys.accounts).fill(&info)
	return info, created, nil
}

func makeDir(full string, mode *uint32, parents bool) (info Info, created bool, err error) {
	folder, base, _ := split(full)
	if base == "" || base == "." || base == ".." {
		if !parents {
			return Info{}, false, unix.EEXIST
		}
		folder, base = full, "."
	}
	dir, err := openFolder(folder)
	if parents && errors.Is(err, unix.ENOENT) {
		var made madeFolders
		dir, made, err = makeFolders(folder)
		made.close()
	}
	if err != nil {
		return Info{}, false, err
	}
	defer unix.Close(dir)
	wanted := uint32(newFolderMode)
	if mode != nil {
		wanted = *mode
	}
	err = unix.Mkdirat(dir, base, wanted&0o777)
	created = err == nil
	if err != nil && (!parents || !errors.Is(err, unix.EEXIST)) {
		return Info{}, false, err
	}
	flags := unix.O_PATH | unix.O_DIRECTORY
	if created {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := openAt(dir, base, flags, 0)
	if err != nil {
		return Info{}, false, err
	}
	defer unix.Close(fd)
	if created && mode != nil {
		if err := setFolderMode(dir, base, *mode); err != nil {
			return Info{}, false, err
		}
	}
	info, err = statAt(fd, "")
	name(&info, full)
	return info, created, err
}

// setFolderMode sets what mkdir(2) does not take: special bits, and those that
// the parent's default access list has masked.
func setFolderMode(dir int, base string, mode uint32) error {
	fd, err := openSubfolder(dir, base)
	if errors.Is(err, unix.EACCES) {
		return nil // a mode without read permission; mkdir has set it
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	have, err := statAt(fd, "")
	if err != nil || have.Mode == mode {
		return err
	}
	// A set-group-id bit that comes from the parent stays, as with mkdir(1).
	return unix.Fchmod(fd, mode|have.Mode&unix.S_ISGID)
}

// madeFolders are folders that were made on the way to a file, to be removed
// again if nothing comes of it.
type madeFolders struct {
	dir   int      // where the first was made, owned; -1 is none
	names []string // each in the one before
}

func (m *madeFolders) empty() bool { return len(m.names) == 0 }

// keep makes remove do nothing.
func (m *madeFolders) keep() { m.names = nil }

func (m *madeFolders) close() {
	if m.dir >= 0 {
		unix.Close(m.dir)
		m.dir = -1
	}
}

// remove takes the folders away that are still empty, innermost first; gone says
// whether the innermost is.
func (m *madeFolders) remove() (gone bool) {
	for n := len(m.names); n > 0; n-- {
		// What is not empty is in use, and so are those around it.
		if unix.Unlinkat(m.dir, strings.Join(m.names[:n], "/"), unix.AT_REMOVEDIR) != nil {
			break
		}
		gone = true
	}
	m.names = nil
	return gone
}

// makeFolders makes what is missing of an absolute path to a folder, and opens
// it (O_PATH). Folders that exist are not changed.
func makeFolders(path string) (dir int, made madeFolders, err error) {
	made.dir = -1
	dir, err = openFolder("/")
	for name := range strings.SplitSeq(path, "/") {
		if err != nil {
			break
		}
		if name == "" {
			continue
		}
		var next int
		next, err = openAt(dir, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		if errors.Is(err, unix.ENOENT) {
			if err = unix.Mkdirat(dir, name, newFolderMode); err == nil {
				made.add(dir, name)
			}
			if err == nil || errors.Is(err, unix.EEXIST) {
				next, err = openAt(dir, name, unix.O_PATH|unix.O_DIRECTORY, 0)
			}
		}
		if err == nil {
			unix.Close(dir)
			dir = next
		}
	}
	if err == nil {
		return dir, made, nil
	}
	if dir >= 0 {
		unix.Close(dir)
	}
	made.remove()
	made.close()
	return -1, made, err
}

// add remembers a folder just made in dir. Those that are not in the one before
// (a path may go back with "..") are left when the upload is aborted.
func (m *madeFolders) add(dir int, name string) {
	if m.dir >= 0 {
		fd, err := openNoLinks(m.dir, strings.Join(append(m.names[:len(m.names):len(m.names)], name), "/"), unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return
		}
		unix.Close(fd)
	} else {
		own, err := openNoLinks(dir, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return
		}
		m.dir = own
	}
	m.names = append(m.names, name)
}
