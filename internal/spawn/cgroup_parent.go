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
	created  time.Time            // when a folder was last given away
	demand   demand               // for folders
	alarm    time.Time            // when tidy runs out; zero when it does not run
	closed   bool                 // no folder is made any more
}

const (
	// refillBelow is how few folders may be left when some are made at once.
	refillBelow = 2
	// tidyDelay is for how long nothing is to have been started when folders are made and
	// removed otherwise: portion at a time, every portionDelay, since a call that comes
	// meanwhile has to wait.
	tidyDelay    = 20 * time.Millisecond
	portion      = 16
	portionDelay = 5 * time.Millisecond
	// lingerInterval is how often folders of released trees that still have processes
	// are tried again.
	lingerInterval = time.Second
)

// start starts the goroutine of a parent that is ready for use.
func (p *cgroupParent) start() {
	p.ready = make(chan *cgroup, mostReady)
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
		target, now := p.due()
		if now == 0 {
			continue
		}
		p.removeReleased()
		if p.makeReady(min(target, len(p.ready)+now)) {
			p.removeReady(max(target, len(p.ready)-now))
			p.armNext(target)
		}
	}
}

// due says how many folders are to be ready in the end, and how many may be made or
// removed now: none while starts go on that still have some.
func (p *cgroupParent) due() (target, now int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alarm = time.Time{}
	switch {
	case len(p.ready) < refillBelow:
		p.demand.rise(time.Now())
		return p.demand.ready, portion
	case time.Since(p.created) < tidyDelay:
		p.arm(tidyDelay)
		return 0, 0
	default:
		return p.demand.at(time.Now()), portion
	}
}

// makeReady makes folders until so many are ready, and says whether it could. It belongs
// to run, which alone adds to them.
func (p *cgroupParent) makeReady(want int) bool {
	for len(p.ready) < want {
		g, err := p.make()
		if err != nil {
			return false // create meets it, too, and tells it
		}
		p.ready <- g
	}
	return true
}

// armNext has the goroutine go on, or look again when the demand may have fallen.
func (p *cgroupParent) armNext(target int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.ready) != target:
		p.arm(portionDelay)
	case target > fewestReady:
		p.arm(demandTime)
	}
}

// arm makes the goroutine run within delay; mu is held.
func (p *cgroupParent) arm(delay time.Duration) {
	alarm := time.Now().Add(delay)
	if p.alarm.IsZero() || alarm.Before(p.alarm) {
		p.alarm = alarm
		p.tidy.Reset(delay)
	}
}

// create returns an open folder for one tree.
func (p *cgroupParent) create() (g *cgroup, err error) {
	if g = p.takeReady(); g == nil {
		if g, err = p.makeOpen(); err != nil {
			return nil, err
		}
	}
	delay := tidyDelay
	if len(p.ready) < refillBelow {
		delay = 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.created = time.Now()
	p.arm(delay)
	return g, nil
}

// takeReady opens a folder that was made in advance; nil where there is none. It is not
// open before: a child gets a copy of every descriptor. Root in the guest may have removed
// it.
func (p *cgroupParent) takeReady() *cgroup {
	for {
		select {
		case g := <-p.ready:
			err := g.open()
			if err == nil {
				return g
			}
			g.remove()
			if !errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		default:
			return nil
		}
	}
}

// makeOpen makes a folder and opens it.
func (p *cgroupParent) makeOpen() (*cgroup, error) {
	g, err := p.make()
	if err != nil {
		return nil, err
	}
	if err := g.open(); err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

// make makes a folder.
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
	return &cgroup{path: path, fd: -1}, nil
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

// removeReady removes folders that were made in advance, until so many are left.
func (p *cgroupParent) removeReady(want int) {
	for len(p.ready) > want {
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
	p.removeReady(0)
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
