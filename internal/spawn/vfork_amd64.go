package spawn

import (
	"math"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/spawn/internal/nofile"
)

// hasVfork: children are started by vfork, unless their descriptors overlap.
const hasVfork = true

// forkExec is syscall.ForkExec, and takes less time: the error of a failed exec comes through the
// memory that parent and child share instead of a pipe, and no lock keeps starts from going on side
// by side. It does more, too: the child sets its limits itself, can be killed while it is on its way,
// and ignores no signal that guestd was started with ignored.
//
// Every descriptor of guestd's is close-on-exec from the moment that it exists, and so
// syscall.ForkLock, which is about those that are not, is not taken.
func (l *launch) forkExec(path string, args []string, attr *syscall.ProcAttr) (pid int, err error) {
	if !l.settings.vfork {
		return syscall.ForkExec(path, args, attr)
	}
	c, err := newChildImage(path, args, attr, l)
	if err != nil {
		return 0, err
	}
	c.cloneBy(attr.Sys, &l.early)
	result := vfork(&c.clone, &c.steps[0], uintptr(len(c.steps)), &c.masks, &c.failed)
	runtime.KeepAlive(c) // what its steps point to
	runtime.KeepAlive(attr)
	if errno := -int(result); errno > 0 {
		return 0, syscall.Errno(errno)
	}
	pidfd := int(l.early)
	if c.failed != 0 {
		_, _ = waitid(pidfd, unix.WEXITED, nil)
		l.closePidfd(pidfd)
		return 0, c.failed
	}
	c.degrade(l.spawner)
	*attr.Sys.PidFD = pidfd
	return int(result), nil
}

// cloneArgs is the kernel's struct clone_args, in which what is not named stays zero.
type cloneArgs struct {
	flags, pidfd uint64
	_, _         uint64 // child_tid, parent_tid
	exitSignal   uint64
	_, _, _      uint64 // stack, stack_size, tls
	_, _         uint64 // set_tid, set_tid_size
	cgroup       uint64
}

// vfork makes the given clone(2) or clone3(2), with CLONE_VM and CLONE_VFORK, after which the child
// makes the steps. It returns when the child has executed its program or ended, with the child's
// process id or a negative errno of the clone, and the errno of the step that failed, if one did.
//
// The runtime knows it for a system call, and so goes on with other goroutines while the
// child loads its program, or is stopped before that. No signal may come meanwhile: its
// handler would run in the child, too, on the parent's memory. So all are blocked, as
// masks[0] has it; masks[1] gets those that were before. The thread must be locked.
//
//go:noescape
func vfork(clone, steps *step, count uintptr, masks *[2]uint64, failed *syscall.Errno) (pid uintptr)

// childImage is all that a child needs between clone and exec, prepared, since it may
// neither allocate nor grow the stack there.
type childImage struct {
	clone step
	steps []step // the last is execve

	masks  [2]uint64     // of signals: all, and those that were blocked before
	failed syscall.Errno // what the child could not do

	limitSteps, oomSteps []int // those of steps that set limits, and oom_score_adj

	// What steps point to.
	cloneArgs cloneArgs
	path, dir *byte
	args, env []*byte
	groups    []uint32
	nofile    *nofile.Limit
	limits    []unix.Rlimit
	oomScore  []byte
}

// step is a system call that a child makes, and its clone; vfork knows where its fields are.
type step struct {
	call, a, b, c, d uintptr
	optional         bool   // the child goes on when it fails
	failed           uint32 // with this errno
}

func newChildImage(path string, args []string, attr *syscall.ProcAttr, l *launch) (*childImage, error) {
	c := &childImage{nofile: nofile.Lowered(), masks: [2]uint64{^uint64(0), 0}}
	var err error
	if c.path, err = syscall.BytePtrFromString(path); err != nil {
		return nil, err
	}
	if c.dir, err = syscall.BytePtrFromString(attr.Dir); err != nil {
		return nil, err
	}
	if c.args, err = syscall.SlicePtrFromStrings(args); err != nil {
		return nil, err
	}
	if c.env, err = syscall.SlicePtrFromStrings(attr.Env); err != nil {
		return nil, err
	}
	if l.settings.setOOM && !l.settings.hold {
		c.oomScore = strconv.AppendInt(nil, int64(l.settings.oomScoreAdj), 10)
	}
	c.prepare(attr, l)
	return c, nil
}

