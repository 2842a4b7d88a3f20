package kernel

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"
)

// ErrReaderClosed says that Next was called on a closed reader.
var ErrReaderClosed = errors.New("the event reader is closed")

// EventReader follows an execution's events. While it is open it holds the
// kernel back when it is too far behind, so it must be read or closed. Its
// methods may be called by one goroutine at a time, Close by any.
type EventReader struct {
	log    *eventLog
	closed chan struct{}

	// The log's mutex protects the following.
	at      holder // up to here all has been taken
	pending holder // up to here it has been handed out, which the next call of Next confirms
}

// attach returns a reader from the event with the given number on.
func (l *eventLog) attach(from uint64) *EventReader {
	l.mu.Lock()
	defer l.mu.Unlock()
	from = max(from, 1)
	r := &EventReader{log: l, closed: make(chan struct{}), at: holder{next: from}}
	if i := l.index(from); i > 0 {
		r.at.bytes = l.entries[i-1].written
	}
	r.pending = r.at
	l.readers[r] = struct{}{}
	return r
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

// Next waits for the next event. It returns io.EOF after Finished, the cause of
// ctx's end, or ErrReaderClosed. Calling it says that all earlier events have
// been dealt with, which lets a kernel that was held back go on.
func (r *EventReader) Next(ctx context.Context) (Event, error) {
	for {
		event, changed, err := r.take()
		if err != nil || changed == nil {
			return event, err
		}
		select {
		case <-changed:
		case <-r.closed:
			return Event{}, ErrReaderClosed
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
	if r.at != r.pending {
		r.at = r.pending
		l.tellRoom()
	}
	i := l.index(r.at.next)
	if i == len(l.entries) {
		if l.ended {
			return Event{}, nil, io.EOF
		}
		return Event{}, l.changed, nil
	}
	e := &l.entries[i]
	r.pending = holder{next: e.Number + 1, bytes: e.written}
	l.delivered = max(l.delivered, e.Number)
	return e.event(), nil, nil
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

// Close detaches the reader. The execution goes on. When it was the last one,
// its place is kept for a grace time before unread output may be dropped.
func (r *EventReader) Close() {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.readers[r]; !open {
		return
	}
	close(r.closed)
	delete(l.readers, r)
	if len(l.readers) == 0 {
		l.left, l.leftUntil = r.at, time.Now().Add(l.grace)
	}
	l.tellRoom()
}
