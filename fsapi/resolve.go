package fsapi

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// openat2Missing is set once the kernel has said that it has no openat2(2)
// (before Linux 5.6, gVisor). Paths are then walked here, name by name.
var openat2Missing atomic.Bool

// openAt opens path, relative to the folder dir, with the thread's rights.
// Links are followed, magic ones never: those end in ELOOP. The descriptor is
// close-on-exec. It must be called on a worker.
func openAt(dir int, path string, flags int, mode uint32) (int, error) {
	return openResolved(dir, path, flags, mode, 0)
}

// openNoLinks is openAt that follows no link at all, neither on the way nor at
// the end (ELOOP).
func openNoLinks(dir int, path string, flags int, mode uint32) (int, error) {
	return openResolved(dir, path, flags, mode, unix.RESOLVE_NO_SYMLINKS)
}

func openResolved(dir int, path string, flags int, mode uint32, resolve uint64) (int, error) {
	if openat2Missing.Load() {
		return walkOpen(dir, path, flags, mode, resolve&unix.RESOLVE_NO_SYMLINKS != 0)
	}
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Mode:    uint64(mode),
		Resolve: unix.RESOLVE_NO_MAGICLINKS | resolve,
	}
	for {
		fd, err := unix.Openat2(dir, path, &how)
		switch {
		case err == nil:
			return fd, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOSYS):
			openat2Missing.Store(true)
			return walkOpen(dir, path, flags, mode, resolve&unix.RESOLVE_NO_SYMLINKS != 0)
		}
		return -1, err
	}
}

// openFolder opens a folder as a place to look names up from.
func openFolder(path string) (int, error) {
	return openAt(unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// openSubfolder opens a folder's own sub-folder for reading; a link in its place
// is ENOTDIR or ELOOP.
func openSubfolder(dir int, name string) (int, error) {
	return retry(func() (int, error) {
		return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
}

// openListed is openSubfolder for one whose names are told.
func openListed(dir int, name string, acc account.Account) (int, error) {
	fd, err := openSubfolder(dir, name)
	if err != nil {
		return -1, err
	}
	if err := refuseOwnProc(fd, acc); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// retry repeats a system call that a signal interrupted; the Go runtime sends
// signals of its own.
func retry[T any](call func() (T, error)) (T, error) {
	for {
		value, err := call()
		if !errors.Is(err, unix.EINTR) {
			return value, err
		}
	}
}

// refuseOwnProc denies a guest user the files under /proc that describe guestd
// itself. The kernel lets every thread of a process introspect the process,
// whatever its effective ids, so that here alone it would not decide as it does
// for the user's own processes (/proc/PID/maps and its like).
func refuseOwnProc(fd int, acc account.Account) error {
	// The real uid: a worker's effective one is the user's.
	if acc.UID == 0 || os.Getuid() != 0 {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil || st.Type != unix.PROC_SUPER_MAGIC {
		return err
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlink(descriptorLink(fd), buf)
	if err != nil {
		return unix.EACCES
	}
	own := strconv.Itoa(os.Getpid())
	for name := range strings.SplitSeq(string(buf[:n]), "/") {
		if name == own {
			return unix.EACCES
		}
	}
	return nil
}
