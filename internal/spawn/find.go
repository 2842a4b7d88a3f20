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
//
// The look began after the call, so with reap held the leader is in it exactly if it had not
// been collected when the call was made, and its number is nobody else's until reap is given
// up. (An adopted leader is its parent's to collect at any time; its key tells.) What a
// member has become since does not matter: it can end, which whoever signals it
// checks, but not leave its tree. Adopt alone moves a process to another: an adoption that
// comes after the look comes too late for a tree that is being killed.
func (c *Child) findTree() []process {
	now := c.spawner.looks.take(c.spawner)
	trees := now.trees()
	member := make(map[int]bool, 8)
	sessionValid := c.sessionIsOurs(now.all)
	leader := c.key()

	for _, p := range now.all {
		switch {
		case p.pid == c.pid:
			member[p.pid] = p.key() == leader
		case trees.another(c, p):
			// Nobody's word, and no session, counts against this.
		case sessionValid(p.process), c.inAuditSession(p), p.mark() == c.id:
			member[p.pid] = true
		}
	}
	addDescendants(now.all, member, func(p *seen) bool { return trees.another(c, p) })

	var found []process
	for _, p := range now.all {
		if member[p.pid] && !p.zombie() {
			found = append(found, p.process)
		}
	}
	return found
}

// addDescendants marks children of members as members until nothing changes, but for
// foreign ones.
func addDescendants(all []*seen, member map[int]bool, foreign func(*seen) bool) {
	for changed := true; changed; {
		changed = false
		for _, p := range all {
			if member[p.ppid] && !member[p.pid] && !foreign(p) {
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

// trees is how the processes of all trees are known. It is collected once for a look, after
// that has read /proc. So a leader that had not ended by then has had its number, and so its
// session, throughout the look, or has begun during it: then what the look shows in a session
// of that number has ended or left it, as the kernel gives no number away that a session
// still has. A tree that begins later has no process in the look, and one that is released
// later keeps its own there.
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
