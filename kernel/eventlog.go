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
	valueLimit    = 80 << 20 // bytes of results that a log keeps; the largest message fits into 7/8 of it
	overrun       = 16 << 20 // bytes over its limit that a log takes once the writer cannot be held back
)

// eventLog holds an execution's events for its readers.
//
// Text (Stdout, Stderr, ClearOutput) and values (Result) are bounded each on its
// own; the rest is few and small. While a holder is more than a limit behind,
// blocked tells the writer to stop. Holders are the attached readers and, for a
// grace time after the last one has gone, the place that it had got to. Text
// and values that must go leave a Gap. What all holders have is dropped first.
type eventLog struct {
	limit int           // bytes of text, and how far a holder may be behind
	grace time.Duration // for the last reader to come back
	room  chan struct{} // told when blocked may have changed; capacity 1

	mu        sync.Mutex // protects the following
	entries   []entry
	next      uint64 // number of the next event
	written   uint64 // bytes ever appended
	text      int    // bytes of text in entries
	values    int    // bytes of values in entries
	delivered uint64 // the highest number that a reader has seen: not to be added to
	readers   map[*EventReader]struct{}
	left      holder    // where the last reader got to
	leftUntil time.Time // until when that holds the writer back
	unbounded bool      // the writer cannot wait any more
	ended     bool      // Finished is in
	changed   chan struct{}
}

// holder is a place in a log.
type holder struct {
	next  uint64 // number of the first event that it has not got
	bytes uint64 // eventLog.written up to there
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
		limit:     limit,
		grace:     grace,
		room:      make(chan struct{}, 1),
		next:      1,
		readers:   make(map[*EventReader]struct{}),
		left:      holder{next: 1},
		leftUntil: time.Now().Add(grace),
		changed:   make(chan struct{}),
	}
}

// append adds one event. Stdout and Stderr are split and merged; everything
// else is kept as it is. Nothing is added after Finished.
func (l *eventLog) append(body Body) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	switch body := body.(type) {
	case Stdout:
		l.appendText(Stdout{}, body.Text)
	case Stderr:
		l.appendText(Stderr{}, body.Text)
	case ClearOutput:
		if last := l.last(); last == nil || last.Number <= l.delivered || last.Body != body {
			l.add(entry{Event: Event{Body: body}, class: text})
		}
	case Result:
		l.add(entry{Event: Event{Body: body}, class: value})
	case Finished:
		l.ended = true
		l.add(entry{Event: Event{Body: body}})
	default:
		l.add(entry{Event: Event{Body: body}})
	}
	l.trim()
	close(l.changed)
	l.changed = make(chan struct{})
}

// appendText adds text to the last event while nobody has seen that, so that a
// reader that is behind gets fewer, larger events.
func (l *eventLog) appendText(kind Body, s string) {
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
		l.add(entry{Event: Event{Body: kind}, class: text, text: []byte(s[:n])})
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
	e.Time = time.Now()
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

// blocked says whether the writer should stop, and until when at the latest if
// no reader does anything; zero means for as long as it takes.
func (l *eventLog) blocked() (bool, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isBlocked()
}

func (l *eventLog) isBlocked() (bool, time.Time) {
	if l.unbounded || l.ended {
		return false, time.Time{}
	}
	behind := func(h holder) bool { return l.written-h.bytes > uint64(l.limit) }
	for r := range l.readers {
		if behind(r.at) {
			return true, time.Time{}
		}
	}
	if len(l.readers) == 0 && behind(l.left) && time.Now().Before(l.leftUntil) {
		return true, l.leftUntil
	}
	return false, time.Time{}
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
	if len(l.readers) == 0 && time.Now().Before(l.leftUntil) {
		from = l.left.next
	}
	for r := range l.readers {
		from = min(from, r.at.next)
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
