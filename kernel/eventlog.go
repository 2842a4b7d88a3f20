package kernel

import (
	"slices"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	entryOverhead = 256      // bytes that an entry counts for beside its contents
	maxText       = 64 << 10 // bytes of text in one event
	valueLimit    = 84 << 20 // bytes of results that a log keeps; the largest message fits into 7/8 of it
	overrun       = 16 << 20 // bytes over its limit that a log takes once the writer cannot be held back
)

// eventLog holds an execution's events for its readers.
//
// Text (Stdout, Stderr, ClearOutput) and values (Result) are bounded each on its
// own; the rest is few and small. While a holder is more than a limit behind,
// blocked tells the writer to stop. Holders are the attached readers and, for a
// grace time, the places of those that have gone and may come back: each that has
// an id, and the last one in any case. Text and values that must go leave a Gap.
// What all holders have is dropped first.
type eventLog struct {
	limit int           // bytes of text, and how far a holder may be behind
	grace time.Duration // for a reader to come back
	room  chan struct{} // told when blocked may have changed; capacity 1

	mu        sync.Mutex // protects the following
	entries   []entry
	next      uint64 // number of the next event
	written   uint64 // bytes ever appended
	text      int    // bytes of text in entries
	values    int    // bytes of values in entries
	delivered uint64 // the highest number that a reader has seen: not to be added to
	readers   map[*EventReader]struct{}
	absent    map[string]absence // by reader id, "" for one without that was the last
	unbounded bool               // the writer cannot wait any more
	ended     bool               // Finished is in
	changed   chan struct{}
}

// holder is a place in a log.
type holder struct {
	next  uint64 // number of the first event that it has not got
	bytes uint64 // eventLog.written up to there
}

// absence is the place of a reader that may come back.
type absence struct {
	place holder
	acks  bool
	until time.Time // until then it holds the writer back
}

type class int

const (
	other class = iota
	text
	value
)

type entry struct {
	Event
	class   class
	text    []byte // of Stdout and Stderr, in place of Body.Text
	written uint64 // eventLog.written after this entry
}

func (e *entry) bytes() int {
	if e.text != nil {
		return entryOverhead + len(e.text)
	}
	return entryOverhead + e.Body.size()
}

func newEventLog(limit int, grace time.Duration) *eventLog {
	return &eventLog{
		limit:   limit,
		grace:   grace,
		room:    make(chan struct{}, 1),
		next:    1,
		readers: make(map[*EventReader]struct{}),
		absent:  map[string]absence{"": {place: holder{next: 1}, until: time.Now().Add(grace)}},
		changed: make(chan struct{}),
	}
}

// append adds an event of this moment and returns its number. Stdout and Stderr
// are split and merged; everything else is kept as it is. Nothing is added after
// Finished.
func (l *eventLog) append(body Body) uint64 { return l.appendAt(time.Now(), body) }

// appendAt adds an event of an earlier moment: what a kernel tells of is over by
// the time that it has been read.
func (l *eventLog) appendAt(at time.Time, body Body) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return 0
	}
	switch body := body.(type) {
	case Stdout:
		l.appendText(at, Stdout{}, body.Text)
	case Stderr:
		l.appendText(at, Stderr{}, body.Text)
	case ClearOutput:
		if last := l.last(); last == nil || last.Number <= l.delivered || last.Body != body {
			l.add(entry{Event: Event{Time: at, Body: body}, class: text})
		}
	case Result:
		l.add(entry{Event: Event{Time: at, Body: body}, class: value})
	case Finished:
		l.ended = true
		l.add(entry{Event: Event{Time: at, Body: body}})
	default:
		l.add(entry{Event: Event{Time: at, Body: body}})
	}
	l.trim()
	close(l.changed)
	l.changed = make(chan struct{})
	return l.next - 1
}

// appendText adds text to the last event while nobody has seen that, so that a
// reader that is behind gets fewer, larger events.
func (l *eventLog) appendText(at time.Time, kind Body, s string) {
	if last := l.last(); last != nil && last.Number > l.delivered && last.text != nil && last.Body == kind {
		n := cut(s, maxText-len(last.text))
		last.text = append(last.text, s[:n]...)
		l.written += uint64(n)
		l.text += n
		last.written = l.written
		s = s[n:]
	}
	for len(s) > 0 {
		n := cut(s, maxText)
		l.add(entry{Event: Event{Time: at, Body: kind}, class: text, text: []byte(s[:n])})
		s = s[n:]
	}
}