// cloneBy chooses the clone. Into a cgroup leads clone3 alone, which also resets handled signals
// (CLONE_CLEAR_SIGHAND); elsewhere it gains little, and container runtimes refuse it.
func (c *childImage) cloneBy(sys *syscall.SysProcAttr, pidfd *int32) {
	const flags = unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_PIDFD
	to := uintptr(unsafe.Pointer(pidfd))
	if !sys.UseCgroupFD {
		c.clone = step{call: unix.SYS_CLONE, a: flags | uintptr(unix.SIGCHLD), c: to}
		return
	}
	c.cloneArgs = cloneArgs{
		flags: flags | unix.CLONE_INTO_CGROUP | unix.CLONE_CLEAR_SIGHAND, pidfd: uint64(to),
		exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(sys.CgroupFD),
	}
	c.clone = step{call: unix.SYS_CLONE3, a: uintptr(unsafe.Pointer(&c.cloneArgs)), b: unsafe.Sizeof(c.cloneArgs)}
}

// prepare lists what the child does, in package syscall's order but for the descriptors:
// once it is the user's, another process of his can stop it, and while it has copies of
// guestd's nobody who waits for the end of one of them would see it.
func (c *childImage) prepare(attr *syscall.ProcAttr, l *launch) {
	most := 24
	if !attr.Sys.UseCgroupFD {
		most += 62 // signals
	}
	c.steps = make([]step, 0, most)
	c.resetSignals(l.spawner.inherited.ignored, attr.Sys.UseCgroupFD)
	if c.nofile != nil {
		c.then(step{call: unix.SYS_PRLIMIT64, b: unix.RLIMIT_NOFILE, c: uintptr(unsafe.Pointer(c.nofile)), optional: true})
	}
	c.raise(l.cmd.Rlimits)
	c.then(step{call: unix.SYS_SETSID})
	for i, fd := range attr.Files {
		c.then(step{call: unix.SYS_DUP3, a: fd, b: uintptr(i)})
	}
	c.then(step{call: unix.SYS_CLOSE_RANGE, a: uintptr(len(attr.Files)), b: math.MaxUint32, optional: true}) // Linux 5.9
	c.scoreOOM(len(attr.Files))
	if cred := attr.Sys.Credential; cred != nil {
		c.groups = cred.Groups
		c.then(step{call: unix.SYS_SETGROUPS, a: uintptr(len(c.groups)), b: uintptr(unsafe.Pointer(unsafe.SliceData(c.groups)))})
		c.then(step{call: unix.SYS_SETGID, a: uintptr(cred.Gid)})
		c.then(step{call: unix.SYS_SETUID, a: uintptr(cred.Uid)})
	}
	c.then(step{call: unix.SYS_CHDIR, a: uintptr(unsafe.Pointer(c.dir))})
	for _, limit := range l.cmd.Rlimits {
		c.limit(limit)
	}
	if attr.Sys.Setctty {
		c.then(step{call: unix.SYS_IOCTL, b: unix.TIOCSCTTY, c: 1})
	}
	if attr.Sys.Ptrace {
		c.then(step{call: unix.SYS_PTRACE, a: unix.PTRACE_TRACEME})
	}
	c.then(step{call: unix.SYS_RT_SIGPROCMASK, a: unix.SIG_SETMASK, b: uintptr(unsafe.Pointer(&c.masks[1])), d: sigsetSize})
	c.then(step{call: unix.SYS_EXECVE, a: uintptr(unsafe.Pointer(c.path)), b: uintptr(unsafe.Pointer(&c.args[0])),
		c: uintptr(unsafe.Pointer(&c.env[0]))})
}

func (c *childImage) then(s step) { c.steps = append(c.steps, s) }

// resetSignals has the child take the default dispositions, before any signal can come: for those that
// guestd was started with ignored and, unless its clone has done so, for those that it handles.
func (c *childImage) resetSignals(ignored []unix.Signal, byClone bool) {
	if byClone {
		for _, sig := range ignored {
			c.resetSignal(sig)
		}
		return
	}
	const signals = 64
	for sig := unix.Signal(1); sig <= signals; sig++ {
		if sig != unix.SIGKILL && sig != unix.SIGSTOP { // which always have it
			c.resetSignal(sig)
		}
	}
}

func (c *childImage) resetSignal(sig unix.Signal) {
	c.then(step{call: unix.SYS_RT_SIGACTION, a: uintptr(sig), b: uintptr(unsafe.Pointer(&defaultAction)), d: sigsetSize})
}

var defaultAction sigaction // whose handler is SIG_DFL
