package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// MaxReconnectGrace is the longest ReaderOptions.ReconnectGrace.
	MaxReconnectGrace = 24 * time.Hour

	// unacknowledged is how many bytes of what was sent last count as not having
	// arrived while a reader acknowledges nothing; half of the log's limit at most.
	unacknowledged = 1 << 20
	// silence is for how long a reader that may come back acknowledges nothing, from
	// its first event on, before it counts as one that never does. Until then all that
	// was sent may be lost with its connection.
	silence = 500 * time.Millisecond
	// maxAbsent bounds the places that a log keeps for readers that are gone.
	maxAbsent = 64
	maxID     = 128 // characters of a reader's or request's id
)

var (
	// ErrReaderClosed says that Next was called on a closed reader.
	ErrReaderClosed = errors.New("the event reader is closed")
	// ErrSuperseded ends a reader whose id has attached again.
	ErrSuperseded = errors.New("a newer reader with the same id has taken over")
	// ErrStalled ends a reader that held the kernel back for its StallTimeout.
	ErrStalled = errors.New("the reader has stood still for too long")
)

// NumberError says that an event's number is past what there is.
type NumberError struct {
	Number uint64
	Next   uint64 // the greatest that would do
}

// Error implements error.
func (e *NumberError) Error() string {
	return fmt.Sprintf("event number %d is past %d", e.Number, e.Next)
}

// ReaderOptions say how an execution's events are read. The zero value reads all
// of them.
type ReaderOptions struct {
	// ID is at most 128 printable ASCII characters, under which a reader may come
	// back; "" is nobody's.
	ID string
	// From is the number of the first event wanted. 0 is where a reader of the
	// same id has its place, and 1 for a new one.
	From uint64
	// StallTimeout is how long the reader may stand still while the log is full; 0
	// is for ever.
	StallTimeout time.Duration
	// ReconnectGrace is how long Close keeps the place, up to MaxReconnectGrace;
	// nil is Config's.
	ReconnectGrace *time.Duration
}

func (o *ReaderOptions) check() error {
	switch {
	case !isPrintable(o.ID):
		return &InvalidError{Field: "reader.reader_id", Problem: "not at most 128 printable ASCII characters"}
	case o.StallTimeout < 0:
		return &InvalidError{Field: "reader.stall_timeout", Problem: "negative"}
	case o.ReconnectGrace != nil && (*o.ReconnectGrace < 0 || *o.ReconnectGrace > MaxReconnectGrace):
		return &InvalidError{Field: "reader.reconnect_grace", Problem: fmt.Sprintf("not between 0 and %v", MaxReconnectGrace)}
	}
	return nil
}

// isPrintable says whether an id, which may be empty, is one of the API's.
func isPrintable(id string) bool {
	return len(id) <= maxID && !strings.ContainsFunc(id, func(c rune) bool { return c < ' ' || c > '~' })
}

// EventReader follows an execution's events. While it is open it holds the
// kernel back when it is too far behind, so it must be read or closed. Its
// methods may be called by one goroutine at a time, Close by any.
type EventReader struct {
	log   *eventLog
	id    string
	stall time.Duration
	grace time.Duration
	first uint64
	left  chan struct{} // closed when it is not one of the log's readers any more

	// The log's mutex protects the following.
	sent      holder // up to here all has been sent
	pending   holder // up to here it has been handed out, which the next call of Next confirms
	acks      bool   // it has acknowledged at least once
	acked     holder
	firstSent time.Time // when it was handed its first event; zero before
	heldSince time.Time // since when it holds the writer back; zero when it does not
	why       error     // why left is closed
}

// attach adds a reader. Errors are *InvalidError and *NumberError.
func (l *eventLog) attach(o ReaderOptions) (*EventReader, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.From > l.next {
		return nil, &NumberError{Number: o.From, Next: l.next}
	}
	r := &EventReader{log: l, id: o.ID, stall: o.StallTimeout, grace: l.grace, left: make(chan struct{})}
	if o.ReconnectGrace != nil {
		r.grace = *o.ReconnectGrace
	}
	r.inherit(o.From)
	r.first = r.sent.next
	l.readers[r] = struct{}{}
	delete(l.absent, "") // the place of somebody who may come is taken
	return r, nil
}

// inherit gives a reader the place that its id has, and where it is to begin.
func (r *EventReader) inherit(from uint64) {
	l := r.log
	place := holder{next: 1}
	if r.id != "" {
		if gone, ok := l.absent[r.id]; ok {
			place, r.acks = gone.place, gone.acks
			delete(l.absent, r.id)
		}
		for old := range l.readers {
			if old.id == r.id {
				place, r.acks = old.place(), old.acks
				old.leave(ErrSuperseded)
			}
		}
	}
	if from != 0 {
		place = holder{next: from, bytes: l.writtenBefore(from)}
	}
	r.sent, r.pending, r.acked = place, place, place
}

// writtenBefore is eventLog.written before the event with the given number.
func (l *eventLog) writtenBefore(number uint64) uint64 {
	if i := l.index(number); i > 0 {
		return l.entries[i-1].written
	}
	return 0
}

