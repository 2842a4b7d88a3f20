package outlog

import (
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// exhaustedLimit is a log's limit while the budget is used up.
	exhaustedLimit = 256 << 10
	// maxLiveBudget and endedBudget bound what NewBudget takes of memory.
	maxLiveBudget = 256 << 20
	endedBudget   = 64 << 20
)

// Budget bounds the memory of many logs together. Once what live logs hold
// reaches it, each keeps at most 256 KiB of new bytes. Logs that have ended
// and that no lossless reader holds share a part of their own, from which the
// oldest logs are emptied first: their readers are told the gap.
//
// A nil Budget bounds nothing.
type Budget struct {
	live, kept int64
	used       atomic.Int64 // by live logs

	// mu protects the following. It is taken before a log's mu, never after.
	mu        sync.Mutex
	endedUsed int64
	endedLogs []*Log // oldest first
}

// NewBudget returns the budget for a machine with the given bytes of memory:
// an eighth of it, 256 MiB at most, for live logs, and 64 MiB (an eighth, where
// that is less) for ended ones.
func NewBudget(memory uint64) *Budget {
	eighth := int64(min(memory/8, maxLiveBudget))
	return &Budget{live: eighth, kept: min(eighth, endedBudget)}
}

// Limit is how many bytes live logs may hold before their limits fall, 0 for no
// bound.
func (b *Budget) Limit() int64 {
	if b == nil {
		return 0
	}
	return b.live
}

// Used returns the bytes of memory that live and ended logs hold.
func (b *Budget) Used() (live, ended int64) {
	if b == nil {
		return 0, 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used.Load(), b.endedUsed
}

func (b *Budget) use(n int) {
	if b != nil {
		b.used.Add(int64(n))
	}
}

func (b *Budget) exhausted() bool { return b != nil && b.used.Load() >= b.live }

// end moves a log to the ended ones if it still is one, and empties the oldest
// of them. The caller holds no lock; ends is what placeMoved said.
func (b *Budget) end(l *Log, ends bool) {
	if b == nil || !ends {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l.mu.Lock()
	if l.hasEnded() {
		l.ended = true
		b.used.Add(-int64(l.size))
		b.endedUsed += int64(l.size)
		b.endedLogs = append(b.endedLogs, l)
	}
	l.mu.Unlock()
	for i := 0; i < len(b.endedLogs) && b.endedUsed > b.kept; {
		if !b.empty(b.endedLogs[i]) {
			i++ // somebody attached to it meanwhile and reads
			continue
		}
		b.endedLogs = slices.Delete(b.endedLogs, i, i+1)
	}
}

// empty drops all that an ended log keeps, unless a lossless reader holds it.
func (b *Budget) empty(l *Log) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held(l.limit) < l.mark {
		return false
	}
	b.endedUsed -= int64(l.size)
	for len(l.chunks) > 0 {
		l.remove(len(l.chunks) - 1)
	}
	return true
}

// forget takes a log out of the ended ones: what it still holds counts as live
// until it is dropped.
func (b *Budget) forget(l *Log) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		return
	}
	l.ended = false
	if i := slices.Index(b.endedLogs, l); i >= 0 {
		b.endedLogs = slices.Delete(b.endedLogs, i, i+1)
		b.endedUsed -= int64(l.size)
	}
	b.used.Add(int64(l.size))
}
