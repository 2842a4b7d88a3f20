package fsapi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// maxRemoveFailures is after how many entries that cannot be removed a recursive
// removal gives up.
const maxRemoveFailures = 1000

// maxRescans is how often a folder is read again that fills while it is removed.
const maxRescans = 100

// errFolderMoved says that a folder was moved away while it was being removed.
var errFolderMoved = fmt.Errorf("a folder was moved while it was being removed: %w", unix.ESTALE)

// errOtherFolder says that a name has become another folder's.
var errOtherFolder = fmt.Errorf("another folder has the name by now: %w", unix.ESTALE)

// RemoveOptions says how Remove goes about it.
type RemoveOptions struct {
	// Recursive removes a folder with all that is in it, mounted file systems
	// included, as rm -r does. Links are removed and never followed.
	Recursive bool
	// IgnoreMissing makes it no error if there is nothing at the path.
	IgnoreMissing bool
}

// Remove removes a file, a link itself, or a folder, which must be empty
// (ErrNotEmpty) unless Recursive. A recursive removal removes all it can and
// returns the first failure, whose Path says where. removed is how many files,
// links and folders are gone, also after a failure. A slash at the end demands a
// folder. The root folder, "." and ".." are refused.
func (fsys *FS) Remove(ctx context.Context, user, path string, opts RemoveOptions) (removed uint64, err error) {
	acc, err := fsys.account(user)
	if err != nil {
		return 0, err
	}
	full, err := absolute("path", path, acc.Home)
	if err != nil {
		return 0, err
	}
	folder, base, slash, err := entryName("path", full)
	if err != nil {
		return 0, err
	}
	err = fsys.as(ctx, acc, func() error {
		dir, err := openFolder(folder)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		info, err := statAt(dir, base)
		if err != nil {
			return err
		}
		switch {
		case info.Type == TypeDirectory && opts.Recursive:
			removed, err = removeTree(ctx, dir, base)
			return relabel(err, base, strings.TrimRight(path, "/"))
		case info.Type == TypeDirectory:
			err = removeFolder(dir, base)
		case slash:
			err = unix.ENOTDIR
		default:
			err = unix.Unlinkat(dir, base, 0)
		}
		if err == nil {
			removed = 1
		}
		return err
	})
	if opts.IgnoreMissing && errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return removed, pathError("remove", path, err)
}

// removeFolder removes an empty folder.
func removeFolder(dir int, name string) error {
	err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.EEXIST) { // POSIX lets it be either
		return unix.ENOTEMPTY
	}
	return err
}

// removeTree removes the entry name of dir, a folder, with all that is in it. Its
// error is the first failure, a *PathError with a path from dir on; removed counts
// what is gone. Descriptors do not add up with depth: the way back is "..", which
// is trusted only if it is the folder that was come from.
func removeTree(ctx context.Context, dir int, name string) (removed uint64, err error) {
	return removeThis(ctx, dir, name, fileID{})
}

// removeThis is removeTree for one folder only, whatever may have its name by now; the
// zero id is any. errOtherFolder tells that it is another.
func removeThis(ctx context.Context, dir int, name string, id fileID) (removed uint64, err error) {
	r := remover{root: id}
	if !r.enter(dir, name) {
		return r.removed, r.first
	}
	defer func() { r.dir.close() }()
	for r.failures < maxRemoveFailures {
		if err := context.Cause(ctx); err != nil {
			return r.removed, err
		}
		entry, more, err := r.dir.next()
		if more {
			r.remove(entry)
			continue
		}
		if err != nil {
			r.fail("", err)
		}
		if len(r.levels) == 1 {
			if done, err := r.finish(dir); done {
				return r.removed, err
			}
		} else if err := r.leave(); err != nil {
			return r.removed, err
		}
	}
	return r.removed, r.first
}

// remover is a removal on its way.
type remover struct {
	root     fileID        // which folder the tree's root must be; zero for any
	dir      *dirReader    // the folder being emptied, the last of levels
	levels   []removeLevel // from the tree's root on
	removed  uint64
	first    error
	failures int
}

type removeLevel struct {
	name     string
	dev, ino uint64
	failed   map[string]bool // entries that cannot be removed
	rescans  int
}

