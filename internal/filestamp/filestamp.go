// Package filestamp tells whether a small file has changed since it was read. It reads
// no contents, and watches nothing: whoever wants to know asks.
package filestamp

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Stamp is one state of a file, the zero value that there is none. Every change of the
// contents makes another one, as far as the kernel's clock can tell them apart.
type Stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// Of returns the stamp of the file at path now. Errors are *fs.PathError; that there is no
// file is none. It is on the way of every start of a process, and so without what os.Stat
// does besides.
func Of(path string) (Stamp, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	for errors.Is(err, unix.EINTR) {
		err = unix.Stat(path, &st)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Stamp{}, nil
	}
	if err != nil {
		return Stamp{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return Stamp{dev: st.Dev, ino: st.Ino, size: st.Size, mtime: st.Mtim, ctime: st.Ctim}, nil
}
