package kernel

import "time"

// keep takes a finished execution over from its context: it stays readable for
// the retention time, within limits of number and bytes.
func (cs *Contexts) keep(x *Execution) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	x.kept = x.log.retained() // nothing is added any more
	cs.finished = append(cs.finished, x)
	cs.finishedBytes += x.kept
	for len(cs.finished) > maxFinished {
		cs.forgetOldest()
	}
	cs.shrink()
	if !cs.closed && cs.expiry == nil {
		cs.expiry = time.AfterFunc(cs.cfg.Retention, cs.expire)
	}
}

// shrink empties the oldest logs until all together are within their limit. How
// the executions ended stays, and that something is missing is told as a gap.
func (cs *Contexts) shrink() {
	for _, x := range cs.finished {
		if cs.finishedBytes <= maxFinishedBytes {
			return
		}
		cs.finishedBytes -= x.kept
		x.kept = x.log.shrink()
		cs.finishedBytes += x.kept
	}
}

func (cs *Contexts) forgetOldest() {
	x := cs.finished[0]
	cs.finished[0] = nil
	cs.finished = cs.finished[1:]
	cs.finishedBytes -= x.kept
	delete(cs.executions, x.id)
	delete(cs.requests, x.requestID)
}

// expire forgets what has been kept for long enough, and comes back for the next.
func (cs *Contexts) expire() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for len(cs.finished) > 0 {
		left := time.Until(cs.finished[0].ended.Add(cs.cfg.Retention))
		if left > 0 {
			if !cs.closed {
				cs.expiry.Reset(left)
			}
			return
		}
		cs.forgetOldest()
	}
	cs.expiry = nil
}
