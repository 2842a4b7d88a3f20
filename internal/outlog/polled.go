package outlog

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNoRoom is returned by ReadNow when the log is full of what a lossless reader
// has not acknowledged.
var ErrNoRoom = errors.New("outlog: no room in the log")

// NewPolledPump returns a pump from the read end of a pipe, a non-blocking descriptor
// that it owns from now on, for an owner who waits for the pipe himself at first. For a
// command that ends soon that spares registering the pipe with the runtime's poller, and
// a goroutine that has to be woken up.
//
// The owner calls ReadNow whenever FD is readable. When the leader has ended he calls
// EndEmpty, or EndNow, and, where that says that somebody else holds the pipe, Run. Or he
// has enough of it before that: then Register and Run make it a pump like any other.
func NewPolledPump(fd int, log *Log, onMark func()) *Pump {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Pump{fd: fd, source: Pipe, log: log, onMark: onMark, ctx: ctx, cancel: cancel}
}

// FD is the descriptor of a polled pump.
func (p *Pump) FD() int { return p.fd }

// Register hands a polled pump's descriptor to the runtime's poller. Run is to follow.
func (p *Pump) Register() { p.file = os.NewFile(uintptr(p.fd), "pipe") }

// ReadNow moves what the pipe has, as far as one read goes, and returns how many bytes that
// was. Errors: EAGAIN for none at present, io.EOF where nobody holds the pipe any more,
// ErrNoRoom.
func (p *Pump) ReadNow() (int, error) { return p.readNow(maxChunk) }

func (p *Pump) readNow(limit int) (int, error) {
	buf, _, err := p.log.tryReserve()
	if err != nil {
		return 0, err
	}
	if buf == nil {
		return 0, ErrNoRoom
	}
	n, err := unix.Read(p.fd, buf[:min(len(buf), limit)])
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(p.fd, buf[:min(len(buf), limit)])
	}
	p.log.Commit(max(n, 0))
	p.total += uint64(max(n, 0))
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

// EndEmpty ends a stream whose pipe is empty and held by nobody, as ReadNow's io.EOF says, or
// EPOLLHUP without EPOLLIN. CloseEmpty is to follow: closing a pipe takes a while, which
// nobody has to wait for.
func (p *Pump) EndEmpty() {
	p.log.Drain()
	p.log.Finish()
	p.mark()
}

// CloseEmpty closes the pump after EndEmpty.
func (p *Pump) CloseEmpty() {
	p.cancel(errPumpClosed)
	_ = unix.Close(p.fd)
}

// EndNow reads what the leader has left behind and sets the exit mark. It says whether
// the stream has ended, too: then the pump is closed; else Run goes on.
func (p *Pump) EndNow() (ended bool) {
	p.log.Drain()
	left, err := inPipe(p.fd)
	for left = min(left, maxPipe); err == nil && left > 0; {
		var n int
		n, err = p.readNow(left)
		left -= n
		if errors.Is(err, syscall.EAGAIN) && n == 0 {
			break // another process reads this pipe, too
		}
	}
	poll := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	_, _ = unix.Poll(poll, 0) // an error says nothing, and leaves the decision to Run
	if poll[0].Revents&(unix.POLLIN|unix.POLLHUP) != unix.POLLHUP {
		p.Register() // before anybody learns of the mark, and may call Close
		p.mark()
		return false
	}
	p.log.Finish()
	p.mark()
	p.CloseEmpty()
	return true
}
