package kernel

import "sync"

// queue is the executions that wait in a context, in order, and whether one runs.
type queue struct {
	wake chan struct{} // it has got an entry; capacity 1

	mu      sync.Mutex // protects the following
	waiting []*Execution
	active  bool  // an execution has left the queue and has not finished
	closed  error // why nothing is taken any more, or nil
}

func newQueue() queue { return queue{wake: make(chan struct{}, 1)} }

// submit puts an execution into the queue.
func (q *queue) submit(x *Execution) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		return q.closed
	}
	code := len(x.code)
	for _, queued := range q.waiting {
		code += len(queued.code)
	}
	if len(q.waiting) >= MaxQueue || code > maxQueuedCode {
		return ErrQueueFull
	}
	position := len(q.waiting)
	if q.active {
		position++
	}
	x.log.append(Accepted{QueuePosition: position})
	q.waiting = append(q.waiting, x)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// next takes the first execution out of the queue, or returns nil. It counts as
// running until done.
func (q *queue) next() *Execution {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return nil
	}
	x := q.waiting[0]
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	q.active = true
	return x
}

// done says that the execution that next has returned has finished.
func (q *queue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.active = false
}

func (q *queue) queued() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// dequeue removes an execution from the queue, and says whether it was there.
func (q *queue) dequeue(x *Execution) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, queued := range q.waiting {
		if queued == x {
			q.waiting = append(q.waiting[:i:i], q.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// drain takes everything out of the queue; with a reason it stays empty.
func (q *queue) drain(closed error) []*Execution {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed == nil {
		q.closed = closed
	}
	all := q.waiting
	q.waiting = nil
	return all
}
