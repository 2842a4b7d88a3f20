package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"guestd.internal/internal/outlog"
)

const (
	// InputWindow is how many bytes of input are taken in advance of the program.
	// A client that sends no more than this beyond what InputStatus has told
	// never makes WriteInput wait.
	InputWindow = 1 << 20

	// inputPiece is how much is written at once, so that progress shows.
	inputPiece = 64 << 10
	// inputStep is how often progress is told.
	inputStep = 64 << 10

	// bigInput is how much input a program has read that is worth a pipe of inputPipe.
	bigInput  = 256 << 10
	inputPipe = 1 << 20
)

var (
	// ErrNoInput is returned where there is nothing to write to: the process was
	// started without stdin.
	ErrNoInput = errors.New("process has no stdin")
	// ErrInputClosed is returned for input that nobody will read: the program
	// ended or closed its stdin (EPIPE), or the input was closed before.
	ErrInputClosed = errors.New("process no longer reads its stdin")
)

// noEnd is where an input ends whose end is not known.
const noEnd = ^uint64(0)

// input feeds a pipe or a terminal. While the program keeps up, writes go
// straight to the file; else a goroutine, which ends when it has caught up or
// the file is closed, writes what was accepted.
type input struct {
	file     *os.File
	terminal *terminal // nil for a pipe
	progress func()    // told without a lock when InputStatus changes
	writer   sync.WaitGroup

	// mu protects the following, and is never held while anything blocks.
	mu       sync.Mutex
	queue    inputQueue
	shares   []share        // whose the bytes in the queue are
	writers  []*inputWriter // those that are attached, and those that may come back
	accepted uint64         // bytes taken from clients
	written  uint64         // bytes given to the program
	told     uint64         // written, as progress was last called
	writing  bool           // the goroutine is there
	grown    bool           // the pipe was made bigger, or may not be
	keys     []byte         // to be typed before the queue; no client's bytes
	closed   bool           // nothing is accepted any more
	broken   bool           // and that is the program's doing
	end      bool           // an end of file is to come after the byte before endAt
	endAt    uint64
	line     []byte        // given to a terminal since the last end of a line
	room     chan struct{} // closed and replaced when there is room again
}

func newInput(file *os.File, t *terminal, progress func()) *input {
	return &input{file: file, terminal: t, progress: progress,
		endAt: noEnd, room: make(chan struct{})}
}

// write accepts data at an offset, nil for behind all that is accepted, and returns how
// far the input is accepted: that of a writer, in whose positions the offset is, too, or
// all. It waits while InputWindow bytes are ahead of the program.
func (in *input) write(ctx context.Context, w *inputWriter, at *uint64, data []byte) (uint64, error) {
	for {
		accepted, rest, room, err := in.accept(w, at, data)
		if err != nil || len(rest) == 0 {
			return accepted, err
		}
		at, data = &accepted, rest
		select {
		case <-room:
		case <-ctx.Done():
			return accepted, fmt.Errorf("waiting for the process to read its stdin: %w", context.Cause(ctx))
		}
	}
}

// accept takes what there is room for, and returns the rest.
func (in *input) accept(w *inputWriter, at *uint64, data []byte) (accepted uint64, rest []byte, room <-chan struct{}, err error) {
	in.mu.Lock()
	tell := false
	defer func() {
		in.mu.Unlock()
		if tell {
			in.progress()
		}
	}()
	accepted = in.position(w)
	offset := accepted
	if at != nil {
		offset = *at
	}
	if offset > accepted {
		if in.broken {
			// What was sent before the client could know is past what was accepted.
			return accepted, nil, nil, ErrInputClosed
		}
		return accepted, nil, nil, &outlog.OffsetError{Offset: offset, End: accepted}
	}
	data = data[min(uint64(len(data)), accepted-offset):]
	if len(data) == 0 {
		return accepted, nil, nil, nil
	}
	if in.closed || in.end && in.terminal == nil {
		return accepted, nil, nil, ErrInputClosed
	}
	n := 0
	if in.credits(w) {
		n = min(len(data), max(0, InputWindow-int(in.accepted-in.written)))
	}
	in.accepted += uint64(n)
	in.credit(w, n)
	in.queue.add(data[:n])
	tell = in.flush()
	return accepted + uint64(n), data[n:], in.room, nil
}

