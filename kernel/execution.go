package kernel

import (
	"time"
)

// Execution is one run of one piece of code. It goes on whether or not anybody
// reads its events. All methods may be called at any time.
type Execution struct {
	id        string
	contextID string
	request   Request
	log       *eventLog
	done      chan struct{} // closed after Finished is in the log
	ended     time.Time     // when; valid once done is closed
}

// ID returns the execution's id, "x-…".
func (x *Execution) ID() string { return x.id }

// ContextID returns the id of the context that it runs in.
func (x *Execution) ContextID() string { return x.contextID }

// Events returns a reader from the event with the given number on; 0 and 1 are
// the first. The caller closes it.
func (x *Execution) Events(from uint64) *EventReader { return x.log.attach(from) }

// Done is closed when the execution has finished.
func (x *Execution) Done() <-chan struct{} { return x.done }

// finish adds the last event. The context's actor calls it, once.
func (x *Execution) finish(f Finished) {
	x.log.append(f)
	x.ended = time.Now()
	close(x.done)
}
