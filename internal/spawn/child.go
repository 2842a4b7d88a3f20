package spawn

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/epoll"
)

// Scope says whom a signal is for.
type Scope int

// The scopes of Child.Signal.
const (
	Tree   Scope = iota // the leader and all that descend from it
	Leader              // the leader alone
)

// Status says how a leader ended.
type Status struct {
	// Code is the exit code, 0 to 255, or -1 when a signal ended it.
	Code int
	// Signal is the signal that ended it, 0 when it exited.
	Signal syscall.Signal
	// CoreDumped says that the kernel wrote a core file.
	CoreDumped bool
	// OOMKilled says that the kernel's out-of-memory killer has ended a process of
	// the tree, not necessarily the leader. Known with a cgroup that has the memory
	// controller only.
	OOMKilled bool
	// UserTime and SystemTime are the leader's, with those of descendants that
	// were waited for.
	UserTime, SystemTime time.Duration
	// PeakMemory is the most memory, in bytes, that the tree has had at once, as its
	// cgroup tells, page cache included. Without the memory controller it is the peak
	// resident memory of the leader or of its largest descendant that was waited
	// for, whichever is more; the kernel counts guestd's own peak at the time of the
	// start in, so a smaller process shows that.
	PeakMemory int64
	// Ended is when the end was noticed.
	Ended time.Time
}

// A Child is a process that was started, and its tree. It is safe for concurrent
// use.
type Child struct {
	spawner *Spawner
	id      string
	pid     int
	pidfd   *os.File
	cgroup  *cgroup // nil without
	audit   uint32  // audit session of the tree; noAuditSession when unknown
	done    chan struct{}

	keyOnce   sync.Once
	leaderKey processKey // read when it is needed, and before the leader is reaped at the latest

	status Status // written before done is closed
	end    uint64 // time of the leader's end in clock ticks since boot; only without a cgroup

	// reap is held while the tree is being searched: it keeps the leader's zombie
	// and so its number, by which the session's members are known.
	reap sync.Mutex

	// mu protects the following.
	mu       sync.Mutex
	reaped   bool
	released bool
	removed  bool // the cgroup's folder is gone
}

// ID returns the Command's ID.
func (c *Child) ID() string { return c.id }

// PID returns the leader's process id. After the end it may belong to another
// process: it is a piece of information, and nothing to signal by.
func (c *Child) PID() int { return c.pid }

// Done is closed once the leader has ended and its status is recorded,
// whatever its descendants and pipes do.
func (c *Child) Done() <-chan struct{} { return c.done }

// Status returns how the leader ended. It is valid once Done is closed.
func (c *Child) Status() Status {
	select {
	case <-c.done:
		return c.status
	default:
		return Status{}
	}
}

// Await waits for the leader's end and records it: then Done is closed. The leader is a
// zombie until Reap. Both are called once, by the Child's own goroutine or, with
// Command.Await, by the caller's, which saves him from being woken up.
func (c *Child) Await() {
	usage := new(unix.Rusage)
	info, err := c.awaitEnd(usage)
	if err != nil {
		// Somebody else has reaped it, against this package's rules.
		c.spawner.log.Error("waiting for a process", "id", c.id, "error", err)
		c.finish(Status{Code: -1, Ended: time.Now()})
	} else {
		c.finish(newStatus(info, usage))
	}
}

// AwaitNow is Await that does not wait, and says whether there was an end to record. There
// may be none although Watch's descriptor is ready: the end of a leader that is traced is
// its tracer's to know, until that lets go of it. Then Await is still to be called.
func (c *Child) AwaitNow() bool {
	usage := new(unix.Rusage)
	info, err := c.lookForEnd(usage)
	if err != nil || info.Signo == 0 {
		return false
	}
	c.finish(newStatus(info, usage))
	return true
}

// Reap collects the leader that Await has waited for.
func (c *Child) Reap() {
	defer c.spawner.running.Done()
	if c.cgroup == nil {
		c.key()
	}
	c.reap.Lock()
	_ = pidfdControl(c.pidfd, func(fd int) error {
		_, err := waitid(fd, unix.WEXITED, nil)
		return err
	})
	c.reap.Unlock()
	c.mu.Lock()
	c.reaped = true
	released := c.released
	c.mu.Unlock()
	if released {
		c.free()
	}
}

// key names the leader without a cgroup.
func (c *Child) key() processKey {
	c.keyOnce.Do(func() { c.leaderKey = processKey{c.pid, startTime(c.pid)} })
	return c.leaderKey
}

// finish makes the leader's end known.
func (c *Child) finish(status Status) {
	c.status = status
	if c.cgroup == nil {
		c.end = clockTicks()
	} else if c.spawner.cgroups.memory {
		c.status.OOMKilled = c.cgroup.oomKilled()
		if peak := c.cgroup.peakMemory(); peak > 0 {
			c.status.PeakMemory = peak
		}
	}
	close(c.done)
}

