package outlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// DefaultLimit is how many bytes a log keeps unless told otherwise.
	DefaultLimit = 4 << 20
	// MinLimit is the least that a log keeps.
	MinLimit = 32 << 10

	// unacknowledged is how much of what was sent to a reader that never
	// acknowledges counts as not received yet.
	unacknowledged = 1 << 20
	// silence is how long a reader has not acknowledged, since it was sent its first
	// byte, that counts as one that never does. Before that nothing says which kind it
	// is, and what is on its way may be lost with its connection.
	silence = 500 * time.Millisecond
)

// ErrFinished is returned to a writer that goes on after Finish.
var ErrFinished = errors.New("outlog: stream has ended")

// Options describe a log. The zero value is a log with the default limit.
type Options struct {
	// Limit is how many bytes the log keeps: 0 is DefaultLimit, less than
	// MinLimit is MinLimit.
	Limit int
	// Head is how many of the stream's first bytes are never dropped, on top
	// of Limit.
	Head int
	// Budget is shared with other logs; nil is none.
	Budget *Budget
}

// phase tells how a log treats bytes for which it has no room.
type phase int

const (
	phaseOpen     phase = iota // they wait
	phaseDraining              // they enter over the limit: the leader has ended
	phaseMarked                // they push out the oldest byte after the mark
)

// Log is the log of one byte stream. Reserve, Commit, Write, Mark and Finish
// belong to its one writer; everything else may be called from anywhere.
type Log struct {
	head   uint64
	budget *Budget
	space  chan struct{} // capacity 1: a writer that waits may look again

	// mu protects the following, and is never held while anything blocks.
	mu       sync.Mutex
	limit    int
	chunks   []*chunk // by offset; there may be holes between them
	size     int      // bytes of memory in chunks
	end      uint64   // the next byte's offset
	phase    phase
	mark     uint64 // valid in phaseMarked
	finished bool
	ended    bool // counted among the budget's ended logs; Budget.mu protects it too
	waiting  bool // the writer waits for space
	readers  []*Reader

	discarded bool
}

// New returns an empty log.
func New(o Options) *Log {
	limit := o.Limit
	if limit == 0 {
		limit = DefaultLimit
	}
	return &Log{
		limit:  max(limit, MinLimit),
		head:   uint64(max(o.Head, 0)),
		budget: o.Budget,
		space:  make(chan struct{}, 1),
	}
}

// Reserve returns room for the stream's next bytes, at least one; what was
// written there enters the log with Commit. It blocks while the log is full of
// bytes that a lossless reader has not acknowledged, and fails with ErrFinished
// or the context's cause.
func (l *Log) Reserve(ctx context.Context) ([]byte, error) {
	for {
		buf, stall, err := l.tryReserve()
		if buf != nil || err != nil {
			return buf, err
		}
		if err := l.awaitSpace(ctx, stall); err != nil {
			return nil, err
		}
	}
}

// tryReserve returns no buffer when the writer has to wait: for at most stall,
// where that is not 0.
func (l *Log) tryReserve() (buf []byte, stall time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = false
	if l.finished {
		return nil, 0, ErrFinished
	}
	if n := len(l.chunks); n > 0 && !l.chunks[n-1].full() {
		c := l.chunks[n-1]
		return c.buf[c.n:], 0, nil
	}
	limit := l.currentLimit()
	size := l.nextSize(limit)
	for l.size+size > limit+int(l.head) {
		if l.evict(limit) {
			continue
		}
		if l.phase != phaseOpen {
			break
		}
		stall, again := l.stalled(time.Now(), limit)
		if again {
			continue
		}
		l.waiting = true
		return nil, stall, nil
	}
	c := newChunk(size, l.end)
	l.chunks = append(l.chunks, c)
	l.account(size)
	return c.buf, 0, nil
}

// awaitSpace waits until the log may have room again.
func (l *Log) awaitSpace(ctx context.Context, stall time.Duration) error {
	var expired <-chan time.Time
	if stall > 0 {
		timer := time.NewTimer(stall)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-l.space:
	case <-expired:
	case <-ctx.Done():
		return fmt.Errorf("waiting for room in the log: %w", context.Cause(ctx))
	}
	return nil
}

// Commit adds the first n bytes of the last reservation to the stream.
func (l *Log) Commit(n int) {
	if n == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.chunks[len(l.chunks)-1]
	if n < 0 || n > len(c.buf)-c.n {
		panic("outlog: commit of more than was reserved")
	}
	c.n += n
	l.end += uint64(n)
	for _, r := range l.readers {
		r.wake()
	}
}

// Write copies p into the log, waiting for room as Reserve does.
func (l *Log) Write(ctx context.Context, p []byte) (int, error) {
	done := 0
	for done < len(p) {
		buf, err := l.Reserve(ctx)
		if err != nil {
			return done, err
		}
		n := copy(buf, p[done:])
		l.Commit(n)
		done += n
	}
	return done, nil
}

// Drain lets bytes enter over the limit until Mark: the leader has ended, and
// what it left in its pipe must come before the mark. Unlike the writer's other
// methods it may be called from anywhere.
func (l *Log) Drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase == phaseOpen {
		l.phase = phaseDraining
		l.notifyWriter()
	}
}

// Mark puts the exit mark at the stream's present end. Only the first call counts.
func (l *Log) Mark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.markLocked()
}

func (l *Log) markLocked() {
	if l.phase == phaseMarked {
		return
	}
	l.phase = phaseMarked
	l.mark = l.end
	l.seal()
	for _, r := range l.readers {
		r.wakeEnd()
	}
}

// seal makes the next byte start a new chunk, and frees room not used.
func (l *Log) seal() {
	n := len(l.chunks)
	if n == 0 || l.chunks[n-1].full() {
		return
	}
	last := l.chunks[n-1]
	if last.n == 0 {
		l.remove(n - 1)
		return
	}
	before := cap(last.buf)
	sealed := last.seal()
	l.account(cap(sealed.buf) - before)
	l.chunks[n-1] = sealed
}

// Finish ends the stream, which marks it too where that was not done. Only the
// first call counts.
func (l *Log) Finish() {
	l.mu.Lock()
	if l.finished {
		l.mu.Unlock()
		return
	}
	l.finished = true
	l.markLocked()
	l.seal()
	for _, r := range l.readers {
		r.wakeEnd()
	}
	ends := l.placeMoved()
	l.mu.Unlock()
	l.budget.end(l, ends)
}

// Discard is for a log that nobody will attach to any more: it frees what no
// lossless reader holds, and keeps next to nothing of what is still written.
func (l *Log) Discard() {
	l.budget.forget(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit, l.head, l.discarded = MinLimit, 0, true
	l.placeMoved()
}

// State is what there is to know about a log without reading it.
type State struct {
	// Start is the offset of the oldest byte kept, End that of the next one.
	Start, End uint64
	// Mark is the exit mark's offset, where Marked.
	Mark   uint64
	Marked bool
	// Finished tells that the stream has ended at End.
	Finished bool
	// Memory is how many bytes of memory the log holds.
	Memory int
}

// State returns the log's present state.
func (l *Log) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := State{Start: l.end, End: l.end, Mark: l.mark, Marked: l.phase == phaseMarked,
		Finished: l.finished, Memory: l.size}
	if len(l.chunks) > 0 {
		s.Start = l.chunks[0].offset
	}
	return s
}
