// Package inotify is the kernel's inotify(7) as it is: an instance, its watches,
// and its events in the order in which they happened.
//
// It gives events no meaning, resolves no path, and follows no folder into its
// sub-folders. It starts no goroutine: an [Instance] owns one descriptor, which
// its Close ends together with all watches, and is for one goroutine at a time.
package inotify

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// Instance is one inotify instance.
type Instance struct {
	fd int
}

// New makes an instance, which counts for the effective user of the calling
// thread. EMFILE means that fs.inotify.max_user_instances is reached, or that
// the process has too many descriptors.
func New() (*Instance, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &Instance{fd: fd}, nil
}

// FD is the instance's descriptor, for poll(2): readable when there are events.
func (i *Instance) FD() int { return i.fd }

// Close removes all watches and forgets all events.
func (i *Instance) Close() { unix.Close(i.fd) }

// Add watches the file that the descriptor fd is open for, which may be O_PATH:
// no name is looked up, so that nothing can be put in the file's place. The
// calling thread's user must be allowed to read the file. The answer is the
// file's number: the same as before if it is watched already, whose mask then
// grows; otherwise one that the instance has never used. ENOSPC means that
// fs.inotify.max_user_watches is reached.
func (i *Instance) Add(fd int, mask uint32) (int32, error) {
	link := "/proc/self/fd/" + strconv.Itoa(fd)
	for {
		wd, err := unix.InotifyAddWatch(i.fd, link, mask|unix.IN_MASK_ADD)
		if !errors.Is(err, unix.EINTR) {
			return int32(wd), err
		}
	}
}

// Remove ends a watch; one that has ended by itself is fine. Events that
// happened before may still come, and IN_IGNORED does.
func (i *Instance) Remove(wd int32) {
	// EINVAL: the file is gone, and its watch with it.
	_, _ = unix.InotifyRmWatch(i.fd, uint32(wd))
}

// waiting is how many bytes of events there are to be read.
func (i *Instance) waiting() (int, error) {
	return unix.IoctlGetInt(i.fd, unix.TIOCINQ)
}

// read reads whole events into buf, which must have room for the largest. With
// none to be read it is 0.
func (i *Instance) read(buf []byte) (int, error) {
	for {
		n, err := unix.Read(i.fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		default:
			return max(n, 0), err
		}
	}
}
