package spawn

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// noAuditSession is the kernel's value for "not in an audit session".
const noAuditSession = ^uint32(0)

// probeAudit finds out whether audit sessions can be given: the kernel has them
// (CONFIG_AUDIT) and lets guestd write loginuid.
func (s *Spawner) probeAudit() {
	_ = onFreshThread(func() error {
		before := auditSession("/proc/thread-self")
		after := newAuditSession(s.self.uid)
		s.audit = after != noAuditSession && after != before
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
	value := strconv.AppendUint(make([]byte, 0, 16), uint64(uid), 10)
	if !writeAtOnce("/proc/thread-self/loginuid", value) {
		return noAuditSession
	}
	return auditSession("/proc/thread-self")
}

// writeAtOnce is writeExisting without the cost of an os.File: this is on the way of
// every start.
func writeAtOnce(path string, value []byte) bool {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	n, err := unix.Write(fd, value)
	return err == nil && n == len(value)
}

// auditSession reads the audit session of a process or thread, given as its
// folder under /proc. Zombies have one, too.
func auditSession(folder string) uint32 {
	fd, err := unix.Open(folder+"/sessionid", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return noAuditSession
	}
	defer unix.Close(fd)
	var buf [16]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return noAuditSession
	}
	session, err := strconv.ParseUint(string(bytes.TrimSpace(buf[:n])), 10, 32)
	if err != nil {
		return noAuditSession
	}
	return uint32(session)
}
