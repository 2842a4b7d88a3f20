package outlog

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// A pipe's capacity is at most maxPipe unless root in the guest has raised it;
	// what is in it beyond that counts as later output.
	maxPipe = 8 << 20

	// bigStream is how many bytes make a stream worth a pipe of pipeSize.
	bigStream = 256 << 10
	pipeSize  = 1 << 20
)

// errPumpClosed is the cause that ends a pump's waiting for room.
var errPumpClosed = errors.New("outlog: pump closed")

// Source is the kind of file that a pump reads.
type Source int

const (
	// Pipe is the read end of a pipe: what is in it when the leader ends is
	// known exactly.
	Pipe Source = iota
	// Terminal is a terminal's master: it is read until it is quiet, and EIO
	// is its end.
	Terminal
)

// Pump reads a file into a log, puts the exit mark where the leader's output
// ends, and then goes on until the file's end, so that whoever writes to it
// later neither blocks nor gets SIGPIPE.
type Pump struct {
	file   *os.File // nil while, and if, the owner polls fd: see NewPolledPump
	fd     int      // of a polled pump
	source Source
	log    *Log
	onMark func()

	ctx         context.Context // of the writer's waiting for room
	cancel      context.CancelCauseFunc
	leaderEnded atomic.Bool

	// Run alone uses the following.
	marked bool
	later  []byte // was read with what came before the mark
	total  uint64
	grown  bool
}

// NewPump returns a pump from file, which it owns from now on and which must be
// non-blocking so that deadlines and Close work, into log. onMark, if not nil,
// is called by Run once, right after the exit mark was set and before anything
// after it is read; it must not block.
func NewPump(file *os.File, source Source, log *Log, onMark func()) *Pump {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Pump{file: file, source: source, log: log, onMark: onMark, ctx: ctx, cancel: cancel}
}

// Run pumps until the file's end or Close, then finishes the log and closes the
// file. The error is nil for the end and for Close.
func (p *Pump) Run() error {
	err := p.pump()
	p.log.Finish()
	p.mark()
	p.cancel(errPumpClosed)
	p.file.Close()
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, errPumpClosed) {
		return nil
	}
	return err
}

// LeaderEnded tells the pump, once, that the leader has ended and been waited
// for. It does not block.
func (p *Pump) LeaderEnded() {
	p.leaderEnded.Store(true)
	p.log.Drain()
	// Interrupts a pending Read, which has lost nothing then. The file may be
	// closed already, and with it all is read.
	_ = p.file.SetReadDeadline(time.Unix(1, 0))
}

// Close ends Run wherever it is. What has not been read is lost.
func (p *Pump) Close() {
	p.cancel(errPumpClosed)
	if p.file != nil {
		p.file.Close()
	}
}

func (p *Pump) pump() error {
	for {
		if !p.marked && p.leaderEnded.Load() {
			if err := p.drain(); err != nil {
				return err
			}
			p.mark()
			if _, err := p.log.Write(p.ctx, p.later); err != nil {
				return err
			}
			p.later = nil
		}
		if _, err := p.read(maxChunk); err != nil {
			return err
		}
	}
}

// read moves at most limit bytes and returns how many. An interrupted read is
// no error.
func (p *Pump) read(limit int) (int, error) {
	buf, err := p.log.Reserve(p.ctx)
	if err != nil {
		return 0, err
	}
	n, err := p.file.Read(buf[:min(len(buf), limit)])
	p.log.Commit(n)
	p.total += uint64(n)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, p.file.SetReadDeadline(time.Time{})
	case p.source == Terminal && errors.Is(err, syscall.EIO):
		return n, io.EOF // no slave is open any more
	}
	p.growPipe()
	return n, err
}

// growPipe gives a stream that proves big a bigger pipe: fewer and larger reads.
func (p *Pump) growPipe() {
	if p.grown || p.source != Pipe || p.total < bigStream {
		return
	}
	p.grown = true
	// Refused over the user's limit for pipes: then it stays as it is.
	_ = p.control(func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeSize)
		return err
	})
}

func (p *Pump) mark() {
	if p.marked {
		return
	}
	p.marked = true
	p.log.Mark()
	if p.onMark != nil {
		p.onMark()
	}
}

// drain reads what the leader has left behind.
func (p *Pump) drain() error {
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if p.source == Terminal {
		return p.drainTerminal()
	}
	var left int
	err := p.control(func(fd int) (err error) {
		left, err = inPipe(fd)
		return err
	})
	for left = min(left, maxPipe); err == nil && left > 0; {
		var n int
		n, err = p.read(left)
		left -= n
	}
	return err
}

// inPipe returns how many bytes are in a pipe.
func inPipe(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCINQ) } // FIONREAD

func (p *Pump) control(f func(fd int) error) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}
