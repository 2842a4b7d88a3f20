package spawn

import (
	"slices"
	"strconv"
)

// findTree returns the living processes that can be shown to be of c's tree,
// without cgroups. c.reap is held.
//
// The evidence, strongest first. An audit session is inherited, kept across
// double forks, setsid and an emptied environment, and changed by root only: the
// same one proves membership, another tree's disproves it whatever else is
// said. A session is kept unless left by setsid; process groups lie within
// sessions, so they add nothing. A parent is known until it dies. The mark in
// the environment is the process's own word, taken only where nothing stronger
// contradicts.
func (c *Child) findTree() []process {
	all := allProcesses()
	others := c.spawner.otherTrees(c)
	member := make(map[int]bool, 8)
	foreign := make(map[int]bool)
	sessionValid := c.sessionIsOurs(all)
	leader := c.key()

	for _, p := range all {
		switch {
		case p.pid == c.pid:
			member[p.pid] = p.key() == leader
		case others.own(p):
			foreign[p.pid] = true
		case sessionValid(p), c.inAuditSession(p), markOf(p.pid) == c.id:
			member[p.pid] = true
		}
	}
	addDescendants(all, member, foreign)

	var found []process
	for _, p := range all {
		if member[p.pid] && !p.zombie() {
			found = append(found, p)
		}
	}
	return found
}

// addDescendants marks children of members as members until nothing changes.
func addDescendants(all []process, member, foreign map[int]bool) {
	for changed := true; changed; {
		changed = false
		for _, p := range all {
			if member[p.ppid] && !member[p.pid] && !foreign[p.pid] {
				member[p.pid] = true
				changed = true
			}
		}
	}
}

func (c *Child) inAuditSession(p process) bool {
	return c.audit != noAuditSession && auditSession("/proc/"+strconv.Itoa(p.pid)) == c.audit
}

// sessionIsOurs returns the test for being in the leader's session. While the
// leader is there, if only as a zombie, its number is the session's and nobody
// else's. Afterwards the number may be another session's: then only processes
// count that were there when the leader ended, since a session is inherited at
// birth and left by setsid only. (A clock tick, 10 ms, is too short for numbers to
// come round.)
func (c *Child) sessionIsOurs(all []process) func(process) bool {
	leaderThere := slices.ContainsFunc(all, func(p process) bool { return p.key() == c.key() })
	return func(p process) bool {
		return p.session == c.pid && (leaderThere || p.start <= c.ended())
	}
}

// ended returns when the leader ended, in clock ticks since boot, or the end of
// time.
func (c *Child) ended() uint64 {
	select {
	case <-c.done:
		return c.end
	default:
		return ^uint64(0)
	}
}

// trees is how processes of other trees are known.
type trees struct {
	leaders  map[processKey]bool
	sessions map[int]bool // of leaders that have not ended
	audits   map[uint32]bool
}

// otherTrees collects the marks of all trees but c's.
func (s *Spawner) otherTrees(c *Child) trees {
	t := trees{
		leaders:  make(map[processKey]bool),
		sessions: make(map[int]bool),
		audits:   make(map[uint32]bool),
	}
	for _, other := range s.unreleased() {
		if other == c {
			continue
		}
		t.leaders[other.key()] = true
		if other.ended() == ^uint64(0) {
			t.sessions[other.pid] = true
		}
		if other.audit != noAuditSession {
			t.audits[other.audit] = true
		}
	}
	return t
}

// own says whether p is certainly of one of these trees.
func (t trees) own(p process) bool {
	if t.leaders[p.key()] || t.sessions[p.session] {
		return true
	}
	return len(t.audits) > 0 && t.audits[auditSession("/proc/"+strconv.Itoa(p.pid))]
}
