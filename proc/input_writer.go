package proc

import (
	"context"
	"slices"
)

// inputWriter is one client's part in an input that several may write. It has positions of its own: they
// begin where all input stood when the client came, and go on with what that client sends. What others
// write meanwhile moves none of them, so that a client can say what it sends again. input.mu guards it.
type inputWriter struct {
	id      string // its reader's
	clients int    // attachments with that id: one, none, or those that are being superseded
	base    uint64 // of all input, when it came
	sent    uint64 // bytes taken from it
	written uint64 // of these, given to the program
	told    uint64 // written, as progress was last called
	endAt   uint64 // where it has put an end of file on a terminal; noEnd without
}

// position is how far the writer's input is taken, or all input for a nil writer.
func (in *input) position(w *inputWriter) uint64 {
	if w == nil {
		return in.accepted
	}
	return w.base + w.sent
}

// How many clients' positions an input keeps: of those that are away and have sent nothing, whom it costs
// nothing to begin anew, and of all that are away.
const (
	maxIdleWriters = 64
	maxWriters     = 1024
)

// join returns the writer with an id, which may have been there before, or a new one; "" is nobody's.
func (in *input) join(id string) *inputWriter {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, w := range in.writers {
		if w.id == id && id != "" {
			w.clients++
			return w
		}
	}
	if n := len(in.writers); n >= maxIdleWriters {
		i := slices.IndexFunc(in.writers, func(w *inputWriter) bool {
			return w.clients == 0 && (w.sent == 0 || n >= maxWriters)
		})
		if i >= 0 {
			in.writers = slices.Delete(in.writers, i, i+1)
		}
	}
	w := &inputWriter{id: id, clients: 1, base: in.accepted, endAt: noEnd}
	in.writers = append(in.writers, w)
	return w
}

// leave notes that a client has gone, for good or to come back.
func (in *input) leave(w *inputWriter, forGood bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if w.clients--; w.clients == 0 && (forGood || w.id == "") {
		in.writers = slices.DeleteFunc(in.writers, func(other *inputWriter) bool { return other == w })
	}
}

// share is input in the queue that one writer has sent; nil is nobody.
type share struct {
	writer *inputWriter
	bytes  uint64
}

// maxShares bounds what clients can make an input remember by taking turns.
const maxShares = 4096

// credits reports whether a writer's input can be noted. mu is held.
func (in *input) credits(w *inputWriter) bool {
	n := len(in.shares)
	return n < maxShares || in.shares[n-1].writer == w
}

// credit notes whose the last n bytes of the queue are. mu is held.
func (in *input) credit(w *inputWriter, n int) {
	if n == 0 {
		return
	}
	if w != nil {
		w.sent += uint64(n)
	}
	if last := len(in.shares) - 1; last >= 0 && in.shares[last].writer == w {
		in.shares[last].bytes += uint64(n)
		return
	}
	in.shares = append(in.shares, share{w, uint64(n)})
}

// settle notes that the program has the first n bytes of the queue. mu is held.
func (in *input) settle(n uint64) {
	for n > 0 && len(in.shares) > 0 {
		first := &in.shares[0]
		part := min(n, first.bytes)
		if first.writer != nil {
			first.writer.written += part
		}
		first.bytes -= part
		n -= part
		if first.bytes == 0 {
			in.shares = in.shares[1:]
		}
	}
	if len(in.shares) == 0 {
		in.shares = nil
	}
}

// noteTold notes that progress is about to be told. mu is held.
func (in *input) noteTold() {
	in.told = in.written
	for _, w := range in.writers {
		w.told = w.written
	}
}

// WriteInput is Process.WriteInput with positions of this attachment's own: they begin at InputOffset and
// count what it writes, whoever else writes meanwhile. The reader id keeps them while it is away.
func (a *Attachment) WriteInput(ctx context.Context, offset uint64, data []byte) (accepted uint64, err error) {
	if a.process.input == nil {
		return 0, ErrNoInput
	}
	return a.process.input.write(ctx, a.writer, &offset, data)
}

// CloseInput is Process.CloseInput with positions of this attachment's own. The end comes behind what others
// have written, too.
func (a *Attachment) CloseInput(offset uint64) error {
	if a.process.input == nil {
		return ErrNoInput
	}
	return a.process.input.closeAt(a.writer, &offset)
}

// InputOffset is how far this attachment's input is accepted.
func (a *Attachment) InputOffset() uint64 {
	in := a.process.input
	if in == nil {
		return 0
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.position(a.writer)
}
