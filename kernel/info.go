package kernel

import "time"

// State says what a context is doing.
type State int

// States.
const (
	NoKernel     State = iota // the next execution starts one
	Starting                  // a kernel is starting
	Idle                      // a kernel is ready
	Busy                      // an execution runs
	Interrupting              // an execution is being interrupted
)

// Info describes a context.
type Info struct {
	ID         string
	Language   string
	User       string // the account's name, or its uid
	Created    time.Time
	State      State
	Queued     int    // executions that wait
	Execution  string // the id of the running execution, or ""
	Generation uint64 // of the current or last kernel; 0 before the first
	PID        int    // of the kernel; 0 without
	// BackgroundBytes counts the text that came from earlier executions after
	// their end, from threads for example. It belongs to none.
	BackgroundBytes uint64
}

// info describes the context as the loop sees it.
func (c *codeContext) info() (Info, error) {
	info := Info{ID: c.id, Language: c.launcher.language, User: c.launcher.userName(), Created: c.created}
	err := c.call(func() {
		info.Queued = c.queued()
		info.Generation = c.generation
		info.BackgroundBytes = c.background
		if c.session != nil {
			info.PID = c.session.child.PID()
		}
		if c.run != nil {
			info.Execution = c.run.x.id
		}
		info.State = c.state()
	})
	return info, err
}

func (c *codeContext) state() State {
	switch {
	case c.launched != nil:
		return Starting
	case c.run != nil && c.run.stopping != nil:
		return Interrupting
	case c.run != nil:
		return Busy
	case c.session == nil || c.death != nil:
		return NoKernel
	}
	return Idle
}
