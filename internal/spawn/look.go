package spawn

import (
	"strconv"
	"sync"
	"sync/atomic"
)

// looks shares one look at /proc among all who ask for one at the same time, as those do who end hundreds
// of trees: each look reads some files of every process of the machine.
type looks struct {
	mu      sync.Mutex
	next    *look      // which has not begun; nil where nobody waits for one
	reading sync.Mutex // held by the look that is under way
	count   atomic.Int64
}

// look is what /proc has shown. Its processes may have ended since, and others have begun: who signals one
// makes sure that it is unchanged.
type look struct {
	once   sync.Once
	number int64 // how many had begun with this one
	all    []*seen
	trees  func() trees // of the spawner, a moment later
}

// seen is a process in a look, and what tells whose it is, read when somebody first asks.
type seen struct {
	process
	auditSession func() uint32
	mark         func() string
}

// take returns a look that has begun after the call: what was killed before is not in it, or a zombie.
func (l *looks) take(s *Spawner) *look {
	l.mu.Lock()
	if l.next == nil {
		l.next = new(look)
	}
	mine := l.next
	l.mu.Unlock()
	mine.once.Do(func() {
		l.reading.Lock()
		defer l.reading.Unlock()
		l.mu.Lock()
		l.next = nil // who comes from now on gets the one after
		l.mu.Unlock()
		mine.number = l.count.Add(1)
		mine.read(s)
	})
	return mine
}

func (l *look) read(s *Spawner) {
	for _, p := range allProcesses() {
		folder := "/proc/" + strconv.Itoa(p.pid)
		l.all = append(l.all, &seen{
			process:      p,
			auditSession: sync.OnceValue(func() uint32 { return stillOf(p, auditSession(folder), noAuditSession) }),
			mark:         sync.OnceValue(func() string { return stillOf(p, markOf(p.pid), "") }),
		})
	}
	l.trees = sync.OnceValue(s.allTrees)
}

// stillOf returns value, which was just read by p's pid, or none where the pid is not p's
// any more. Then value is another process's, who would vouch for p, and by that for those
// whose parent p was.
func stillOf[T comparable](p process, value, none T) T {
	if value != none && !p.unchanged() {
		return none
	}
	return value
}
