package proc

import (
	"fmt"
	"os"
	"sync"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// maxResizes is how many resizes a terminal remembers for replays.
const maxResizes = 1024

// terminal is the master's side of a pseudo-terminal.
type terminal struct {
	master *os.File // non-blocking: deadlines and Close work
	// slave is held until the leader's end: while no slave is open reading the
	// master fails, and programs may close theirs and open it again.
	slave *os.File

	// mu protects the following.
	mu      sync.Mutex
	resizes []Resized // by offset, never empty
}

// openTerminal returns a terminal whose slave belongs to the account. The caller
// closes both ends.
func openTerminal(size Size, acc account.Account) (*terminal, error) {
	blocking, slave, err := pty.Open()
	if err != nil {
		return nil, fmt.Errorf("opening a terminal: %w", err)
	}
	// creack/pty leaves the master in blocking mode, where neither a deadline nor
	// Close ends a Read. O_NONBLOCK belongs to the open file, so the duplicate has
	// it set for good once the first descriptor is closed.
	master, err := nonBlockingDuplicate(blocking)
	blocking.Close()
	if err != nil {
		slave.Close()
		return nil, fmt.Errorf("opening a terminal: %w", err)
	}
	size = size.withDefaults()
	t := &terminal{master: master, slave: slave, resizes: []Resized{{Size: size}}}
	t.setUTF8()
	if err := t.setSize(size); err != nil {
		master.Close()
		slave.Close()
		return nil, err
	}
	if int(acc.UID) != os.Geteuid() {
		// As login(1) does: programs open their terminal again by name. Refused
		// in some containers, where they work without.
		_ = slave.Chown(int(acc.UID), -1)
	}
	return t, nil
}

func nonBlockingDuplicate(file *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}

// control runs f on the master's descriptor, unless that is closed.
func (t *terminal) control(f func(fd int) error) error {
	raw, err := t.master.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// setUTF8 makes the terminal erase characters and not bytes, as terminals of today do.
func (t *terminal) setUTF8() {
	_ = t.control(func(fd int) error {
		termios, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		termios.Iflag |= unix.IUTF8
		return unix.IoctlSetTermios(fd, unix.TCSETS, termios)
	})
}

func (t *terminal) setSize(size Size) error {
	err := t.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{
			Row: size.Rows, Col: size.Cols, Xpixel: size.XPixels, Ypixel: size.YPixels,
		})
	})
	if err != nil {
		return fmt.Errorf("setting the terminal's size: %w", err)
	}
	return nil
}

// resize sets the size and remembers it for what comes after offset. The lock
// keeps the order of two resizes and of their records the same.
func (t *terminal) resize(size Size, offset func() uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	size = size.withDefaults()
	// The offset first: what the program paints on SIGWINCH comes after it.
	at := Resized{Offset: offset(), Size: size}
	if err := t.setSize(size); err != nil {
		return err
	}
	last := len(t.resizes) - 1
	switch {
	case t.resizes[last].Offset >= at.Offset:
		at.Offset = t.resizes[last].Offset
		t.resizes[last] = at
	case len(t.resizes) == maxResizes:
		copy(t.resizes, t.resizes[1:])
		t.resizes[last] = at
	default:
		t.resizes = append(t.resizes, at)
	}
	return nil
}

// size is the present size.
func (t *terminal) size() Size {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.resizes[len(t.resizes)-1].Size
}

// sizeAt returns the resize in force at offset, and where the next one is.
func (t *terminal) sizeAt(offset uint64) (now Resized, next uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, next = t.resizes[0], ^uint64(0)
	for _, r := range t.resizes[1:] {
		if r.Offset > offset {
			return now, r.Offset
		}
		now = r
	}
	return now, next
}

// hangUp does what a modem did: the slave's holders get end of file and EIO.
// Without CAP_SYS_ADMIN the kernel refuses, and the signal alone has to do.
func (t *terminal) hangUp() {
	_ = t.control(func(fd int) error {
		// Not by name, which could be another's by now; O_NOCTTY, since guestd may
		// lead a session without a terminal.
		slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno != 0 {
			return errno
		}
		defer unix.Close(int(slave))
		return unix.IoctlSetInt(int(slave), unix.TIOCVHANGUP, 0)
	})
}
