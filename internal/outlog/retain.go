package outlog

import (
	"slices"
	"time"
)

// What a log keeps and what it drops. Everything here is called with mu held.

// currentLimit is the limit for new bytes, which falls when the budget is used up.
func (l *Log) currentLimit() int {
	if l.budget.exhausted() {
		return min(l.limit, exhaustedLimit)
	}
	return l.limit
}

// nextSize is the size of the next chunk: twice the last one, but small enough
// for the log to give back its oldest bytes in steps of an eighth of its limit.
func (l *Log) nextSize(limit int) int {
	size := minChunk
	for uint64(size) < l.end && size < maxChunk && size*2 <= limit/8 {
		size *= 2
	}
	return size
}

// evict drops the oldest chunk that may go, and reports whether there was one.
func (l *Log) evict(limit int) bool {
	held := l.held(limit)
	for i, c := range l.chunks {
		if c.offset < l.head || i == len(l.chunks)-1 && !c.full() {
			continue // pinned, or the writer may be filling it
		}
		if c.end() <= held || l.phase == phaseMarked && c.offset >= l.mark {
			l.remove(i)
			return true
		}
	}
	return false
}

// remove drops the chunk with the given index.
func (l *Log) remove(i int) {
	c := l.chunks[i]
	l.account(-cap(c.buf))
	l.chunks = slices.Delete(l.chunks, i, i+1)
	c.release()
}

// account books n bytes of memory.
func (l *Log) account(n int) {
	l.size += n
	if !l.ended {
		l.budget.use(n)
	}
}

// held is the offset of the first byte that some lossless reader still holds.
func (l *Log) held(limit int) uint64 {
	held := l.end
	for _, r := range l.readers {
		if r.lossless {
			held = min(held, r.place(limit))
		}
	}
	return held
}

// stalled tells how long the writer may wait before a reader's stall timeout
// is over, or one that has not acknowledged yet counts as silent (0: for ever). A reader
// whose stall timeout is over has to go; then again is true.
func (l *Log) stalled(now time.Time, limit int) (wait time.Duration, again bool) {
	sooner := func(left time.Duration) {
		if wait == 0 || left < wait {
			wait = left
		}
	}
	for _, r := range slices.Clone(l.readers) {
		if !r.lossless || r.place(limit) >= l.end {
			continue
		}
		if !r.acks && !r.firstSent.IsZero() && !r.silent(now) {
			sooner(silence - now.Sub(r.firstSent))
		}
		if r.stall == 0 {
			continue
		}
		if r.heldSince.IsZero() {
			r.heldSince = now
		}
		left := r.stall - now.Sub(r.heldSince)
		if left <= 0 {
			r.leave(Stalled)
			again = true
		} else {
			sooner(left)
		}
	}
	return wait, again
}

// notifyWriter makes a waiting writer look again.
func (l *Log) notifyWriter() {
	if !l.waiting {
		return
	}
	select {
	case l.space <- struct{}{}:
	default:
	}
}

// placeMoved is called when a reader may have let go of bytes. It reports
// whether the log has just become one of the ended, which the caller tells the
// budget once it has released mu.
func (l *Log) placeMoved() (ends bool) {
	l.notifyWriter()
	if l.discarded {
		for l.evict(l.limit) {
		}
	}
	return l.hasEnded()
}

// hasEnded reports whether the log is to be counted as ended and is not yet:
// finished, with nothing that a lossless reader holds.
func (l *Log) hasEnded() bool {
	return l.finished && !l.ended && !l.discarded && l.held(l.limit) >= l.mark
}
