package wire

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
)

// The pool's smallest and largest buffers, as powers of two: what is smaller
// shares the smallest, what is larger is left to the garbage collector. The
// largest holds the largest message that guestd takes.
const (
	minShift = 8
	maxShift = 23
)

// bufferPool keeps buffers of each power of two from 256 B to 8 MiB.
type bufferPool struct {
	classes [maxShift - minShift + 1]sync.Pool
}

// PieceSize is how many bytes of a stream one message is to carry: as many as fit
// a quarter of a mebibyte with what a message has around them, so that they come
// to lie in a buffer of that size and not of twice as much.
const PieceSize = 256<<10 - 64

// Pool is the pool for grpc's experimental.BufferPool and WithBufferPool options,
// and for Codec.
// A buffer from it holds whatever was in it before.
var Pool mem.BufferPool = &bufferPool{}

// class is the index of the smallest class that holds n bytes; it is out of
// range where none does.
func class(n int) int {
	if n <= 1<<minShift {
		return 0
	}
	return bits.Len(uint(n-1)) - minShift
}

// Get implements mem.BufferPool.
func (p *bufferPool) Get(n int) *[]byte {
	c := class(n)
	if c >= len(p.classes) {
		buf := make([]byte, n)
		return &buf
	}
	if buf, ok := p.classes[c].Get().(*[]byte); ok {
		*buf = (*buf)[:n]
		return buf
	}
	buf := make([]byte, n, 1<<(c+minShift))
	return &buf
}

// Put implements mem.BufferPool. A buffer that Get did not make is dropped,
// unless it happens to have the size of one.
func (p *bufferPool) Put(buf *[]byte) {
	size := cap(*buf)
	if size < 1<<minShift || size > 1<<maxShift || size&(size-1) != 0 {
		return
	}
	poison((*buf)[:size])
	p.classes[class(size)].Put(buf)
}