// index is the place of the first entry with at least the given number.
func (l *eventLog) index(number uint64) int {
	i, _ := slices.BinarySearchFunc(l.entries, number, func(e entry, n uint64) int {
		switch {
		case e.Number < n:
			return -1
		case e.Number > n:
			return 1
		}
		return 0
	})
	return i
}

// place is up to where the reader has everything for certain: what it has
// acknowledged or, if it is one that never does, all but the last of what was sent.
func (r *EventReader) place() holder {
	if r.acks || time.Now().Before(r.heardBy()) {
		return r.acked
	}
	window := uint64(min(unacknowledged, r.log.limit/2))
	if r.sent.bytes <= r.acked.bytes+window {
		return r.acked
	}
	bytes := r.sent.bytes - window
	i, _ := slices.BinarySearchFunc(r.log.entries, bytes, func(e entry, n uint64) int {
		if e.written <= n {
			return -1
		}
		return 1
	})
	if i == len(r.log.entries) {
		return holder{next: r.sent.next, bytes: bytes}
	}
	return holder{next: min(r.log.entries[i].Number, r.sent.next), bytes: bytes}
}

// heardBy is by when a reader that acknowledges has done so, or zero for one that
// has nothing to acknowledge yet or no id to do it with.
func (r *EventReader) heardBy() time.Time {
	if r.id == "" || r.firstSent.IsZero() {
		return time.Time{}
	}
	return r.firstSent.Add(silence)
}

// First is the number of the first event that the reader was attached at.
func (r *EventReader) First() uint64 { return r.first }

// Next waits for the next event. It returns io.EOF after Finished, the cause of
// ctx's end, ErrSuperseded, ErrStalled or ErrReaderClosed. Calling it says that
// all earlier events have been sent, which lets a kernel that was held back go on
// unless the reader acknowledges.
func (r *EventReader) Next(ctx context.Context) (Event, error) {
	for {
		event, changed, err := r.take()
		if err != nil || changed == nil {
			return event, err
		}
		select {
		case <-changed:
		case <-r.left:
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}

// take returns an event, or the channel that tells when to look again.
func (r *EventReader) take() (Event, <-chan struct{}, error) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.why != nil {
		return Event{}, nil, r.why
	}
	if r.sent != r.pending {
		r.sent = r.pending
		if !r.acks {
			r.moved()
		}
	}
	i := l.index(r.sent.next)
	if i == len(l.entries) {
		if l.ended {
			return Event{}, nil, io.EOF
		}
		return Event{}, l.changed, nil
	}
	e := &l.entries[i]
	if r.firstSent.IsZero() {
		r.firstSent = time.Now()
	}
	r.pending = holder{next: e.Number + 1, bytes: e.written}
	l.delivered = max(l.delivered, e.Number)
	return e.event(), nil, nil
}

// moved is called when the reader has let go of events.
func (r *EventReader) moved() {
	r.heldSince = time.Time{}
	r.log.tellRoom()
}

func (e *entry) event() Event {
	event := e.Event
	if e.text != nil {
		switch e.Body.(type) {
		case Stdout:
			event.Body = Stdout{Text: string(e.text)}
		case Stderr:
			event.Body = Stderr{Text: string(e.text)}
		}
	}
	return event
}

// Close detaches the reader. The execution goes on. A place with an id, and that
// of the last reader, is kept for the grace time before unread output may be
// dropped.
func (r *EventReader) Close() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.leave(ErrReaderClosed)
}

// leave takes the reader out of the log, once. The log's mutex is held.
func (r *EventReader) leave(why error) {
	l := r.log
	if r.why != nil {
		return
	}
	r.why = why
	close(r.left)
	delete(l.readers, r)
	if errors.Is(why, ErrReaderClosed) && (r.id != "" || len(l.readers) == 0) {
		l.keepPlace(r.id, absence{place: r.place(), acks: r.acks, until: time.Now().Add(r.grace)})
	}
	l.tellRoom()
}

// acknowledge notes that all events up to number have arrived at the reader with
// the given id. Errors are *InvalidError for an id that nobody has, and
// *NumberError for what was not sent yet.
func (l *eventLog) acknowledge(id string, number uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	place := holder{next: number + 1, bytes: l.writtenBefore(number + 1)}
	for r := range l.readers {
		if id == "" || r.id != id {
			continue
		}
		if number >= r.pending.next {
			return &NumberError{Number: number, Next: r.pending.next - 1}
		}
		r.acks = true
		if place.next > r.acked.next {
			r.acked = place
			r.moved()
		}
		return nil
	}
	gone, ok := l.absent[id]
	switch {
	case l.ended: // it has read all, and nobody waits for it
		return nil
	case id == "" || !ok:
		return &InvalidError{Field: "reader_id", Problem: "no reader of this execution has it"}
	case place.next > gone.place.next && number != math.MaxUint64:
		gone.acks, gone.place = true, place
		l.absent[id] = gone
		l.tellRoom()
	}
	return nil
}
