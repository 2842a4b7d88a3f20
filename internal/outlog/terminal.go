package outlog

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How the end of what a leader wrote to a terminal is found, while others still have the
// terminal open. Nothing tells what is on its way: the kernel moves it from the slave to
// the master on a thread of its own, some milliseconds later on a busy machine. So
// guestd writes something after it, through the same queue, that nobody can know, waits
// for that, and takes it out again. Where that cannot be written, since output is
// stopped (Ctrl-S) or the kernel's thread does not get to it, the terminal counts as
// drained once it is quiet.

const (
	// quietTime without output ends the reading of a terminal that takes no sentinel. The
	// kernel's thread has been late by more than 10 ms on an overloaded machine.
	quietTime = 100 * time.Millisecond
	// drainMost is for how long the end is looked for at most: somebody may have thrown
	// the sentinel away, with tcflush(3).
	drainMost = time.Second
	// drainBytes is the most that is read before the mark, whatever happens.
	drainBytes = 1 << 20
	// sentinelSize is the sentinel's length in decimal digits, which no setting of the
	// terminal changes.
	sentinelSize = 32
)

// drainTerminal reads what the leader has left behind.
func (p *Pump) drainTerminal() error {
	d := terminalDrain{pump: p, sentinel: newSentinel(), slave: -1}
	_ = p.control(func(fd int) (err error) {
		// Not by name, which could be another's by now. A descriptor of its own, since
		// non-blocking is what all have who share one.
		d.slave, err = openPeer(fd)
		return err
	})
	defer d.closeSlave()
	err := d.run()
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, syscall.EIO) {
		if flushErr := d.flush(); flushErr != nil {
			return flushErr
		}
	}
	return err
}

// openPeer opens the slave of a terminal's master.
func openPeer(master int) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER,
		unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func newSentinel() []byte {
	sentinel := make([]byte, sentinelSize)
	rand.Read(sentinel)
	for i, b := range sentinel {
		sentinel[i] = '0' + b%10
	}
	return sentinel
}

// terminalDrain is one search for the end of a leader's output.
type terminalDrain struct {
	pump     *Pump
	slave    int // to write the sentinel to; -1 where there is none (any more)
	sentinel []byte
	sent     int // bytes of it that are written
	pending  []byte
	total    int
}

// run reads until the sentinel comes, or the terminal is quiet, or closed.
func (d *terminalDrain) run() error {
	begin := time.Now()
	for d.total < drainBytes {
		d.write()
		quiet := quietTime
		if d.sent == len(d.sentinel) {
			quiet = drainMost
		}
		left := drainMost - time.Since(begin)
		if left <= 0 {
			break
		}
		n, err := d.read(min(quiet, left))
		if err != nil {
			return err
		}
		if n == 0 || d.found() {
			break
		}
		// The sentinel may have begun in what is at the end.
		if err := d.emit(len(d.pending) - len(d.sentinel) + 1); err != nil {
			return err
		}
	}
	return d.pump.file.SetReadDeadline(time.Time{})
}

// write sends as much of the sentinel as the terminal takes now.
func (d *terminalDrain) write() {
	if d.slave < 0 {
		return
	}
	n, err := unix.Write(d.slave, d.sentinel[d.sent:])
	d.sent += max(n, 0)
	if d.sent == len(d.sentinel) || err != nil && err != unix.EAGAIN && err != unix.EINTR {
		d.closeSlave()
	}
}

func (d *terminalDrain) closeSlave() {
	if d.slave >= 0 {
		_ = unix.Close(d.slave)
		d.slave = -1
	}
}

// read adds what comes within limit to what is pending; 0 bytes are none in that time.
func (d *terminalDrain) read(limit time.Duration) (int, error) {
	if err := d.pump.file.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return 0, err
	}
	var buf [4096]byte // as much as a terminal gives at once
	n, err := d.pump.file.Read(buf[:])
	d.pending = append(d.pending, buf[:n]...)
	d.total += n
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, nil
	case errors.Is(err, syscall.EIO):
		return n, io.EOF // no slave is open any more
	}
	return n, err
}

// found looks for the sentinel, and keeps apart what comes after it.
func (d *terminalDrain) found() bool {
	before, after, ok := bytes.Cut(d.pending, d.sentinel)
	if ok && d.sent == len(d.sentinel) {
		d.pending, d.pump.later, d.sent = before, bytes.Clone(after), 0
		return true
	}
	return false
}

// flush puts into the log what is pending, without what was sent of the sentinel.
func (d *terminalDrain) flush() error {
	d.pending = bytes.TrimSuffix(d.pending, d.sentinel[:d.sent])
	return d.emit(len(d.pending))
}

// emit puts the first n of the pending bytes into the log.
func (d *terminalDrain) emit(n int) error {
	if n <= 0 {
		return nil
	}
	_, err := d.pump.log.Write(d.pump.ctx, d.pending[:n])
	d.pending = append(d.pending[:0], d.pending[n:]...)
	d.pump.total += uint64(n)
	return err
}
