package fsapi

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tempEntry is the one name in a temporary folder, and in no other.
const tempEntry = ".guestd-entry"

// tempFolderMode is a temporary folder's mode: nobody else puts anything there.
const tempFolderMode = 0o700

// makeTempFolder makes a folder that only the user can enter, opens and locks it.
func makeTempFolder(dir int, name string) (int, error) {
	if err := unix.Mkdirat(dir, name, tempFolderMode); err != nil {
		return -1, err
	}
	fd, err := openSubfolder(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return -1, unix.EEXIST // taken for left over before it was locked
	}
	if err != nil {
		return -1, err
	}
	if err := lockTemp(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// removeTempFolder removes a folder that makeTempFolder has made, with what is in it.
// All it empties is the folder that fd is: whoever may write to at.dir can give the
// name to another.
func removeTempFolder(ctx context.Context, at place, fd int) error {
	err := unix.Unlinkat(fd, tempEntry, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) { // Linux says the first of a folder, POSIX the second
		_, err = removeTree(ctx, fd, tempEntry)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return removeFolder(at.dir, at.name)
}

// isTempFolder says whether fd is a folder that makeTempFolder can have made for the
// present user. A folder that somebody has only renamed has another mode or other
// contents, which he may have no right to remove.
func isTempFolder(fd int) bool {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil ||
		st.Mode != unix.S_IFDIR|tempFolderMode || int(st.Uid) != os.Geteuid() {
		return false
	}
	own, err := openSubfolder(fd, ".")
	if err != nil {
		return false
	}
	entries := newDirReader(own)
	defer entries.close()
	for {
		entry, more, err := entries.next()
		if !more {
			return err == nil
		}
		if entry.name != tempEntry {
			return false
		}
	}
}
