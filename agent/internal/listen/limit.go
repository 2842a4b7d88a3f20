package listen

import (
	"sync"
	"time"
)

// A logLimit lets through logBurst lines a logWindow and counts the rest, so
// that a hostile peer cannot fill the log or, where that is a serial console,
// stall the machine.
type logLimit struct {
	now func() time.Time // nil is time.Now

	// mu protects the following.
	mu      sync.Mutex
	start   time.Time
	used    int
	skipped int
}

const (
	logBurst  = 10
	logWindow = time.Minute
)

// allow says whether a line may be logged, and how many were not since the last
// one that was.
func (l *logLimit) allow() (skipped int, ok bool) {
	now := time.Now
	if l.now != nil {
		now = l.now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := now(); l.start.IsZero() || t.Sub(l.start) >= logWindow {
		l.start, l.used = t, 0
	}
	if l.used == logBurst {
		l.skipped++
		return 0, false
	}
	l.used++
	skipped, l.skipped = l.skipped, 0
	return skipped, true
}
