package spawn

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Start starts cmd and returns once its program has replaced guestd's image in
// the child. A command that cannot be started is a *StartError and has left
// nothing behind; after Close it is ErrClosed.
func (s *Spawner) Start(cmd Command) (*Child, error) {
	if err := cmd.check(); err != nil {
		return nil, err
	}
	cred, err := s.self.credential(cmd.Account)
	if err != nil {
		return nil, err
	}
	if err := s.admit(); err != nil {
		return nil, err
	}
	defer s.running.Done()

	l := &launch{spawner: s, cmd: &cmd, env: cmd.environment(), files: cmd.files(s.null), pidfd: -1, early: -1}
	l.settings = s.settingsOf(&cmd, l.files)
	l.sys = syscall.SysProcAttr{
		Setsid:     true,
		Setctty:    cmd.Terminal, // descriptor 0, Ctty's zero value
		Credential: cred,
		PidFD:      &l.pidfd,
		Cloneflags: cloneClearSighand,
	}
	l.sys.Ptrace = l.settings.hold && s.mayPtrace()
	if s.cgroups != nil {
		l.joinCgroup()
	}
	s.mu.Lock()
	s.starting[l] = struct{}{}
	s.mu.Unlock()
	err = l.run()
	runtime.KeepAlive(cmd.Stdin)
	runtime.KeepAlive(cmd.Stdout)
	runtime.KeepAlive(cmd.Stderr)
	runtime.KeepAlive(cmd.Extra)
	if err != nil {
		s.mu.Lock()
		delete(s.starting, l)
		s.mu.Unlock()
		l.leaveCgroup()
		return nil, err
	}
	return s.adopt(l), nil
}

// cloneClearSighand gives the child default dispositions for signals that guestd handles.
// Only clone3 knows it, which Go uses when a cgroup is given; clone ignores it.
const cloneClearSighand = unix.CLONE_CLEAR_SIGHAND

// launch is one Start in progress.
type launch struct {
	spawner  *Spawner
	cmd      *Command
	env      []string
	files    []uintptr
	sys      syscall.SysProcAttr
	settings settings
	cgroup   *cgroup // nil without; the spawner's mutex guards it

	// early is the child's pidfd from clone on, while it is on its way to its program, and
	// -1 where that is not known. The kernel writes it; the spawner's mutex is held by who
	// uses it and by who makes it invalid.
	early int32

	// Filled in by run.
	pid     int
	pidfd   int
	audit   uint32        // the child's audit session; noAuditSession when unknown
	mask    unix.Sigset_t // of a held child: the thread's own
	started time.Time     // right after exec
}

func (l *launch) joinCgroup() {
	group, err := l.spawner.cgroups.create()
	if err != nil {
		l.spawner.degrade("a cgroup could not be made (" + errnoOf(err).Error() + "): some trees are found through /proc")
		return
	}
	l.cgroup = group
	l.sys.UseCgroupFD = true
	l.sys.CgroupFD = group.fd
}

// leaveCgroup gives the cgroup up, after a failure or to try without.
func (l *launch) leaveCgroup() {
	if l.cgroup == nil {
		return
	}
	l.spawner.mu.Lock()
	group := l.cgroup
	l.cgroup = nil
	l.spawner.mu.Unlock()
	l.spawner.cgroups.release(group)
	l.sys.UseCgroupFD = false
}

// run starts the child on whatever thread its settings need.
func (l *launch) run() error {
	l.audit = noAuditSession
	if l.settings.thread {
		return onFreshThread(func() error {
			if err := l.prepareThread(); err != nil {
				return &StartError{Reason: Other, Path: l.cmd.Args[0], Err: err}
			}
			return l.exec()
		})
	}
	if l.settings.hold {
		// ptrace knows the thread that forked as the tracer.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	return l.exec()
}

// fork starts the given file with these arguments, once, and applies the
// settings that a held child gets.
func (l *launch) fork(path string, args []string) error {
	for attempt := 0; ; attempt++ {
		err := l.forkOnce(path, args)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.ETXTBSY) && attempt < textBusyRetries:
			// The file was just written: a child of a start running beside this
			// one holds the descriptor until its own exec (go.dev/issue/22315).
			time.Sleep(time.Millisecond << attempt)
		case l.cgroup != nil && slices.Contains(cgroupRefusals, errnoOf(err)):
			l.spawner.degrade("cloning into a cgroup is refused (" + errnoOf(err).Error() + "): some trees are found through /proc")
			l.leaveCgroup()
		case l.sys.Ptrace && errors.Is(err, syscall.EPERM):
			l.spawner.refusePtrace()
			l.sys.Ptrace = false
		default:
			return err
		}
	}
}

// textBusyRetries bounds the wait for a busy file to 63 ms.
const textBusyRetries = 6

// cgroupRefusals are clone3's errors that are about the cgroup and not about
// the command: a threaded or removed cgroup, or a kernel that knows none.
var cgroupRefusals = []syscall.Errno{syscall.EBUSY, syscall.EOPNOTSUPP, syscall.ENODEV, syscall.EBADF, syscall.ENOSYS}

func (l *launch) forkOnce(path string, args []string) error {
	if l.spawner.audit && l.cgroup == nil && !l.cmd.Forks {
		l.audit = newAuditSession(l.cmd.Account.UID)
	}
	runtime.LockOSThread() // from which the child inherits
	defer runtime.UnlockOSThread()
	l.spawner.slack.restore()
	if l.sys.Ptrace {
		if err := l.blockSignals(); err != nil {
			return err
		}
	}
	pid, err := l.forkExec(path, args, &syscall.ProcAttr{
		Dir:   l.cmd.Dir,
		Env:   l.env,
		Files: l.files,
		Sys:   &l.sys,
	})
	if l.sys.Ptrace {
		l.restoreSignals()
	}
	if err != nil {
		return err
	}
	l.pid, l.started = pid, time.Now()
	if l.settings.hold {
		return l.applyHeld()
	}
	return nil
}

// adopt makes the started process a Child and begins to wait for it.
func (s *Spawner) adopt(l *launch) *Child {
	c := &Child{
		spawner: s,
		id:      l.cmd.ID,
		pid:     l.pid,
		pidfd:   os.NewFile(uintptr(l.pidfd), "pidfd"), // not known to the poller: see awaitEnd
		cgroup:  l.cgroup,
		audit:   l.audit,
		done:    make(chan struct{}),
	}
	if c.cgroup != nil {
		c.cgroup.close()
	}
	s.mu.Lock()
	delete(s.starting, l)
	s.children[c] = struct{}{}
	s.mu.Unlock()
	s.running.Add(1) // allowed beside Wait: Start's own count is still held
	if !l.cmd.Await {
		go func() {
			c.Await()
			c.Reap()
		}()
	}
	return c
}
