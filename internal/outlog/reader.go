package outlog

import (
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// Now is the offset to attach at for what comes from now on.
	Now = math.MaxUint64
	// Place is the offset to attach at where the reader with the same id has
	// its place, and 0 without one.
	Place = math.MaxUint64 - 1
)

// Mode is what a reader does to the writer.
type Mode int

const (
	// Lossless readers hold the writer back rather than lose a byte.
	Lossless Mode = iota
	// Following readers hold nobody back, and are told what they missed.
	Following
)

// Status tells what Next found.
type Status int

const (
	// Ready comes with a chunk.
	Ready Status = iota
	// Waiting means that there is nothing yet; Wake tells when to look again.
	Waiting
	// AtMark means that all up to the exit mark was delivered; PassMark goes on.
	AtMark
	// Ended means that all of the stream was delivered.
	Ended
	// Superseded means that a reader with the same id took this one's place.
	Superseded
	// Stalled means that the reader held the writer back for too long.
	Stalled
	// Closed means that Close was called, or that the grace is over.
	Closed
)

// OffsetError is returned for an offset beyond what there is.
type OffsetError struct {
	Offset, End uint64
}

func (e *OffsetError) Error() string {
	return fmt.Sprintf("offset %d is past the end at %d", e.Offset, e.End)
}

// ReaderOptions say who reads, from where, and how.
type ReaderOptions struct {
	// ID makes a reader one that may come back: attaching with the id of a
	// reader that is attached or detached supersedes it and inherits its
	// place. The empty id is nobody's.
	ID string
	// From is the offset of the first byte wanted, Now or Place.
	From uint64
	Mode Mode
	// Stall is how long this reader may hold back a writer without letting go
	// of a byte; then it loses its place. 0 is for ever.
	Stall time.Duration
	// Wake gets a value, never blocking, when Next may have something after
	// it said Waiting. Several logs may share one channel of capacity 1.
	Wake chan<- struct{}
	// QuietEnd keeps the mark and the end from waking, for an owner of
	// several streams who wakes the reader once all of them are there.
	QuietEnd bool
}

// Reader reads one log. Next and PassMark belong to one goroutine; the other
// methods may be called from anywhere.
type Reader struct {
	log      *Log
	id       string
	stall    time.Duration
	quietEnd bool

	// Log.mu protects the following.
	wakeups    chan<- struct{}
	lossless   bool
	pos        uint64 // next byte to deliver
	acked      uint64
	acks       bool // has acknowledged at least once
	firstSent  time.Time
	armed      bool // Next said Waiting
	passedMark bool
	gone       Status // Superseded, Stalled or Closed, else 0
	heldSince  time.Time
	grace      *time.Timer
}

// Attach adds a reader. It fails with *OffsetError when From is past the end.
func (l *Log) Attach(o ReaderOptions) (*Reader, error) {
	l.mu.Lock()
	r, ends, err := l.attach(o)
	l.mu.Unlock()
	l.budget.end(l, ends)
	return r, err
}

func (l *Log) attach(o ReaderOptions) (r *Reader, ends bool, err error) {
	old := l.find(o.ID)
	switch {
	case o.From == Now:
		o.From = l.end
	case o.From == Place && old == nil:
		o.From = 0
	case o.From == Place:
		o.From = old.place(l.limit)
	}
	if o.From > l.end {
		return nil, false, &OffsetError{Offset: o.From, End: l.end}
	}
	r = &Reader{log: l, id: o.ID, stall: o.Stall, quietEnd: o.QuietEnd, wakeups: o.Wake,
		lossless: o.Mode == Lossless, pos: o.From, acked: o.From}
	if old != nil {
		r.acks = old.acks
		old.leave(Superseded)
	}
	l.readers = append(l.readers, r)
	return r, l.placeMoved(), nil
}

// find returns the reader with an id that is not empty.
func (l *Log) find(id string) *Reader {
	if id == "" {
		return nil
	}
	for _, r := range l.readers {
		if r.id == id {
			return r
		}
	}
	return nil
}

// Next returns what comes next in the stream, at most limit bytes of it. It
// never blocks, and a chunk never reaches across the exit mark.
func (r *Reader) Next(limit int) (Chunk, Status) {
	l := r.log
	l.mu.Lock()
	c, status := r.next(limit)
	ends := false
	if status == Ready && r.firstSent.IsZero() {
		r.firstSent = time.Now()
	}
	if status == Ready && r.lossless && !r.acks {
		ends = r.moved() // sending lets go of bytes
	}
	l.mu.Unlock()
	l.budget.end(l, ends)
	return c, status
}

