package hosttree

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// directory is an open directory. What concerns its own entries goes by its descriptor, where each
// call takes the name of an entry and never follows a link at it: with os.Root, which does not know
// that a name is just one element, a small file costs twice as much.
type directory struct {
	root *os.Root
	file *os.File
}

// openDirectory takes root over, also when it fails.
func openDirectory(root *os.Root) (*directory, error) {
	inRoot, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	// Once more: a file that os.Root has opened looks at each entry that it lists.
	fd, err := retry(func() (int, error) {
		return unix.Openat(int(inRoot.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err = errors.Join(failed("open", root.Name(), err), inRoot.Close()); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &directory{root: root, file: os.NewFile(uintptr(fd), root.Name())}, nil
}

func (d *directory) close() {
	d.file.Close()
	d.root.Close()
}

// fd is a descriptor that is open as long as the directory is.
func (d *directory) fd() int { return int(d.file.Fd()) }

// failed tells what went wrong with an entry.
func failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// create makes an entry that is a new file, and opens it for writing.
func (d *directory) create(name string) (*os.File, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(d.fd(), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return nil, failed("open", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// open opens an entry for reading, without waiting for a FIFO's other end.
func (d *directory) open(name string) (int, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(d.fd(), name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	return fd, failed("open", name, err)
}

// setTime sets the modification time of an entry, of a link its own.
func (d *directory) setTime(name string, to time.Time) error {
	at, err := unix.TimeToTimespec(to)
	if err != nil {
		return failed("chtimes", name, err)
	}
	return failed("chtimes", name, unix.UtimesNanoAt(d.fd(), name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW))
}

// rename gives an entry another name, in the place of what may have it.
func (d *directory) rename(from, to string) error {
	return failed("rename", from, unix.Renameat(d.fd(), from, d.fd(), to))
}

// retry repeats a system call that a signal interrupted; the Go runtime sends signals of its own.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
