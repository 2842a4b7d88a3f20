package spawn

import "slices"

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
	now := c.spawner.looks.take(c.spawner)
	trees := now.trees()
	member := make(map[int]bool, 8)
	foreign := make(map[int]bool)
	sessionValid := c.sessionIsOurs(now.all)
	leader := c.key()

	for _, p := range now.all {
		switch {
		case p.pid == c.pid:
			member[p.pid] = p.key() == leader
		case trees.another(c, p):
			foreign[p.pid] = true
		case sessionValid(p.process), c.inAuditSession(p), p.mark() == c.id:
			member[p.pid] = true
		}
	}
	addDescendants(now.all, member, foreign)

	var found []process
	for _, p := range now.all {
		if member[p.pid] && !p.zombie() {
			found = append(found, p.process)
		}
	}
	return found
}

// addDescendants marks children of members as members until nothing changes.
func addDescendants(all []*seen, member, foreign map[int]bool) {
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

func (c *Child) inAuditSession(p *seen) bool {
	return c.audit != noAuditSession && p.auditSession() == c.audit
}

// sessionIsOurs returns the test for being in the leader's session. While the
// leader is there, if only as a zombie, its number is the session's and nobody
// else's. Afterwards the number may be another session's: then only processes
// count that were there when the leader ended, since a session is inherited at
// birth and left by setsid only. (A clock tick, 10 ms, is too short for numbers to
// come round.)
func (c *Child) sessionIsOurs(all []*seen) func(process) bool {
	leaderThere := slices.ContainsFunc(all, func(p *seen) bool { return p.key() == c.key() })
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

// trees is how the processes of all trees are known.
type trees struct {
	leaders  map[processKey]*Child
	sessions map[int]*Child // of leaders that have not ended
	audits   map[uint32]*Child
}

// allTrees collects the marks of all trees.
func (s *Spawner) allTrees() trees {
	t := trees{
		leaders:  make(map[processKey]*Child),
		sessions: make(map[int]*Child),
		audits:   make(map[uint32]*Child),
	}
	for _, c := range s.unreleased() {
		t.leaders[c.key()] = c
		if c.ended() == ^uint64(0) {
			t.sessions[c.pid] = c
		}
		if c.audit != noAuditSession {
			t.audits[c.audit] = c
		}
	}
	return t
}

// another says whether p is certainly of another tree than c's.
func (t trees) another(c *Child, p *seen) bool {
	if isAnother(t.leaders[p.key()], c) || isAnother(t.sessions[p.session], c) {
		return true
	}
	return len(t.audits) > 0 && isAnother(t.audits[p.auditSession()], c)
}

func isAnother(owner, c *Child) bool { return owner != nil && owner != c }