// Watch adds the leader's end to set, and returns the descriptor that stands for it
// there. It is for whoever calls Await: before that he removes it again.
func (c *Child) Watch(set *epoll.Set) (fd int, err error) {
	err = pidfdControl(c.pidfd, func(own int) error {
		fd = own
		return set.Add(own)
	})
	return fd, err
}

// endOnly is waitid's options for the leader's end. It stays a zombie: collecting that takes
// the kernel longer than telling how it ended.
const endOnly = unix.WEXITED | unix.WNOWAIT

// lookForEnd says how the leader has ended, if it has: else Signo is 0.
func (c *Child) lookForEnd(usage *unix.Rusage) (info *siginfo, err error) {
	err = pidfdControl(c.pidfd, func(fd int) error {
		info, err = waitid(fd, endOnly|unix.WNOHANG, usage)
		return err
	})
	return info, err
}

// awaitEnd blocks until the leader has ended.
func (c *Child) awaitEnd(usage *unix.Rusage) (info *siginfo, err error) {
	if info, err := c.lookForEnd(usage); err != nil || info.Signo != 0 {
		return info, err
	}
	waiter, err := c.pollable()
	if err != nil { // no descriptor is left, or no watch: then a thread has to wait
		err = pidfdControl(c.pidfd, func(fd int) error {
			info, err = waitid(fd, endOnly, usage)
			return err
		})
		return info, err
	}
	defer waiter.Close()
	conn, err := waiter.SyscallConn()
	if err != nil {
		return nil, err
	}
	readErr := conn.Read(func(uintptr) bool {
		info, err = c.lookForEnd(usage)
		return err != nil || info.Signo != 0
	})
	return info, errors.Join(err, readErr)
}

// pollable returns a pidfd of the leader that the runtime's poller knows: a goroutine
// that waits for it occupies no thread. The Child's own is not registered, which costs
// a short command more than it saves.
func (c *Child) pollable() (*os.File, error) {
	var fd int
	err := pidfdControl(c.pidfd, func(own int) (err error) {
		fd, err = unix.FcntlInt(uintptr(own), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, fmt.Errorf("preparing to wait for a process: %w", err)
	}
	waiter := os.NewFile(uintptr(fd), "pidfd")
	if err := waiter.SetReadDeadline(time.Time{}); err != nil { // os.ErrNoDeadline: fs.epoll.max_user_watches is reached
		waiter.Close()
		return nil, fmt.Errorf("preparing to wait for a process: %w", err)
	}
	return waiter, nil
}

// Signal sends sig to the leader or to every process of the tree that can be
// found; see the package comment for what can be missed without cgroups. It
// returns os.ErrProcessDone when nobody is left to get it.
func (c *Child) Signal(sig syscall.Signal, scope Scope) error {
	if scope == Tree {
		return c.signalTree(sig)
	}
	select {
	case <-c.done:
		return os.ErrProcessDone // a zombie would take the signal silently
	default:
	}
	err := pidfdControl(c.pidfd, func(fd int) error {
		return unix.PidfdSendSignal(fd, sig, nil, 0)
	})
	if errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrClosed) {
		return os.ErrProcessDone
	}
	if err != nil {
		return fmt.Errorf("signalling process %s: %w", c.id, err)
	}
	return nil
}

// Release gives the child back: its pidfd once the leader has ended, and its
// cgroup folder as soon as the tree is empty. It ends no process, and a leader
// that still runs is waited for all the same. Releasing twice is fine.
func (c *Child) Release() {
	c.mu.Lock()
	first := !c.released
	c.released = true
	reaped := c.reaped
	c.mu.Unlock()
	if first && reaped {
		c.free()
	}
}

// ReleaseIfEmpty is Release where nothing of the tree is left, and says whether that
// is so. The leader must have ended. It looks for the whole tree and is not for
// anybody who is in a hurry.
func (c *Child) ReleaseIfEmpty() bool {
	if c.cgroup != nil {
		if !c.cgroup.remove() {
			return false
		}
		c.mu.Lock()
		c.removed = true
		c.mu.Unlock()
	} else if !errors.Is(c.signalTree(0), os.ErrProcessDone) {
		return false
	}
	c.Release()
	return true
}

// free runs once, when the child is both reaped and released.
func (c *Child) free() {
	c.pidfd.Close()
	c.mu.Lock()
	removed := c.removed
	c.mu.Unlock()
	if c.cgroup != nil && !removed {
		c.spawner.cgroups.release(c.cgroup)
	}
	c.spawner.mu.Lock()
	delete(c.spawner.children, c)
	c.spawner.mu.Unlock()
}
