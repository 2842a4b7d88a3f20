package kernel

// submit puts an execution into the queue.
func (c *codeContext) submit(x *Execution) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	code := len(x.code)
	for _, queued := range c.queue {
		code += len(queued.code)
	}
	if len(c.queue) >= MaxQueue || code > maxQueuedCode {
		return ErrQueueFull
	}
	position := len(c.queue)
	if c.active {
		position++
	}
	x.log.append(Accepted{QueuePosition: position})
	c.queue = append(c.queue, x)
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return nil
}

// next takes the first execution out of the queue, or returns nil.
func (c *codeContext) next() *Execution {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return nil
	}
	x := c.queue[0]
	c.queue[0] = nil
	c.queue = c.queue[1:]
	c.active = true
	return x
}

func (c *codeContext) queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue)
}

// dequeue removes an execution from the queue, and says whether it was there.
func (c *codeContext) dequeue(x *Execution) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, queued := range c.queue {
		if queued == x {
			c.queue = append(c.queue[:i:i], c.queue[i+1:]...)
			return true
		}
	}
	return false
}

// drainQueue takes everything out of the queue; with closed it stays empty.
func (c *codeContext) drainQueue(closed bool) []*Execution {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = c.closed || closed
	all := c.queue
	c.queue = nil
	return all
}
