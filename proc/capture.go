package proc

import (
	"context"
	"fmt"
	"slices"

	"guestd.internal/internal/outlog"
)

// Captured is the first and the last part of a stream up to the leader's end.
type Captured struct {
	Stream Stream
	// Head and Tail are the stream's first and last bytes; Tail follows Head
	// directly where Gap is 0.
	Head, Tail []byte
	// Gap counts the bytes left out between them, Total all of the stream's.
	Gap, Total uint64
}

// Result is a process's whole outcome.
type Result struct {
	Process *Process
	Exit    Exit
	Outputs []Captured
	// InputClosed says that the program ended or closed its stdin before it was
	// given all of it.
	InputClosed bool
}

// captureOptions say what of the output is to be there when the leader has ended.
type captureOptions struct {
	limit int // bytes a stream: the first half of it, and the last
}

func (c *captureOptions) head() int { return c.limit / 2 }
func (c *captureOptions) tail() int { return c.limit - c.limit/2 }

// apply makes a log keep what will be captured, without any reader.
func (c *captureOptions) apply(o *outlog.Options) {
	if c == nil {
		return
	}
	if o.Limit == 0 {
		o.Limit = outlog.DefaultLimit
	}
	o.Head = c.head()
	o.Limit = max(o.Limit, 2*c.tail()) // a log drops whole chunks, up to a quarter of it
}

// StartCaptured starts a process whose output Captured returns: at most limit
// bytes of each stream, the first half and the last. It gives it stdin, which nil
// leaves at spec.Stdin. The process is never held back. Errors are those of Start.
func (t *Table) StartCaptured(ctx context.Context, spec Spec, stdin []byte, limit int) (*Process, error) {
	if limit < 0 {
		return nil, &InvalidError{"limit", "is negative"}
	}
	spec.Stdin = spec.Stdin || stdin != nil
	p, _, err := t.start(ctx, spec, &captureOptions{limit: limit}, nil)
	if err != nil {
		return nil, err
	}
	if stdin != nil {
		p.input.feed(stdin)
	}
	return p, nil
}

// Captured waits for the end of a process that StartCaptured started and returns
// its outcome, every time that it is called. When the context ends first the process
// goes on, unless Spec.KillOnDisconnect, and the error is the cause.
func (p *Process) Captured(ctx context.Context) (*Result, error) {
	select {
	case <-p.settled:
	case <-ctx.Done():
		if p.spec.KillOnDisconnect {
			p.terminate()
		}
		return nil, fmt.Errorf("waiting for process %s: %w", p.id, context.Cause(ctx))
	}
	result := &Result{Process: p}
	p.mu.Lock()
	result.Exit, result.Outputs = *p.exit, slices.Clone(p.captures)
	p.mu.Unlock()
	slices.SortFunc(result.Outputs, func(a, b Captured) int { return int(a.Stream) - int(b.Stream) })
	if p.input != nil {
		result.InputClosed = p.input.lost()
	}
	return result, nil
}

// DropCaptured frees the output that Captured returns, which tells it as a gap
// from now on. It happens by itself to the oldest when all captures together hold
// more than 32 MiB, and when the process is forgotten.
func (p *Process) DropCaptured() { p.table.captures.drop(p) }

// Capture is StartCaptured and Captured for a caller who asks once.
func (t *Table) Capture(ctx context.Context, spec Spec, stdin []byte, limit int) (*Result, error) {
	p, err := t.StartCaptured(ctx, spec, stdin, limit)
	if err != nil {
		return nil, err
	}
	defer p.DropCaptured()
	return p.Captured(ctx)
}

// capture copies what is wanted of a stream that has just got its exit mark,
// before anything after the mark is read and could push it out.
func (p *Process) capture(c *captureOptions, out *output) {
	if c == nil {
		return
	}
	p.table.captures.add(p, c.read(out))
}

func (c *Captured) drop() { c.Head, c.Tail, c.Gap = nil, nil, c.Total }

// read returns a stream's head and tail up to the exit mark.
func (c *captureOptions) read(out *output) Captured {
	total := out.log.State().Mark
	captured := Captured{Stream: out.stream, Total: total}
	head := min(total, uint64(c.head()))
	tail := total - min(total-head, uint64(c.tail()))
	r, err := out.log.Attach(outlog.ReaderOptions{Mode: outlog.Following})
	if err != nil {
		return captured // not reached: offset 0 is in every stream
	}
	defer r.Close()
	for {
		chunk, status := r.Next(maxPiece)
		if status != outlog.Ready {
			break
		}
		captured.Head = append(captured.Head, part(chunk, 0, head)...)
		captured.Tail = append(captured.Tail, part(chunk, tail, total)...)
		chunk.Release()
	}
	captured.Gap = total - uint64(len(captured.Head)+len(captured.Tail))
	return captured
}

// part returns the bytes of a chunk between two offsets.
func part(chunk outlog.Chunk, from, to uint64) []byte {
	end := chunk.Offset + uint64(len(chunk.Data))
	from, to = max(from, chunk.Offset), min(to, end)
	if from >= to {
		return nil
	}
	return chunk.Data[from-chunk.Offset : to-chunk.Offset]
}
