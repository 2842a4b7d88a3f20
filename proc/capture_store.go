package proc

import (
	"slices"
	"sync"
)

// maxCaptured is how many bytes of output all captures that were not dropped hold
// together.
const maxCaptured = 32 << 20

// captureStore bounds the memory of captures that wait to be asked for (again): over
// the limit the oldest are dropped.
type captureStore struct {
	// mu protects the following. It is taken before a process's mu, never after.
	mu    sync.Mutex
	order []*Process // those that hold something, oldest first
	sizes map[*Process]int
	total int
}

// add gives p the capture of one more stream, unless p's was dropped already.
func (s *captureStore) add(p *Process, captured Captured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := p.addCapture(captured)
	if size == 0 {
		return
	}
	if s.sizes == nil {
		s.sizes = make(map[*Process]int)
	}
	if _, known := s.sizes[p]; !known {
		s.order = append(s.order, p)
	}
	s.sizes[p] += size
	s.total += size
	for s.total > maxCaptured {
		s.dropLocked(s.order[0])
	}
}

// addCapture returns how many bytes p holds more now.
func (p *Process) addCapture(captured Captured) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.captureDropped {
		captured.drop()
	}
	p.captures = append(p.captures, captured)
	return len(captured.Head) + len(captured.Tail)
}

// drop frees what p's capture holds.
func (s *captureStore) drop(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(p)
}

func (s *captureStore) dropLocked(p *Process) {
	if size, known := s.sizes[p]; known {
		s.total -= size
		delete(s.sizes, p)
		at := slices.Index(s.order, p)
		s.order = slices.Delete(s.order, at, at+1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.captureDropped = true
	for i := range p.captures {
		p.captures[i].drop()
	}
}
