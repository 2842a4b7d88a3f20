package spawn

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// An Adoption names a process that somebody else has started, a fork of one of our
// children, which is to be a tree of its own.
type Adoption struct {
	// ID is what a Command's ID is. The process should have it in its
	// environment, so that what it starts can be found without cgroups.
	ID string
	// PID is its process id. The process must not go on before it is adopted, and
	// lead its session.
	PID int
	// Account is the user that it has to run as.
	Account account.Account
	// Ended asks its parent how it has ended, once it has, and says whether that
	// was known. It is called once and may take some time. With false the end is
	// known if the process has become this one's child: Status.Code is -1, and
	// Signal 0, where it is not.
	Ended func() (syscall.WaitStatus, bool)
}

// ErrNotAdoptable says that a process is not the user's, or not there.
var ErrNotAdoptable = errors.New("not a running process of the user's")

// Adopt makes a running process a Child with a cgroup of its own, where there are
// any. Its limits, umask, nice value and oom_score_adj stay what they are. A
// process that is not adopted is left alone. Errors wrap ErrNotAdoptable, or are
// ErrClosed.
func (s *Spawner) Adopt(a Adoption) (*Child, error) {
	if err := s.admit(); err != nil {
		return nil, err
	}
	defer s.running.Done()
	pidfd, err := unix.PidfdOpen(a.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("adopting process %d: %w (%w)", a.PID, ErrNotAdoptable, err)
	}
	// From here on the number is its own: what is read of it is read of the process.
	if err := s.checkAdoption(a); err != nil {
		_ = unix.Close(pidfd)
		return nil, fmt.Errorf("adopting process %d: %w", a.PID, err)
	}
	c := &Child{
		spawner: s,
		id:      a.ID,
		pid:     a.PID,
		pidfd:   os.NewFile(uintptr(pidfd), "pidfd"),
		cgroup:  s.moveToCgroup(a),
		audit:   noAuditSession,
		done:    make(chan struct{}),
	}
	if c.cgroup == nil {
		c.key() // now: its parent may reap it at any time
	}
	s.mu.Lock()
	s.children[c] = struct{}{}
	s.mu.Unlock()
	s.running.Add(1) // allowed beside Wait: our own count is still held
	go c.waitAdopted(a.Ended)
	return c, nil
}

// checkAdoption makes sure that a process may be taken: whoever names it may be a
// user's program, and we are about to kill it some day.
func (s *Spawner) checkAdoption(a Adoption) error {
	p, err := readProcess(a.PID)
	if err != nil || p.zombie() {
		return ErrNotAdoptable
	}
	data, err := os.ReadFile("/proc/" + strconv.Itoa(a.PID) + "/status")
	if err != nil {
		return ErrNotAdoptable
	}
	uid := strconv.FormatUint(uint64(a.Account.UID), 10)
	for line := range bytes.Lines(data) {
		ids, ok := strings.CutPrefix(string(line), "Uid:")
		if !ok {
			continue
		}
		for _, id := range strings.Fields(ids) { // real, effective, saved, of the file system
			if id != uid {
				return ErrNotAdoptable
			}
		}
	}
	if a.PID <= 1 || a.PID == os.Getpid() || p.session != a.PID {
		return ErrNotAdoptable
	}
	for _, other := range s.unreleased() {
		if other.pid == a.PID && other.ended() == ^uint64(0) {
			return ErrNotAdoptable // it is a tree already
		}
	}
	return nil
}

// moveToCgroup makes a cgroup and moves the process there; nil where that fails.
func (s *Spawner) moveToCgroup(a Adoption) *cgroup {
	if s.cgroups == nil {
		return nil
	}
	group, err := s.cgroups.create()
	if err == nil {
		err = writeExisting(filepath.Join(group.path, "cgroup.procs"), strconv.Itoa(a.PID))
		if err == nil {
			group.close()
			return group
		}
		s.cgroups.release(group)
	}
	s.degrade("moving to a cgroup is refused (" + errnoOf(err).Error() + "): some trees are found through /proc")
	return nil
}

// waitAdopted records the end. It is the child's only goroutine.
func (c *Child) waitAdopted(ended func() (syscall.WaitStatus, bool)) {
	defer c.spawner.running.Done()
	status := Status{Code: -1}
	if err := c.awaitPidfd(); err != nil {
		c.spawner.log.Error("waiting for a process", "id", c.id, "error", err)
	}
	at := time.Now()
	if wait, ok := ended(); ok {
		status = Status{Code: wait.ExitStatus(), Signal: max(wait.Signal(), 0), CoreDumped: wait.CoreDump()}
	} else if own, ok := c.reapOwn(); ok {
		status = own
	}
	status.Ended = at
	c.finish(status)
	c.mu.Lock()
	c.reaped = true
	released := c.released
	c.mu.Unlock()
	if released {
		c.free()
	}
}

// awaitPidfd blocks until the process has ended, whoever's child it is.
func (c *Child) awaitPidfd() error {
	conn, err := c.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var pollErr error
	readErr := conn.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		if err == unix.EINTR {
			return false
		}
		pollErr = err
		return err != nil || n > 0
	})
	return errors.Join(pollErr, readErr)
}

// reapOwn collects a process that has become ours because its parent died.
func (c *Child) reapOwn() (status Status, ok bool) {
	usage := new(unix.Rusage)
	err := pidfdControl(c.pidfd, func(fd int) error {
		info, err := waitid(fd, unix.WEXITED|unix.WNOHANG, usage)
		if err == nil && info.Signo != 0 {
			status, ok = newStatus(info, usage), true
		}
		return err
	})
	return status, ok && err == nil
}