func (r *remover) top() *removeLevel { return &r.levels[len(r.levels)-1] }

// fail records that the entry name ("" is the folder itself) cannot be removed.
func (r *remover) fail(name string, err error) {
	r.failures++
	if len(r.levels) > 0 {
		r.skip(name)
	}
	if r.first != nil {
		return
	}
	path := ""
	for _, level := range r.levels {
		path += "/" + level.name
	}
	if name != "" {
		path += "/" + name
	}
	r.first = &PathError{Op: "remove", Path: path[1:], Err: err}
}

// skip makes the folder's reader pass over an entry that cannot be removed.
func (r *remover) skip(name string) {
	top := r.top()
	if top.failed == nil {
		top.failed = map[string]bool{}
	}
	top.failed[name] = true
}

// count takes note of the outcome of removing one entry. It says whether that is
// gone, be it somebody else who removed it.
func (r *remover) count(err error) (gone bool) {
	if err == nil {
		r.removed++
	}
	return err == nil || errors.Is(err, unix.ENOENT)
}

// remove removes one entry, or enters it if it is a folder.
func (r *remover) remove(entry dirEntry) {
	if r.top().failed[entry.name] {
		return
	}
	if entry.kind != TypeDirectory {
		err := unix.Unlinkat(r.dir.fd, entry.name, 0)
		if r.count(err) {
			return
		}
		info, statErr := statAt(r.dir.fd, entry.name)
		if statErr != nil || info.Type != TypeDirectory {
			r.fail(entry.name, err)
			return
		}
	}
	r.enter(r.dir.fd, entry.name)
}

// enter goes down into a folder; false if there is nothing to go into (any
// more) or it cannot be read.
func (r *remover) enter(dir int, name string) bool {
	fd, err := openSubfolder(dir, name)
	if err != nil {
		// What cannot be read may still be empty.
		if !r.count(removeFolder(dir, name)) {
			r.fail(name, err)
		}
		return false
	}
	info, err := statAt(fd, "")
	if err == nil && len(r.levels) == 0 && r.root != (fileID{}) && info.id() != r.root {
		err = errOtherFolder
	}
	if err != nil {
		unix.Close(fd)
		r.fail(name, err)
		return false
	}
	if r.dir != nil {
		r.dir.close()
	}
	r.dir = newDirReader(fd)
	r.levels = append(r.levels, removeLevel{name: name, dev: info.Device, ino: info.Inode})
	return true
}

// leave goes back up from an emptied folder and removes it.
func (r *remover) leave() error {
	fd, err := retry(func() (int, error) {
		return unix.Openat(r.dir.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		r.fail("", err)
		return r.first
	}
	parent := newDirReader(fd)
	info, err := statAt(fd, "")
	up := &r.levels[len(r.levels)-2]
	if err == nil && (info.Device != up.dev || info.Inode != up.ino) {
		err = errFolderMoved
	}
	if err != nil {
		parent.close()
		r.fail("", err)
		return r.first
	}
	left := *r.top()
	r.dir.close()
	r.dir, r.levels = parent, r.levels[:len(r.levels)-1]
	err = removeFolder(fd, left.name)
	switch {
	case r.count(err):
	case errors.Is(err, unix.ENOTEMPTY) && len(left.failed) > 0:
		r.skip(left.name)
	case errors.Is(err, unix.ENOTEMPTY) && up.rescans < maxRescans:
		up.rescans++ // it has filled again; reading its parent again leads back to it
	default:
		r.fail(left.name, err)
	}
	return nil
}

// finish removes the tree's root once all below it has been tried; done is false
// if it has filled again meanwhile.
func (r *remover) finish(dir int) (done bool, err error) {
	if r.first != nil {
		return true, r.first
	}
	root := r.top()
	err = removeFolder(dir, root.name)
	if errors.Is(err, unix.ENOTEMPTY) && root.rescans < maxRescans {
		root.rescans++
		if err = r.dir.rewind(); err == nil {
			return false, nil
		}
	}
	if r.count(err) {
		return true, nil
	}
	return true, &PathError{Op: "remove", Path: root.name, Err: err}
}
