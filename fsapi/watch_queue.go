package fsapi

import "sync"

const (
	// watchQueueBytes bounds the events that wait for a slow client; the kernel
	// holds fs.inotify.max_queued_events (16,384) more.
	watchQueueBytes = 2 << 20
	// watchEventBytes is what an event costs besides its paths.
	watchEventBytes = 128
)

// watchQueue holds events between the watch's thread and Next, bounded by what
// they cost in memory. It owns nothing that must be closed.
type watchQueue struct {
	limit  int
	filled chan struct{} // has an element after an event came into the queue
	room   chan struct{} // has an element after an event left it

	// mu protects the following.
	mu     sync.Mutex
	events []WatchEvent
	bytes  int
}

func newWatchQueue() *watchQueue {
	return &watchQueue{limit: watchQueueBytes, filled: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func eventCost(e WatchEvent) int { return watchEventBytes + len(e.Path) + len(e.OldPath) }

// push appends an event, or says that there is no room for it: an empty queue has
// room for any.
func (q *watchQueue) push(event WatchEvent) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.events); n > 0 {
		last := &q.events[n-1]
		if last.Kind == event.Kind && last.Path == event.Path && (event.Kind == WatchWritten || event.Kind == WatchAttributes) {
			return true // the kernel tells such in a row once, too, while they wait
		}
		if q.bytes+eventCost(event) > q.limit {
			return false
		}
	}
	q.events = append(q.events, event)
	q.bytes += eventCost(event)
	notify(q.filled)
	return true
}

// pop takes the oldest event; false means that there is none.
func (q *watchQueue) pop() (WatchEvent, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		return WatchEvent{}, false
	}
	event := q.events[0]
	q.events[0] = WatchEvent{}
	if q.events = q.events[1:]; len(q.events) == 0 {
		q.events = nil
	}
	q.bytes -= eventCost(event)
	notify(q.room)
	return event, true
}

func (q *watchQueue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.events) == 0
}

// notify leaves an element in a channel of one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
