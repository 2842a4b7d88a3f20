package outlog

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	minChunk = 1 << minChunkBits // 4 KiB
	maxChunk = 1 << maxChunkBits // 256 KiB

	minChunkBits = 12
	maxChunkBits = 18
)

// chunk is a piece of the log. The bytes before n never change once they are
// committed, so that readers use them without a lock while the writer fills
// the rest. It goes back to the pool when the log and all readers let go.
type chunk struct {
	refs   atomic.Int32
	offset uint64 // of buf[0] in the stream
	n      int    // bytes committed; Log.mu protects it, and buf's length
	buf    []byte // the writer may fill its length; the memory is its capacity
}

// pools holds chunks by the power of two of their size, without clearing them.
var pools [maxChunkBits + 1]sync.Pool

// newChunk returns a chunk of the given size, a power of two, with one reference.
func newChunk(size int, offset uint64) *chunk {
	c, ok := pools[bits.Len(uint(size))-1].Get().(*chunk)
	if !ok {
		c = &chunk{buf: make([]byte, size)}
	}
	c.offset, c.n = offset, 0
	c.refs.Store(1)
	return c
}

// end is the offset after the last committed byte.
func (c *chunk) end() uint64 { return c.offset + uint64(c.n) }

func (c *chunk) full() bool { return c.n == len(c.buf) }

// release gives up one reference.
func (c *chunk) release() {
	switch refs := c.refs.Add(-1); {
	case refs < 0:
		panic("outlog: chunk released too often")
	case refs > 0:
		return
	}
	size := cap(c.buf)
	c.buf = c.buf[:size]
	if size >= minChunk && size <= maxChunk && size&(size-1) == 0 {
		pools[bits.Len(uint(size))-1].Put(c)
	}
}

// seal returns a chunk with the same bytes that takes no more of them, and no
// more memory than twice what they need.
func (c *chunk) seal() *chunk {
	if c.n > cap(c.buf)/2 {
		c.buf = c.buf[:c.n]
		return c
	}
	small := &chunk{offset: c.offset, n: c.n, buf: make([]byte, c.n)}
	copy(small.buf, c.buf)
	small.refs.Store(1)
	c.release()
	return small
}

// Chunk is a piece of a stream as a reader gets it.
type Chunk struct {
	// Offset is the place of Data's first byte in the stream.
	Offset uint64
	// Gap counts the bytes right before Offset that were dropped.
	Gap uint64
	// Data is to be read only, and only until Release. It is empty where a
	// gap reaches up to the exit mark or the end.
	Data []byte

	from *chunk
}

// Release gives Data back, exactly once. A chunk that is never released costs
// the garbage collector, nothing else.
func (c Chunk) Release() {
	if c.from != nil {
		c.from.release()
	}
}
