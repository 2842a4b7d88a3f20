package proc

import "guestd.internal/internal/epoll"

// idleSets is how many epoll instances a table keeps for the next commands. More are
// opened where more commands are watched at once.
const idleSets = 4

// openSets opens those that are kept, so that a table has as many descriptors before its
// first command as after it. What cannot be opened is tried again when it is needed.
func (t *Table) openSets() {
	for range idleSets {
		if set, err := epoll.New(); err == nil {
			t.sets = append(t.sets, set)
		}
	}
}

// takeSet returns an empty epoll instance, for putSet.
func (t *Table) takeSet() (*epoll.Set, error) {
	t.mu.Lock()
	t.watched++
	if last := len(t.sets) - 1; last >= 0 {
		set := t.sets[last]
		t.sets = t.sets[:last]
		t.mu.Unlock()
		return set, nil
	}
	t.mu.Unlock()
	set, err := epoll.New()
	if err != nil {
		t.mu.Lock()
		t.watched--
		t.mu.Unlock()
	}
	return set, err
}

// wantsSet says whether putSet would keep one. Where not, it need not be empty.
func (t *Table) wantsSet() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.closed && len(t.sets) < idleSets
}

// putSet keeps an empty one for another command, or closes it.
func (t *Table) putSet(set *epoll.Set) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watched--
	if t.closed || len(t.sets) == idleSets {
		set.Close()
		return
	}
	t.sets = append(t.sets, set)
}

// dropSet closes one that is not to be kept.
func (t *Table) dropSet(set *epoll.Set) {
	set.Close()
	t.mu.Lock()
	t.watched--
	t.mu.Unlock()
}

// closeSets closes those that are kept; mu is held.
func (t *Table) closeSets() {
	for _, set := range t.sets {
		set.Close()
	}
	t.sets = nil
}
