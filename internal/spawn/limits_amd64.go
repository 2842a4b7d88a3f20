package spawn

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// raise has the child raise hard limits, which takes guestd's rights, and returns the other limits.
// Those anybody may set for himself, so that they take no right that a container may lack; and they
// are set by the user that they are for, since a limit of processes that he is above of already
// would otherwise be held against the exec: execve(2), EAGAIN.
func (c *childImage) raise(limits []Rlimit) (others []Rlimit) {
	c.limits = make([]unix.Rlimit, 0, len(limits)) // to which steps point
	for _, limit := range limits {
		var own unix.Rlimit
		if err := unix.Prlimit(0, limit.Resource, nil, &own); err == nil && limit.Hard > own.Max {
			c.limit(limit)
		} else {
			others = append(others, limit)
		}
	}
	return others
}

func (c *childImage) limit(limit Rlimit) {
	c.limits = append(c.limits, unix.Rlimit{Cur: limit.Soft, Max: limit.Hard})
	value := &c.limits[len(c.limits)-1]
	c.limitSteps = append(c.limitSteps, len(c.steps))
	c.then(step{call: unix.SYS_PRLIMIT64, b: uintptr(limit.Resource), c: uintptr(unsafe.Pointer(value)), optional: true})
}
