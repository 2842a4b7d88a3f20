package spawn

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/spawn/internal/nofile"
)

// forkExec is syscall.ForkExec, and takes less time where a child goes into a cgroup,
// as each does where there are any: the error of a failed exec comes through the memory
// that parent and child share instead of a pipe, no lock keeps starts from going on side by
// side, and the kernel alone resets the signals (CLONE_CLEAR_SIGHAND), where package
// syscall makes one call for each.
//
// Every descriptor of guestd's is close-on-exec from the moment that it exists, and so
// syscall.ForkLock, which is about those that are not, is not taken.
func forkExec(path string, args []string, attr *syscall.ProcAttr) (pid int, err error) {
	if !attr.Sys.UseCgroupFD || attr.Sys.Ptrace || overlap(attr.Files) {
		return syscall.ForkExec(path, args, attr)
	}
	c, err := newChildImage(path, args, attr)
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread() // whose signal mask changes for a moment
	result := c.vfork()
	runtime.UnlockOSThread()
	runtime.KeepAlive(c) // what its steps point to
	runtime.KeepAlive(attr)
	if errno := -int(result); errno > 0 {
		return 0, syscall.Errno(errno)
	}
	if c.failed != 0 {
		_, _ = waitid(int(c.pidfd), unix.WEXITED, nil)
		_ = unix.Close(int(c.pidfd))
		return 0, c.failed
	}
	*attr.Sys.PidFD = int(c.pidfd)
	return int(result), nil
}

// overlap says whether a descriptor that a child gets has a number that another one is
// to have there.
func overlap(files []uintptr) bool {
	for _, fd := range files {
		if fd < uintptr(len(files)) {
			return true
		}
	}
	return false
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

// clone3 is clone3(2) with CLONE_VM and CLONE_VFORK. It returns twice: 0 in the child,
// and when that is gone from this memory its process id, or a negative errno.
//
//go:noescape
func clone3(args *cloneArgs, size uintptr) (pid uintptr)

// childImage is all that a child needs between clone and exec, prepared, since it may
// neither allocate nor grow the stack there.
type childImage struct {
	clone cloneArgs
	pidfd int32
	steps []step // the last is execve

	mask   uint64        // of signals that were blocked before
	failed syscall.Errno // what the child could not do

	// What steps point to.
	path, dir *byte
	args, env []*byte
	groups    []uint32
	nofile    *nofile.Limit
}

// step is a system call that a child makes.
type step struct {
	call, a, b, c, d uintptr
	optional         bool // the child goes on when it fails
}

func newChildImage(path string, args []string, attr *syscall.ProcAttr) (*childImage, error) {
	c := &childImage{nofile: nofile.Lowered()}
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
	c.clone = cloneArgs{
		flags: unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_PIDFD | unix.CLONE_INTO_CGROUP |
			uint64(attr.Sys.Cloneflags),
		pidfd:      uint64(uintptr(unsafe.Pointer(&c.pidfd))),
		exitSignal: uint64(unix.SIGCHLD),
		cgroup:     uint64(attr.Sys.CgroupFD),
	}
	c.prepare(attr)
	return c, nil
}

// prepare lists what the child does, in package syscall's order.
func (c *childImage) prepare(attr *syscall.ProcAttr) {
	c.steps = make([]step, 0, 16)
	if c.nofile != nil {
		c.then(step{call: unix.SYS_PRLIMIT64, b: unix.RLIMIT_NOFILE, c: uintptr(unsafe.Pointer(c.nofile)), optional: true})
	}
	c.then(step{call: unix.SYS_SETSID})
	if cred := attr.Sys.Credential; cred != nil {
		c.groups = cred.Groups
		c.then(step{call: unix.SYS_SETGROUPS, a: uintptr(len(c.groups)), b: uintptr(unsafe.Pointer(unsafe.SliceData(c.groups)))})
		c.then(step{call: unix.SYS_SETGID, a: uintptr(cred.Gid)})
		c.then(step{call: unix.SYS_SETUID, a: uintptr(cred.Uid)})
	}
	c.then(step{call: unix.SYS_CHDIR, a: uintptr(unsafe.Pointer(c.dir))})
	for i, fd := range attr.Files {
		c.then(step{call: unix.SYS_DUP3, a: fd, b: uintptr(i)})
	}
	if attr.Sys.Setctty {
		c.then(step{call: unix.SYS_IOCTL, b: unix.TIOCSCTTY, c: 1})
	}
	c.then(step{call: unix.SYS_RT_SIGPROCMASK, a: unix.SIG_SETMASK, b: uintptr(unsafe.Pointer(&c.mask)), d: unsafe.Sizeof(c.mask)})
	c.then(step{call: unix.SYS_EXECVE, a: uintptr(unsafe.Pointer(c.path)), b: uintptr(unsafe.Pointer(&c.args[0])),
		c: uintptr(unsafe.Pointer(&c.env[0]))})
}

func (c *childImage) then(s step) { c.steps = append(c.steps, s) }

// vfork starts the child, and returns what clone3 does when the child has executed its
// program, or failed. No signal may come meanwhile: its handler would run in the child,
// too, on the parent's memory. Nothing may be preempted between the two masks, and so all
// that is called there is nosplit.
//
//go:norace
//go:noinline
func (c *childImage) vfork() uintptr {
	all := ^uint64(0)
	setMask(&all, &c.mask)
	pid := c.split()
	setMask(&c.mask, nil)
	return pid
}

// setMask says which signals are blocked, and fills in, where old is not nil, which were.
//
//go:nosplit
//go:norace
func setMask(mask, old *uint64) {
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(mask)),
		uintptr(unsafe.Pointer(old)), unsafe.Sizeof(*mask), 0, 0)
}

// split is where the two part. The child, which shares this stack, never returns from
// here; the parent does so at once, with nothing of this frame but the result.
//
//go:nosplit
//go:norace
//go:noinline
func (c *childImage) split() uintptr {
	pid := clone3(&c.clone, unsafe.Sizeof(c.clone))
	if pid != 0 {
		return pid
	}
	for i := range c.steps {
		s := &c.steps[i]
		_, _, errno := syscall.RawSyscall6(s.call, s.a, s.b, s.c, s.d, 0, 0)
		if errno != 0 && !s.optional {
			c.failed = errno
			break
		}
	}
	for {
		_, _, _ = syscall.RawSyscall6(unix.SYS_EXIT, 127, 0, 0, 0, 0, 0)
	}
}
