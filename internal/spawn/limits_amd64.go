package spawn

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// raise has the child raise hard limits, which takes guestd's rights. All else anybody may do for
// himself, so that it takes no right that a container may lack; and it is done by the user that the
// limits are for, since one of processes that he is above of already would otherwise be held against
// the exec: execve(2), EAGAIN.
func (c *childImage) raise(limits []Rlimit) {
	c.limits = make([]unix.Rlimit, 0, 2*len(limits)) // to which steps point
	for _, limit := range limits {
		var own unix.Rlimit
		if err := unix.Prlimit(0, limit.Resource, nil, &own); err == nil && limit.Hard > own.Max {
			c.limit(Rlimit{limit.Resource, own.Cur, limit.Hard})
		}
	}
}

func (c *childImage) limit(limit Rlimit) {
	c.limits = append(c.limits, unix.Rlimit{Cur: limit.Soft, Max: limit.Hard})
	value := &c.limits[len(c.limits)-1]
	c.limitSteps = append(c.limitSteps, len(c.steps))
	c.then(step{call: unix.SYS_PRLIMIT64, b: uintptr(limit.Resource), c: uintptr(unsafe.Pointer(value)), optional: true})
}

// oomScoreFile is where a process has its own.
var oomScoreFile = []byte("/proc/self/oom_score_adj\x00")

// scoreOOM has the child set its oom_score_adj, where that is wanted, with guestd's rights. As a child of
// vfork it changes nobody else's, though it shares their memory: proc(5), and the kernel's __set_oom_adj.
// free is the descriptor that it opens the file as, since from there on all are closed.
func (c *childImage) scoreOOM(free int) {
	if c.oomScore == nil {
		return
	}
	at := unix.AT_FDCWD
	for _, s := range []step{
		{call: unix.SYS_OPENAT, a: uintptr(at), b: uintptr(unsafe.Pointer(&oomScoreFile[0])), c: unix.O_WRONLY},
		{call: unix.SYS_WRITE, a: uintptr(free), b: uintptr(unsafe.Pointer(&c.oomScore[0])), c: uintptr(len(c.oomScore))},
		{call: unix.SYS_CLOSE, a: uintptr(free)},
	} {
		s.optional = true
		c.oomSteps = append(c.oomSteps, len(c.steps))
		c.then(s)
	}
}

// degrade notes what the child was refused.
func (c *childImage) degrade(s *Spawner) {
	for _, i := range c.limitSteps {
		if c.steps[i].failed != 0 {
			s.degrade("raising hard resource limits is refused (no CAP_SYS_RESOURCE, or a limit of the kernel's)")
		}
	}
	for _, i := range c.oomSteps {
		if errno := unix.Errno(c.steps[i].failed); errno != 0 {
			s.degradeOOM(errno)
			return
		}
	}
}
