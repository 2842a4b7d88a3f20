package proc

import "sync"

// maxCaptured is how many bytes of output all captures that were not dropped hold
// together.
const maxCaptured = 32 << 20

// captureStore bounds the memory of captures that wait to be asked for (again): over
// the limit the oldest are dropped.
type captureStore struct {
	// mu protects the following. It is taken before a process's mu, never after.
	mu    sync.Mutex
	order []*Process // oldest first; those without a size were dropped
	sizes map[*Process]int
	total int
}

// add counts n more bytes that p's capture holds.
func (s *captureStore) add(p *Process, n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sizes == nil {
		s.sizes = make(map[*Process]int)
	}
	if _, known := s.sizes[p]; !known {
		s.order = append(s.order, p)
	}
	s.sizes[p] += n
	s.total += n
	for s.total > maxCaptured {
		oldest := s.order[0]
		s.order = s.order[1:]
		s.dropLocked(oldest)
	}
}

// drop frees what p's capture holds.
func (s *captureStore) drop(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(p)
	for len(s.order) > 0 {
		if _, known := s.sizes[s.order[0]]; known {
			break
		}
		s.order = s.order[1:]
	}
}

func (s *captureStore) dropLocked(p *Process) {
	s.total -= s.sizes[p]
	delete(s.sizes, p)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.captureDropped = true
	for i := range p.captures {
		p.captures[i].drop()
	}
}