func (r *Reader) next(limit int) (Chunk, Status) {
	l := r.log
	r.armed = false
	switch {
	case r.gone != 0:
		return Chunk{}, r.gone
	case l.phase == phaseMarked && r.pos >= l.mark && !r.passedMark:
		return Chunk{}, AtMark
	case r.pos >= l.end && l.finished:
		return Chunk{}, Ended
	case r.pos >= l.end:
		r.armed = true
		return Chunk{}, Waiting
	}
	stop := l.end
	if l.phase == phaseMarked && r.pos < l.mark {
		stop = l.mark
	}
	i, _ := slices.BinarySearchFunc(l.chunks, r.pos, func(c *chunk, pos uint64) int {
		if c.end() <= pos {
			return -1
		}
		return 1
	})
	if i == len(l.chunks) || l.chunks[i].offset >= stop {
		gap := stop - r.pos
		r.pos = stop
		return Chunk{Offset: stop, Gap: gap}, Ready
	}
	c := l.chunks[i]
	from := max(r.pos, c.offset)
	to := min(from+uint64(max(limit, 1)), c.end(), stop)
	gap := from - r.pos
	r.pos = to
	c.refs.Add(1)
	return Chunk{Offset: from, Gap: gap, Data: c.buf[from-c.offset : to-c.offset], from: c}, Ready
}

// Offset is the place of the next byte to deliver.
func (r *Reader) Offset() uint64 {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return r.pos
}

// PassMark lets Next go on past the exit mark.
func (r *Reader) PassMark() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.passedMark = true
}

// Acknowledges says that the reader is one that acknowledges, before it has anything
// to acknowledge.
func (r *Reader) Acknowledges() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.acks = true
}

// Ack says that all bytes before offset have arrived for good. Acknowledging
// the offset attached at says that the reader is one that acknowledges; half a second
// after the first byte without any, all but the last 1 MiB sent counts as acknowledged. An older
// offset than before changes nothing; *OffsetError is for one not sent yet.
func (r *Reader) Ack(offset uint64) error {
	l := r.log
	l.mu.Lock()
	if offset > r.pos {
		defer l.mu.Unlock()
		return &OffsetError{Offset: offset, End: r.pos}
	}
	ends := false
	if r.gone == 0 {
		r.acks = true
		if offset > r.acked {
			r.acked = offset
			ends = r.moved()
		}
	}
	l.mu.Unlock()
	l.budget.end(l, ends)
	return nil
}

// Detach says that the connection broke: nobody calls Next any more, and the
// reader keeps its place until grace has passed or one with its id attaches.
func (r *Reader) Detach(grace time.Duration) {
	if grace <= 0 || r.id == "" {
		r.Close()
		return
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.gone == 0 && r.grace == nil {
		if !r.silent(time.Now()) {
			r.acks = true // what it would have acknowledged may be on its way to nowhere
		}
		r.wakeups = nil
		r.grace = time.AfterFunc(grace, r.Close)
	}
}

// Close gives up the reader's place.
func (r *Reader) Close() {
	l := r.log
	l.mu.Lock()
	ends := r.leave(Closed) && l.placeMoved()
	l.mu.Unlock()
	l.budget.end(l, ends)
}

// The rest is called with Log.mu held.

// leave takes the reader out of the log, once.
func (r *Reader) leave(why Status) bool {
	if r.gone != 0 {
		return false
	}
	r.gone = why
	if r.grace != nil {
		r.grace.Stop()
	}
	r.log.readers = slices.DeleteFunc(r.log.readers, func(other *Reader) bool { return other == r })
	r.armed = true // whoever sits between two calls of Next is to learn of it
	r.wake()
	return true
}

// place is the offset before which the reader holds nothing.
func (r *Reader) place(limit int) uint64 {
	if !r.silent(time.Now()) {
		return r.acked
	}
	window := uint64(min(unacknowledged, limit/2))
	if r.pos > window {
		return max(r.acked, r.pos-window)
	}
	return r.acked
}

// silent says whether the reader counts as one that never acknowledges.
func (r *Reader) silent(now time.Time) bool {
	return !r.acks && !r.firstSent.IsZero() && now.Sub(r.firstSent) >= silence
}

// moved is called when the reader has let go of bytes.
func (r *Reader) moved() (ends bool) {
	r.heldSince = time.Time{}
	return r.log.placeMoved()
}

// wake tells a reader that waits to look again.
func (r *Reader) wake() {
	if !r.armed || r.wakeups == nil {
		return
	}
	r.armed = false
	select {
	case r.wakeups <- struct{}{}:
	default:
	}
}

// wakeEnd wakes for the mark and the end of the stream.
func (r *Reader) wakeEnd() {
	if !r.quietEnd {
		r.wake()
	}
}
