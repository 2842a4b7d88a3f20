package spawn

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A cgroupParent is the folder below which each tree gets a cgroup of its own.
// Neither guestd nor anything else is ever in it itself.
type cgroupParent struct {
	path   string
	dir    *os.File // open and locked for as long as the Spawner lives
	memory bool     // children have the memory controller
	kill   bool     // children have cgroup.kill (Linux 5.14)

	// mu protects the following.
	mu        sync.Mutex
	lingering map[*cgroup]struct{} // released, and not empty yet
	sweeper   *time.Timer          // armed while something lingers
}

// A cgroup is the folder of one tree.
type cgroup struct {
	path string
	dir  *os.File
}

func (g *cgroup) fd() int { return int(g.dir.Fd()) }

// sweepInterval is how often folders of released trees that still have processes
// are tried again.
const sweepInterval = time.Second

// create makes the folder of one tree.
func (p *cgroupParent) create(id string) (*cgroup, error) {
	path := filepath.Join(p.path, id)
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	return &cgroup{path: path, dir: dir}, nil
}

// release removes the folder, now or once its last process is gone.
func (p *cgroupParent) release(g *cgroup) {
	if p.remove(g) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lingering[g] = struct{}{}
	p.arm()
}

// arm starts the timer when something lingers; mu is held.
func (p *cgroupParent) arm() {
	if len(p.lingering) > 0 && p.sweeper == nil {
		p.sweeper = time.AfterFunc(sweepInterval, p.sweep)
	}
}

// sweep removes the folders of trees that have ended since they were released.
func (p *cgroupParent) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweeper = nil
	for g := range p.lingering {
		if p.remove(g) {
			delete(p.lingering, g)
		}
	}
	p.arm()
}

// remove removes g's folder and says whether it is gone.
func (p *cgroupParent) remove(g *cgroup) bool {
	if err := removeCgroup(g.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	g.dir.Close()
	return true
}

// removeCgroup removes a folder and those that its processes made in it. One
// that has processes is left alone: EBUSY.
func removeCgroup(path string) error {
	err := unix.Rmdir(path)
	if err != unix.EBUSY && err != unix.ENOTEMPTY {
		return err
	}
	for _, sub := range subfolders(path) {
		if err := removeCgroup(sub); err != nil {
			return err
		}
	}
	return unix.Rmdir(path)
}

func subfolders(path string) []string {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil
	}
	var paths []string
	for _, e := range entries {
		if e.IsDir() {
			paths = append(paths, filepath.Join(path, e.Name()))
		}
	}
	return paths
}

// close kills what lingers, removes all folders and unlocks. It gives up at the
// deadline.
func (p *cgroupParent) close(deadline time.Time) error {
	p.mu.Lock()
	if p.sweeper != nil {
		p.sweeper.Stop()
		p.sweeper = nil
	}
	groups := p.lingering
	p.lingering = make(map[*cgroup]struct{})
	p.mu.Unlock()
	for g := range groups {
		_ = p.killAll(g)
	}
	defer p.dir.Close()
	for {
		err := removeCgroup(p.path)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("removing the cgroup folder %s: %w", p.path, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	for g := range groups {
		g.dir.Close()
	}
	return nil
}

// killAll sends SIGKILL to every process in g and in the cgroups below it.
func (p *cgroupParent) killAll(g *cgroup) error {
	if p.kill {
		return writeExisting(filepath.Join(g.path, "cgroup.kill"), "1")
	}
	for range killPasses { // until nothing is left: what dies cannot fork
		pids, err := g.pids()
		if err != nil || len(pids) == 0 {
			return err
		}
		if _, err := g.signalAll(pids, unix.SIGKILL); err != nil {
			return err
		}
		time.Sleep(killInterval)
	}
	return errKillPasses
}

// pids returns the processes in the cgroup and in those below it; zombies are
// not among them.
func (g *cgroup) pids() ([]int, error) { return cgroupPIDs(g.path) }

func cgroupPIDs(path string) ([]int, error) {
	f, err := os.Open(filepath.Join(path, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var pids []int
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if pid, err := strconv.Atoi(lines.Text()); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	for _, sub := range subfolders(path) {
		below, err := cgroupPIDs(sub)
		if err == nil { // else it was removed meanwhile
			pids = append(pids, below...)
		}
	}
	return pids, lines.Err()
}

// holds says whether pid is in the cgroup or in one below it.
func (g *cgroup) holds(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return false
	}
	name := "/" + filepath.Base(filepath.Dir(g.path)) + "/" + filepath.Base(g.path)
	for line := range strings.Lines(string(data)) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if ok && strings.Contains(path+"/", name+"/") {
			return true
		}
	}
	return false
}

// signal sends sig to each process once and returns how many got it. Each pidfd
// is opened first and membership checked after, so that a number that was reused
// in between is never hit.
func (g *cgroup) signal(sig unix.Signal) (sent int, err error) {
	pids, err := g.pids()
	if err != nil {
		return 0, err
	}
	return g.signalAll(pids, sig)
}

func (g *cgroup) signalAll(pids []int, sig unix.Signal) (sent int, err error) {
	var errs []error
	for _, pid := range pids {
		ok, err := signalChecked(pid, sig, func() bool { return g.holds(pid) })
		if ok {
			sent++
		}
		errs = append(errs, err)
	}
	return sent, errors.Join(errs...)
}

// oomKilled says whether the out-of-memory killer has ended a process in the
// cgroup or in one below it.
func (g *cgroup) oomKilled() bool {
	data, err := os.ReadFile(filepath.Join(g.path, "memory.events"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(count) != "0"
		}
	}
	return false
}
