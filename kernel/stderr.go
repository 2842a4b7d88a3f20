package kernel

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// tailSize is how many bytes of a kernel's own stderr are kept.
const tailSize = 8 << 10

// stderrTail drains a kernel's stderr and keeps its end. ipykernel copies there
// whatever is written to descriptors 1 and 2, so somebody has to read it, and it
// is where a kernel that does not start says why.
type stderrTail struct {
	read *os.File
	done chan struct{} // the drain has ended

	mu   sync.Mutex // protects the following
	tail []byte
}

// newStderrTail starts draining and returns the end for the kernel, which the
// caller closes after the start.
func newStderrTail() (*stderrTail, *os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("making a pipe for stderr: %w", err)
	}
	t := &stderrTail{read: read, done: make(chan struct{})}
	go t.drain()
	return t, write, nil
}

// drain ends when nobody has the pipe open any more, or on close.
func (t *stderrTail) drain() {
	defer close(t.done)
	buf := make([]byte, tailSize)
	for {
		n, err := t.read.Read(buf)
		t.keep(buf[:n])
		if err != nil {
			return
		}
	}
}

func (t *stderrTail) keep(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tail = append(t.tail, p...)
	if over := len(t.tail) - tailSize; over > 0 {
		t.tail = append(t.tail[:0], t.tail[over:]...)
	}
}

// text waits a moment for the pipe's end, which a dead kernel without children
// has reached, and returns the last lines as UTF-8.
func (t *stderrTail) text() string {
	select {
	case <-t.done:
	case <-time.After(100 * time.Millisecond):
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.tail), "\uFFFD")
}

// close ends the drain. Processes that still have the other end get SIGPIPE.
func (t *stderrTail) close() {
	_ = t.read.Close() // the end of a pipe that is of no interest any more
	<-t.done
}
