package proc

import "sync"

// inputBlock is a block of queued input.
type inputBlock [inputPiece]byte

// inputBlocks are blocks that nobody uses at the moment.
var inputBlocks = sync.Pool{New: func() any { return new(inputBlock) }}

// inputQueue holds input that was accepted and is not written yet, in blocks that
// are used again: a stream of input leaves no garbage behind. What next returned
// may be read while more is added, and until it is dropped.
type inputQueue struct {
	runs []inputRun // none is empty
}

// inputRun is input in one piece.
type inputRun struct {
	data  []byte
	block *inputBlock // that data is part of; nil for a caller's own data
}

// empty reports whether nothing is left.
func (q *inputQueue) empty() bool { return len(q.runs) == 0 }

// add puts a copy of data at the end.
func (q *inputQueue) add(data []byte) {
	if len(q.runs) > 0 {
		if last := &q.runs[len(q.runs)-1]; last.block != nil {
			n := min(len(data), cap(last.data)-len(last.data))
			last.data = append(last.data, data[:n]...)
			data = data[n:]
		}
	}
	for len(data) > 0 {
		block := inputBlocks.Get().(*inputBlock)
		n := copy(block[:], data)
		q.runs = append(q.runs, inputRun{block[:n], block})
		data = data[n:]
	}
}

// lend puts data itself at the end. It is not to be changed.
func (q *inputQueue) lend(data []byte) {
	if len(data) > 0 {
		q.runs = append(q.runs, inputRun{data: data})
	}
}

// next returns what comes first, as far as it is in one piece and at most limit
// bytes; nil where there is nothing.
func (q *inputQueue) next(limit int) []byte {
	if q.empty() {
		return nil
	}
	data := q.runs[0].data
	return data[:min(len(data), limit)]
}

// drop removes n bytes that next has returned, and of which nobody reads any more.
func (q *inputQueue) drop(n int) {
	first := &q.runs[0]
	if first.data = first.data[n:]; len(first.data) > 0 {
		return
	}
	if first.block != nil {
		inputBlocks.Put(first.block)
	}
	if q.runs = q.runs[1:]; len(q.runs) == 0 {
		q.runs = nil
	}
}

// clear removes everything. Somebody may still be reading what next has returned, so
// its block is not used again.
func (q *inputQueue) clear() { q.runs = nil }
