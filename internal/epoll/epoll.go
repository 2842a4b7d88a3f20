// Package epoll waits for several descriptors at once in one goroutine that
// occupies no thread meanwhile.
//
// The runtime's poller knows one goroutine for each descriptor, and poll(2) keeps a
// thread and the processor that it runs goroutines on. A [Set] is an epoll instance,
// which is itself a descriptor that the runtime's poller watches: epoll(7), "Q5".
//
// It starts no goroutine. What is in a Set belongs to whoever added it, who removes
// it before he closes it.
package epoll

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// most is how many ready descriptors Wait tells at a time.
const most = 4

// Set is a number of descriptors. It belongs to one goroutine at a time.
type Set struct {
	file  *os.File
	conn  syscall.RawConn
	fd    int
	ready [most]unix.EpollEvent
	count int                   // of ready
	look  func(fd uintptr) bool // made once: it is needed at each wait
}

// New opens an empty Set, which Close closes.
func New() (*Set, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("opening an epoll instance: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // for os.NewFile: then the poller watches it
		_ = unix.Close(fd)
		return nil, fmt.Errorf("opening an epoll instance: %w", err)
	}
	s := &Set{fd: fd, file: os.NewFile(uintptr(fd), "epoll")}
	s.look = s.lookNow
	if s.conn, err = s.file.SyscallConn(); err != nil {
		_ = s.file.Close()
		return nil, fmt.Errorf("opening an epoll instance: %w", err)
	}
	return s, nil
}

// Add watches a descriptor for something to read, or its end, for as long as that lasts.
func (s *Set) Add(fd int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := s.control(unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("adding to an epoll instance: %w", err)
	}
	return nil
}

// Remove takes a descriptor out again. One that is not in is ignored.
func (s *Set) Remove(fd int) { _ = s.control(unix.EPOLL_CTL_DEL, fd, &unix.EpollEvent{}) }

// control is epoll_ctl(2). It never blocks, and so the scheduler is not told of it, which
// would cost more than the call.
func (s *Set) control(operation, fd int, event *unix.EpollEvent) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(s.fd), uintptr(operation), uintptr(fd),
		uintptr(unsafe.Pointer(event)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// SetDeadline says until when Wait waits.
func (s *Set) SetDeadline(t time.Time) error {
	if err := s.file.SetReadDeadline(t); err != nil {
		return fmt.Errorf("setting an epoll instance's deadline: %w", err)
	}
	return nil
}

// Wait waits until a descriptor is ready, and returns those that are, in each case Fd and
// Events; the slice is valid until the next call. After the deadline it is
// os.ErrDeadlineExceeded, after Close another error.
func (s *Set) Wait() ([]unix.EpollEvent, error) {
	if err := s.conn.Read(s.look); err != nil {
		return nil, fmt.Errorf("waiting for an epoll instance: %w", err)
	}
	return s.ready[:s.count], nil
}

// lookNow asks the kernel what is ready, without waiting, and says whether anything is.
func (s *Set) lookNow(uintptr) bool {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(s.fd),
		uintptr(unsafe.Pointer(&s.ready[0])), uintptr(len(s.ready)), 0, 0, 0)
	s.count = 0
	if errno == 0 {
		s.count = int(n)
	}
	return s.count > 0
}

// Close closes the Set, and none of the descriptors.
func (s *Set) Close() { _ = s.file.Close() }