// cut is the length of the longest start of s of at most n bytes that ends
// between characters.
func cut(s string, n int) int {
	if len(s) <= n {
		return len(s)
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}

func (l *eventLog) last() *entry {
	if len(l.entries) == 0 {
		return nil
	}
	return &l.entries[len(l.entries)-1]
}

func (l *eventLog) add(e entry) {
	e.Number = l.next
	l.next++
	l.written += uint64(e.bytes())
	e.written = l.written
	l.count(&e, 1)
	l.entries = append(l.entries, e)
}

func (l *eventLog) count(e *entry, sign int) {
	switch e.class {
	case text:
		l.text += sign * e.bytes()
	case value:
		l.values += sign * e.bytes()
	case other:
	}
}

// blocked says whether the writer should stop, and when to ask again at the
// latest; zero means not before room tells. Readers that have stalled for too
// long lose their place here.
func (l *eventLog) blocked() (bool, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isBlocked()
}

func (l *eventLog) isBlocked() (blocked bool, until time.Time) {
	if l.unbounded || l.ended {
		return false, time.Time{}
	}
	now := time.Now()
	for r := range l.readers {
		if !l.isBehind(r.place()) {
			continue
		}
		if r.heldSince.IsZero() {
			r.heldSince = now
		}
		if heardBy := r.heardBy(); !r.acks && now.Before(heardBy) {
			until = earliest(until, heardBy)
		}
		stalls := r.heldSince.Add(r.stall)
		switch {
		case r.stall == 0:
			blocked = true
		case now.Before(stalls):
			blocked, until = true, earliest(until, stalls)
		default:
			r.leave(ErrStalled)
		}
	}
	for id, gone := range l.absent {
		switch {
		case !now.Before(gone.until):
			delete(l.absent, id)
		case l.isBehind(gone.place):
			blocked, until = true, earliest(until, gone.until)
		}
	}
	return blocked, until
}

func (l *eventLog) isBehind(h holder) bool { return l.written-h.bytes > uint64(l.limit) }

// keepPlace remembers the place of a reader that has gone.
func (l *eventLog) keepPlace(id string, gone absence) {
	if len(l.absent) < maxAbsent && time.Now().Before(gone.until) {
		l.absent[id] = gone
	}
}

// unbind lets the log take a last bounded amount over its limit and never again
// hold the writer back: a kernel that is dying or being interrupted must be read.
func (l *eventLog) unbind() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unbounded = true
}

// trim drops what is over the limits, down to seven eighths so that the work is
// spread over many events.
func (l *eventLog) trim() {
	limit := l.limit
	held := l.heldFrom()
	if l.unbounded {
		limit += overrun
	}
	if l.text > limit {
		l.drop(text, l.text-limit/8*7, held)
	}
	if blocked, _ := l.isBlocked(); l.text > limit && !blocked {
		l.drop(text, l.text-limit/8*7, l.next)
	}
	if l.values > valueLimit {
		l.drop(value, l.values-valueLimit/8*7, held)
	}
	if blocked, _ := l.isBlocked(); l.values > valueLimit && !blocked {
		l.drop(value, l.values-valueLimit/8*7, l.next)
	}
}

// heldFrom is the number of the first event that a holder has not got.
func (l *eventLog) heldFrom() uint64 {
	from := l.next
	for r := range l.readers {
		from = min(from, r.place().next)
	}
	now := time.Now()
	for _, gone := range l.absent {
		if now.Before(gone.until) {
			from = min(from, gone.place.next)
		}
	}
	return from
}

// drop replaces the oldest entries of a class before the given number by gaps,
// until at least want bytes are free.
func (l *eventLog) drop(class class, want int, before uint64) {
	kept := l.entries[:0]
	for _, e := range l.entries {
		if want <= 0 || e.class != class || e.Number >= before {
			kept = append(kept, e)
			continue
		}
		l.count(&e, -1)
		want -= e.bytes()
		kept = addGap(kept, e)
	}
	clear(l.entries[len(kept):])
	l.entries = kept
}

// addGap adds a gap in place of e. Gaps that follow one another are one for each
// stream.
func addGap(entries []entry, e entry) []entry {
	gap := Gap{}
	switch body := e.Body.(type) {
	case Stdout:
		gap = Gap{Stream: StreamStdout, Bytes: uint64(len(e.text))}
	case Stderr:
		gap = Gap{Stream: StreamStderr, Bytes: uint64(len(e.text))}
	case Result:
		gap = Gap{Stream: StreamResult, Bytes: uint64(body.size())}
	default:
		return entries // a ClearOutput between gaps has nothing to clear
	}
	for i := len(entries) - 1; i >= 0; i-- {
		earlier, ok := entries[i].Body.(Gap)
		if !ok {
			break
		}
		if earlier.Stream == gap.Stream {
			gap.Bytes += earlier.Bytes
			entries = slices.Delete(entries, i, i+1)
			break
		}
	}
	return append(entries, entry{Event: Event{Number: e.Number, Time: e.Time, Body: gap}, written: e.written})
}

// shrink drops all text and values, and returns how many bytes are left.
func (l *eventLog) shrink() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(text, l.text, l.next)
	l.drop(value, l.values, l.next)
	return l.bytes()
}

func (l *eventLog) bytes() int { return l.text + l.values + entryOverhead*len(l.entries) }

// retained is about how many bytes the log holds.
func (l *eventLog) retained() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes()
}

func (l *eventLog) tellRoom() {
	select {
	case l.room <- struct{}{}:
	default:
	}
}
