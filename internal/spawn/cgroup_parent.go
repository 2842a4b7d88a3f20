package spawn

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// A cgroupParent is the folder below which each tree gets a cgroup of its own.
// Neither guestd nor anything else is ever in it itself.
//
// Making and removing a folder costs a tenth of a short command's time, and the
// kernel does one at a time, beside which no process is cloned into any. So
// folders are made before they are needed and removed when several are due, by a
// goroutine that ends with close.
type cgroupParent struct {
	path   string
	dir    *os.File // open and locked for as long as the Spawner lives
	memory bool     // children have the memory controller
	kill   bool     // children have cgroup.kill (Linux 5.14)

	ready chan *cgroup // made in advance
	tidy  *time.Timer  // runs out when the goroutine has something to do
	quit  chan struct{}
	ended sync.WaitGroup

	// mu protects the following.
	mu       sync.Mutex
	number   uint64               // of folders made so far
	released map[*cgroup]struct{} // to be removed, once they are empty
	armed    bool                 // tidy runs
	closed   bool                 // no folder is made any more
}

const (
	// readyCgroups is how many folders are made in advance, and refillBelow how few
	// may be left of them before that is done at once.
	readyCgroups = 16
	refillBelow  = 2
	// tidyDelay is how long folders gather that are to be made and removed.
	tidyDelay = 20 * time.Millisecond
	// lingerInterval is how often folders of released trees that still have processes
	// are tried again.
	lingerInterval = time.Second
)

// start starts the goroutine of a parent that is ready for use.
func (p *cgroupParent) start() {
	p.ready = make(chan *cgroup, readyCgroups)
	p.released = make(map[*cgroup]struct{})
	p.quit = make(chan struct{})
	p.tidy = time.NewTimer(time.Hour)
	p.tidy.Stop()
	p.ended.Go(p.run)
}

// run makes and removes folders.
func (p *cgroupParent) run() {
	for {
		select {
		case <-p.tidy.C:
		case <-p.quit:
			return
		}
		p.mu.Lock()
		p.armed = false
		p.mu.Unlock()
		p.removeReleased()
		for len(p.ready) < cap(p.ready) {
			g, err := p.make()
			if err != nil {
				break // create meets it, too, and tells it
			}
			p.ready <- g // never blocks: this goroutine alone sends
		}
	}
}

// arm makes the goroutine run within delay; mu is held.
func (p *cgroupParent) arm(delay time.Duration) {
	if !p.armed || delay == 0 {
		p.armed = true
		p.tidy.Reset(delay)
	}
}

// create returns an open folder for one tree.
func (p *cgroupParent) create() (g *cgroup, err error) {
	select {
	case g = <-p.ready:
	default:
		if g, err = p.make(); err != nil {
			return nil, err
		}
	}
	delay := tidyDelay
	if len(p.ready) < refillBelow {
		delay = 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arm(delay)
	return g, nil
}

// make makes a folder and opens it.
func (p *cgroupParent) make() (*cgroup, error) {
	p.mu.Lock()
	p.number++
	path, closed := filepath.Join(p.path, "tree-"+strconv.FormatUint(p.number, 10)), p.closed
	p.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, err
	}
	g := &cgroup{path: path, fd: -1}
	if err := g.open(); err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

// release removes the folder, soon or once its last process is gone.
func (p *cgroupParent) release(g *cgroup) {
	g.close() // is closed already, but for a start that failed
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released[g] = struct{}{}
	p.arm(tidyDelay)
}

// removeReleased removes the folders of released trees that have ended.
func (p *cgroupParent) removeReleased() {
	p.mu.Lock()
	groups := p.released
	p.released = make(map[*cgroup]struct{})
	p.mu.Unlock()
	for g := range groups {
		if g.remove() {
			delete(groups, g)
		}
	}
	if len(groups) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for g := range groups {
		p.released[g] = struct{}{}
	}
	p.arm(lingerInterval)
}

// removeReady removes the folders that were made in advance.
func (p *cgroupParent) removeReady() {
	for {
		select {
		case g := <-p.ready:
			g.remove()
		default:
			return
		}
	}
}

// close kills what lingers, removes all folders and unlocks. It gives up at the
// deadline. A start that goes on meanwhile is refused a folder.
func (p *cgroupParent) close(deadline time.Time) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	close(p.quit)
	p.ended.Wait()
	p.tidy.Stop()
	p.removeReady()
	p.mu.Lock()
	lingering := slices.Collect(maps.Keys(p.released))
	p.mu.Unlock()
	for _, g := range lingering {
		_ = p.killAll(g) // what it leaves keeps the folder from being removed
	}
	defer p.dir.Close()
	for {
		err := removeCgroup(p.path)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("removing the cgroup folder %s: %w", p.path, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
