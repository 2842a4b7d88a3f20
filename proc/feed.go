package proc

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// How accepted input reaches the program. Except for run, everything here is
// called with input.mu held.

// flush writes what goes without waiting, and leaves the rest to the goroutine.
// mu is held. It reports whether progress is to be told.
func (in *input) flush() (tell bool) {
	if in.writing || in.closed {
		return false
	}
	for {
		piece := in.piece()
		if piece == nil {
			return in.finish() || tell
		}
		n, err := writeNow(in.file, piece)
		tell = in.advance(n) || tell
		if err != nil {
			in.fail(true)
			return true
		}
		if n < len(piece) {
			in.writing = true
			in.writer.Go(in.run)
			return tell
		}
	}
}

// writeNow writes what the file takes at once.
func writeNow(file *os.File, p []byte) (n int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var inner error
	err = raw.Write(func(fd uintptr) bool {
		n, inner = unix.Write(int(fd), p)
		return !errors.Is(inner, unix.EINTR)
	})
	if errors.Is(inner, unix.EAGAIN) {
		return 0, err
	}
	return max(n, 0), errors.Join(err, inner)
}

// run writes what was accepted until nothing is left.
func (in *input) run() {
	for {
		in.mu.Lock()
		piece := in.piece()
		if piece == nil || in.closed {
			in.writing = false
			tell := !in.closed && in.finish()
			in.mu.Unlock()
			if tell {
				in.progress()
			}
			return
		}
		in.mu.Unlock()

		n, err := in.file.Write(piece)

		in.mu.Lock()
		tell := !in.closed && in.advance(n)
		if err != nil && !in.closed {
			in.fail(true)
			tell = true
		}
		in.mu.Unlock()
		if tell {
			in.progress()
		}
	}
}

// piece returns what to write next, nil for nothing. An end of file of a
// terminal that is due is typed between the bytes around it.
func (in *input) piece() []byte {
	limit := inputPiece
	if in.end && in.terminal != nil {
		if in.written == in.endAt {
			in.end = false
			in.keys = in.terminal.endOfFile(in.line)
			in.line = nil
		} else if left := in.endAt - in.written; left < uint64(limit) {
			limit = int(left)
		}
	}
	if len(in.keys) > 0 {
		return in.keys
	}
	return in.queue.next(limit)
}

// advance notes that n bytes of the queue are written, and reports whether that
// is worth telling.
func (in *input) advance(n int) bool {
	if n <= 0 {
		return false
	}
	if len(in.keys) > 0 {
		in.keys = in.keys[n:]
		return false
	}
	if in.terminal != nil {
		in.line = keepLine(in.line, in.queue.next(n))
	}
	in.queue.drop(n)
	in.written += uint64(n)
	in.settle(uint64(n))
	in.growPipe()
	close(in.room)
	in.room = make(chan struct{})
	if in.written-in.told < inputStep {
		return false
	}
	in.noteTold()
	return true
}

// growPipe gives a stream of input that proves big a bigger pipe: whoever writes and
// whoever reads are woken up less often.
func (in *input) growPipe() {
	if in.grown || in.terminal != nil || in.written < bigInput {
		return
	}
	in.grown = true
	raw, err := in.file.SyscallConn()
	if err != nil {
		return // closed meanwhile
	}
	_ = raw.Control(func(fd uintptr) {
		// Refused over the user's limit for pipes: then it stays as it is.
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, inputPipe)
	})
}

// finish closes a pipe whose end has come, and reports whether it did.
func (in *input) finish() bool {
	if !in.end || in.terminal != nil || in.written != in.endAt {
		return false
	}
	in.fail(false)
	return true
}

// fail gives up; broken says that nobody reads any more. A terminal's file is
// its process's.
func (in *input) fail(broken bool) {
	in.closed, in.broken = true, broken
	in.queue.clear()
	in.noteTold()
	close(in.room)
	in.room = make(chan struct{})
	if in.terminal == nil {
		// Not blocking: a Write that waits holds no lock and returns.
		in.file.Close()
	}
}
