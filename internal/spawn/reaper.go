package spawn

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A reaper collects orphans: processes whose parents have died and which the
// kernel has given to this process, a child subreaper.
//
// It must tell them from children that somebody in this program has started
// and will wait for, and wait4(-1) cannot. Its rule: a child belongs to whoever
// in this process holds a pidfd of it. This package and package os (so also
// os/exec and what is built on it) get theirs by the very clone that makes the
// child, and keep it until the child was waited for. Nobody holds one of an
// orphan, unless it was adopted on purpose.
type reaper struct {
	log   *slog.Logger
	ends  *childSignal
	pokes chan struct{}
	quit  chan struct{}
	ended sync.WaitGroup
}

const (
	// reapDelay is how long the reaper lets orphans gather at least. The daemon's own
	// children raise SIGCHLD too: they are not to cost a search each.
	reapDelay = 50 * time.Millisecond
	// maxReapDelay is how long orphans may lie about.
	maxReapDelay = time.Second
	// reapShare bounds what searching costs in between, where many children end: one part
	// in so many of the time.
	reapShare = 50
)

// startReaper makes this process a child subreaper and starts its goroutine.
func (s *Spawner) startReaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming a child subreaper: %w", err)
	}
	handleIgnored()
	ends, err := newChildSignal()
	if err != nil {
		return err
	}
	r := &reaper{
		log:   s.log,
		ends:  ends,
		pokes: make(chan struct{}, 1),
		quit:  make(chan struct{}),
	}
	s.reaper = r
	r.ended.Go(r.run)
	return nil
}

// handleIgnored makes children start with default dispositions when guestd was
// started with SIGHUP or SIGINT ignored, as by nohup: Go resets in a child
// what the program handles, and leaves what it found ignored. guestd goes on
// ignoring them, by handling them and doing nothing.
func handleIgnored() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// pokeReaper makes the reaper look again, after this package held pidfds that
// were none of its children's.
func (s *Spawner) pokeReaper() {
	if s.reaper != nil {
		s.reaper.poke()
	}
}

// stop ends the goroutine, collects once more, and leaves later orphans to init.
func (r *reaper) stop() {
	close(r.quit)
	r.ended.Wait()
	r.ends.close()
	r.collect()
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
}

func (r *reaper) run() {
	delay := reapDelay
	for {
		select {
		case <-r.ends.came:
		case <-r.pokes:
		case <-r.quit:
			return
		}
		// While orphans gather, no child's end has to wake anybody up.
		r.ends.ignore()
		select {
		case <-time.After(delay):
		case <-r.quit:
			return
		}
		r.ends.listen() // before looking, so that no end is missed
		begin := time.Now()
		if r.collect() > 0 {
			r.poke() // the kernel's list of children may miss some while others go
		}
		delay = min(max(reapDelay, reapShare*time.Since(begin)), maxReapDelay)
	}
}

// poke makes the reaper look again.
func (r *reaper) poke() {
	select {
	case r.pokes <- struct{}{}:
	default: // it is about to look anyway
	}
}

// zombie is a dead child and a pidfd of it that keeps its number meaningful.
type zombie struct {
	pid   int
	pidfd int
}

// collect reaps the orphans that have ended and says how many.
func (r *reaper) collect() (reaped int) {
	zombies := deadChildren()
	if len(zombies) == 0 {
		return 0
	}
	ours := make(map[int]bool, len(zombies))
	for _, z := range zombies {
		ours[z.pidfd] = true
	}
	held, err := heldPidfds(ours)
	for _, z := range zombies {
		if err == nil && !held[z.pid] {
			if _, waitErr := waitid(z.pidfd, unix.WEXITED|unix.WNOHANG, nil); waitErr == nil {
				reaped++
			}
		}
		_ = unix.Close(z.pidfd)
	}
	if err != nil {
		r.log.Error("collecting orphans", "error", err)
	}
	return reaped
}

// deadChildren returns this process's children that have ended and were not
// waited for. waitid(P_ALL) would tell one of them only, again and again.
func deadChildren() []zombie {
	if !anyDeadChild() {
		return nil
	}
	var dead []zombie
	for _, pid := range childPIDs() {
		if p, err := readProcess(pid); err != nil || !p.zombie() {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // waited for meanwhile
		}
		// The number may have been reused: the pidfd must be a dead child's.
		if info, err := waitid(fd, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil || info.Signo == 0 {
			_ = unix.Close(fd)
			continue
		}
		dead = append(dead, zombie{pid, fd})
	}
	return dead
}

// anyDeadChild is a cheap test that mostly spares the search: the daemon's own
// children have been waited for by now.
func anyDeadChild() bool {
	var info siginfo
	err := unix.Waitid(unix.P_ALL, 0, info.raw(), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// childPIDs returns the children of all threads of this process, from
// /proc/self/task/TID/children or, on kernels without CONFIG_PROC_CHILDREN,
// from all of /proc.
func childPIDs() []int {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		return childrenByParent()
	}
	var pids []int
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func childrenByParent() []int {
	var pids []int
	for _, p := range allProcesses() {
		if p.ppid == os.Getpid() {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// heldPidfds returns the processes of which this process holds a pidfd other
// than those in except.
func heldPidfds(except map[int]bool) (map[int]bool, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	held := make(map[int]bool)
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || except[fd] {
			continue
		}
		link, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || !strings.Contains(link, "pidfd") {
			continue
		}
		if pid, ok := pidOfPidfd(e.Name()); ok {
			held[pid] = true
		}
	}
	return held, nil
}

// pidOfPidfd reads which process a pidfd refers to.
func pidOfPidfd(fd string) (int, bool) {
	info, err := os.ReadFile("/proc/self/fdinfo/" + fd)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(info)) {
		if value, ok := strings.CutPrefix(line, "Pid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(value))
			return pid, err == nil
		}
	}
	return 0, false
}
