package kernel

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// newControl returns the two ends of a kernel's control socket: ours, and the
// kernel's, which its starter closes after the start.
func newControl() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a control socket: %w", err)
	}
	// A non-blocking descriptor is the runtime poller's: reads have deadlines.
	_ = unix.SetNonblock(fds[0], true) // cannot fail
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control"), nil
}
