package spawn

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// noAuditSession is the kernel's value for "not in an audit session".
const noAuditSession = ^uint32(0)

// probeAudit finds out whether audit sessions can be given: the kernel has them
// (CONFIG_AUDIT) and lets guestd write loginuid.
func (s *Spawner) probeAudit() {
	_ = onFreshThread(func() error {
		s.audit = newAuditSession(s.self.uid) != noAuditSession
		return nil
	})
	if !s.audit {
		s.degrade("no audit sessions: a process that leaves its session, its parents and its environment survives a kill of its tree")
	}
}

// newAuditSession puts the calling thread, and what it forks from now on, into
// a fresh audit session and returns its number. The kernel makes one with
// each write to loginuid; numbers are unique until 2^32 were given.
// The thread must be one that is thrown away: whatever else it forked would
// be taken for part of the tree.
func newAuditSession(uid uint32) uint32 {
	task := "/proc/self/task/" + strconv.Itoa(unix.Gettid())
	before := auditSession(task)
	if writeExisting(task+"/loginuid", strconv.FormatUint(uint64(uid), 10)) != nil {
		return noAuditSession
	}
	after := auditSession(task)
	if after == before {
		return noAuditSession
	}
	return after
}

// auditSession reads the audit session of a process or thread, given as its
// folder under /proc. Zombies have one, too.
func auditSession(folder string) uint32 {
	data, err := os.ReadFile(folder + "/sessionid")
	if err != nil {
		return noAuditSession
	}
	session, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 32)
	if err != nil {
		return noAuditSession
	}
	return uint32(session)
}
