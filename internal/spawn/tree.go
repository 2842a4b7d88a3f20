package spawn

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// KillTree sends SIGKILL to the leader and everything that descends from it, and
// goes on until nothing new appears. It does not wait for the processes to be
// gone. A tree of which nothing is left is no error.
func (c *Child) KillTree() error {
	var err error
	if c.cgroup != nil {
		err = c.killCgroup()
	} else {
		err = c.killFound()
	}
	if err != nil {
		return fmt.Errorf("killing the tree of %s: %w", c.id, err)
	}
	return nil
}

// killTrees kills every tree, all of them side by side: without cgroups they then share their
// looks at /proc, which one after the other would each take some of their own.
func (s *Spawner) killTrees() {
	var all sync.WaitGroup
	for _, c := range s.unreleased() {
		all.Go(func() {
			if err := c.KillTree(); err != nil {
				s.log.Warn("killing a process at the end", "id", c.id, "error", err)
			}
		})
	}
	all.Wait()
}

// killCgroup kills what is in the cgroup, and the leader, whom root may have moved.
func (c *Child) killCgroup() error {
	if !c.spawner.cgroups.kill {
		defer c.spawner.pokeReaper()
	}
	err := c.spawner.cgroups.killAll(c.cgroup)
	if isRemoved(err) {
		err = nil // since nothing was in it any more
	}
	if leaderErr := c.Signal(unix.SIGKILL, Leader); !errors.Is(leaderErr, os.ErrProcessDone) {
		err = errors.Join(err, leaderErr)
	}
	return err
}

// isRemoved says that a cgroup is not there any more.
func isRemoved(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// signalTree sends sig to every process of the tree once.
func (c *Child) signalTree(sig syscall.Signal) error {
	var sent int
	var err error
	if c.cgroup != nil {
		sent, err = c.signalCgroup(sig)
	} else {
		sent, err = c.signalFound(sig)
	}
	switch {
	case err != nil:
		return fmt.Errorf("signalling the tree of %s: %w", c.id, err)
	case sent == 0:
		return os.ErrProcessDone
	}
	return nil
}

// signalCgroup sends sig to what is in the cgroup, and to the leader, whom root may have
// moved.
func (c *Child) signalCgroup(sig syscall.Signal) (sent int, err error) {
	defer c.spawner.pokeReaper() // pidfds held here keep it from collecting
	pids, err := c.cgroup.pids()
	if err != nil && !isRemoved(err) {
		return 0, err
	}
	sent, err = c.cgroup.signalAll(pids, sig)
	if !slices.Contains(pids, c.pid) && c.Signal(sig, Leader) == nil {
		sent++
	}
	return sent, err
}

// signalChecked sends sig to pid if belongs, called once a pidfd holds on to the
// process, says that it is the one meant. A process that is gone is no error.
func signalChecked(pid int, sig unix.Signal, belongs func() bool) (sent bool, err error) {
	if pid <= 1 || pid == os.Getpid() {
		return false, nil // init and guestd are in nobody's tree
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false, ignoreGone(err)
	}
	defer unix.Close(fd)
	if !belongs() {
		return false, nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return false, ignoreGone(err)
	}
	return true, nil
}

// ignoreGone turns the errors of a process that has ended into none. EINVAL is
// pidfd_open's for a thread that is no process any more.
func ignoreGone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// killPasses bounds the search for more to kill: a fork storm that guestd cannot
// outrun, or a process that cannot die, must not keep it busy for ever.
const (
	killPasses   = 200
	killInterval = time.Millisecond
)

var errKillPasses = errors.New("processes are left after many rounds of killing")

// killFound kills the tree by what /proc shows.
func (c *Child) killFound() error {
	c.reap.Lock() // keeps the leader's number from being reused
	defer c.reap.Unlock()
	defer c.spawner.pokeReaper() // pidfds held here kept it from collecting

	seen := make(map[processKey]bool)
	for range killPasses {
		members := c.findTree()
		fresh := 0
		for _, m := range members {
			if !seen[m.key()] {
				seen[m.key()] = true
				fresh++
			}
		}
		if fresh == 0 {
			return nil
		}
		if err := c.killMembers(members); err != nil {
			return err
		}
		time.Sleep(killInterval)
	}
	return errKillPasses
}

// killMembers stops all, then kills all: none forks while the others are dealt
// with, and none is orphaned while it can still fork.
func (c *Child) killMembers(members []process) error {
	var errs []error
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
		for _, m := range members {
			_, err := signalChecked(m.pid, sig, m.unchanged)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// signalFound sends sig once to each process that /proc shows to be of the tree.
func (c *Child) signalFound(sig syscall.Signal) (sent int, err error) {
	c.reap.Lock()
	defer c.reap.Unlock()
	defer c.spawner.pokeReaper()
	var errs []error
	for _, m := range c.findTree() {
		ok, err := signalChecked(m.pid, sig, m.unchanged)
		if ok {
			sent++
		}
		errs = append(errs, err)
	}
	return sent, errors.Join(errs...)
}
