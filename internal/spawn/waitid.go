package spawn

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfo is what waitid(2) fills in: the head of siginfo_t on 64-bit Linux with
// the fields of SIGCHLD, which unix.Siginfo hides.
type siginfo struct {
	Signo, Errno, Code, _ int32

	PID    int32
	UID    uint32
	Status int32 // exit code or signal number, as Code says
	_      [100]byte
}

// raw returns info as the type that unix.Waitid takes; both are 128 bytes.
func (info *siginfo) raw() *unix.Siginfo { return (*unix.Siginfo)(unsafe.Pointer(info)) }

// Values of siginfo.Code, from <asm-generic/siginfo.h>.
const (
	cldExited  = 1
	cldDumped  = 3
	cldTrapped = 4
)

// waitid waits for the child that pidfd refers to. With WNOHANG, or a
// non-blocking pidfd, Signo is 0 when there is nothing to tell yet.
func waitid(pidfd int, options int, usage *unix.Rusage) (*siginfo, error) {
	info := new(siginfo)
	for {
		err := unix.Waitid(unix.P_PIDFD, pidfd, info.raw(), options, usage)
		switch err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return info, nil
		}
		return info, err
	}
}

// newStatus translates what waitid told.
func newStatus(info *siginfo, usage *unix.Rusage) Status {
	status := Status{
		UserTime:   time.Duration(usage.Utime.Nano()),
		SystemTime: time.Duration(usage.Stime.Nano()),
		PeakMemory: usage.Maxrss << 10, // told in KiB
		Ended:      time.Now(),
	}
	if info.Code == cldExited {
		status.Code = int(info.Status)
		return status
	}
	status.Code = -1
	status.Signal = syscall.Signal(info.Status)
	status.CoreDumped = info.Code == cldDumped
	return status
}

// pidfdControl runs fn with the descriptor of f, which stays open meanwhile. f
// closed is os.ErrClosed.
func pidfdControl(f *os.File, fn func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var fnErr error
	if err := conn.Control(func(fd uintptr) { fnErr = fn(int(fd)) }); err != nil {
		return err
	}
	return fnErr
}

// userHZ is the unit of times in /proc: USER_HZ, 100 a second on all of Linux.
const userHZ = 100

// clockTicks returns the time since boot as /proc/PID/stat counts start times.
func clockTicks() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return uint64(now.Nano()) / (uint64(time.Second) / userHZ)
}
