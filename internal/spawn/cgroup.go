package spawn

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A cgroup is the folder of one tree. It serves one tree only: root in the guest may
// have changed whatever a folder has, or left something in it.
type cgroup struct {
	path string
	fd   int // of the folder, until the leader is in it; then -1
}

// open opens the folder for clone3(2).
func (g *cgroup) open() (err error) {
	g.fd, err = unix.Open(g.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

// close closes the folder, of which the path does from now on.
func (g *cgroup) close() {
	if g.fd >= 0 {
		_ = unix.Close(g.fd)
		g.fd = -1
	}
}

// remove removes the folder, unless a process is in it or below it, and says whether
// it is gone.
func (g *cgroup) remove() bool {
	g.close()
	err := unix.Rmdir(g.path)
	if (errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY)) && !g.populated() {
		err = removeCgroup(g.path) // and the folders that its processes have made
	}
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// populated says whether there is a process in the cgroup or below it.
func (g *cgroup) populated() bool {
	return countIn(filepath.Join(g.path, "cgroup.events"), "populated") > 0
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

// signalAll sends sig to each of these processes once and returns how many got it. Each
// pidfd is opened first and membership checked after, so that a number that was reused in
// between is never hit.
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
	return countIn(filepath.Join(g.path, "memory.events"), "oom_kill") > 0
}

// countIn returns the number behind a name in a cgroup's file of "NAME NUMBER" lines,
// 0 where it is not there.
func countIn(path, name string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if count, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(count))
			return n
		}
	}
	return 0
}

// peakMemory returns the most memory that the cgroup and those below it have had at
// once, in bytes; 0 where that is not known (Linux before 5.19).
func (g *cgroup) peakMemory() int64 {
	data, err := os.ReadFile(filepath.Join(g.path, "memory.peak"))
	if err != nil {
		return 0
	}
	peak, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return peak
}