// feed gives the program all of its input at once, whatever its size, and the
// end after it. The data is not copied and not to be changed.
func (in *input) feed(data []byte) {
	in.mu.Lock()
	in.queue.lend(data)
	in.accepted = uint64(len(data))
	in.credit(nil, len(data))
	in.end, in.endAt = true, in.accepted
	tell := in.flush()
	in.mu.Unlock()
	if tell {
		in.progress()
	}
}

// closeAt puts the end of file after the byte before an offset, nil for after all that
// is accepted.
func (in *input) closeAt(w *inputWriter, at *uint64) error {
	in.mu.Lock()
	tell := false
	defer func() {
		in.mu.Unlock()
		if tell {
			in.progress()
		}
	}()
	accepted, endAt := in.position(w), in.endAt
	if w != nil {
		endAt = w.endAt
	}
	offset := accepted
	if at != nil {
		offset = *at
	}
	switch {
	case in.broken:
		return nil // an end that comes too late, of input that was not all accepted
	case offset > accepted:
		return &outlog.OffsetError{Offset: offset, End: accepted}
	case in.closed || in.end:
		return nil
	case offset < accepted:
		return &InvalidError{"offset", fmt.Sprintf("%d is before the %d bytes of input accepted already", offset, accepted)}
	case in.terminal != nil && offset == endAt:
		return nil // typed already
	}
	in.end, in.endAt = true, in.accepted
	if w != nil {
		w.endAt = offset
	}
	tell = in.flush()
	return nil
}

// stop ends the input at the leader's end, without waiting.
func (in *input) stop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.fail(true)
	}
	if in.terminal != nil {
		_ = in.file.SetWriteDeadline(time.Unix(1, 0)) // ends a Write that waits
	}
}

// status is what InputStatus tells a writer. What was there before it counts until the program has
// read all of that.
func (in *input) status(w *inputWriter) InputStatus {
	in.mu.Lock()
	defer in.mu.Unlock()
	accepted := in.told
	if accepted >= w.base {
		accepted = w.base + w.told
	}
	return InputStatus{Accepted: accepted, Closed: in.broken}
}

// lost reports whether the program left something of its input.
func (in *input) lost() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.written < in.accepted
}

// offset is how many bytes were accepted.
func (in *input) offset() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.accepted
}

// WriteInput gives the program bytes for its stdin or terminal; offset is the
// place of the first in all input. What was accepted before is ignored. It
// returns how far the input is accepted, also with an error, and waits while
// InputWindow bytes are ahead of the program. Errors: ErrNoInput,
// ErrInputClosed, *outlog.OffsetError for a hole, the context's cause.
func (p *Process) WriteInput(ctx context.Context, offset uint64, data []byte) (accepted uint64, err error) {
	return p.writeInput(ctx, &offset, data)
}

// AppendInput is WriteInput behind all input that was accepted.
func (p *Process) AppendInput(ctx context.Context, data []byte) (accepted uint64, err error) {
	return p.writeInput(ctx, nil, data)
}

func (p *Process) writeInput(ctx context.Context, at *uint64, data []byte) (accepted uint64, err error) {
	if p.input == nil {
		return 0, ErrNoInput
	}
	return p.input.write(ctx, nil, at, data)
}

// CloseInput ends the program's stdin after offset bytes. On a terminal it types
// the end-of-file character, twice where a line was begun, and more input may
// follow. It never waits; repeating it does no harm.
// Errors: ErrNoInput, *outlog.OffsetError past what was accepted, *InvalidError before it.
func (p *Process) CloseInput(offset uint64) error { return p.closeInput(&offset) }

// EndInput is CloseInput after all input that was accepted.
func (p *Process) EndInput() error { return p.closeInput(nil) }

func (p *Process) closeInput(at *uint64) error {
	if p.input == nil {
		return ErrNoInput
	}
	return p.input.closeAt(nil, at)
}

// InputOffset is how many bytes of input were accepted.
func (p *Process) InputOffset() uint64 {
	if p.input == nil {
		return 0
	}
	return p.input.offset()
}
