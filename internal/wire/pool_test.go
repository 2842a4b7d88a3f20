package wire

import "testing"

func TestPool(t *testing.T) {
	for _, n := range []int{0, 1, 256, 257, 4096, 1 << 20, 1<<20 + 1, 1 << 23, 1<<23 + 1} {
		buf := Pool.Get(n)
		if len(*buf) != n {
			t.Errorf("Get(%d) has length %d", n, len(*buf))
		}
		if size := cap(*buf); n <= 1<<maxShift && (size < 1<<minShift || size&(size-1) != 0 || n > 1<<minShift && size >= 2*n) {
			t.Errorf("Get(%d) has capacity %d, want the next power of two", n, size)
		}
		*buf = (*buf)[:0]
		Pool.Put(buf)
	}
	// A stranger's buffer must never come back from a class it is too small for.
	stranger := make([]byte, 300)
	Pool.Put(&stranger)
	if buf := Pool.Get(512); cap(*buf) < 512 {
		t.Errorf("Get(512) has capacity %d", cap(*buf))
	}
}
