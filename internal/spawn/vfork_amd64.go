package spawn

import (
	"math"
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
	result := vfork(&c.clone, unsafe.Sizeof(c.clone), &c.steps[0], uintptr(len(c.steps)), &c.masks, &c.failed)
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

// vfork is clone3(2) with CLONE_VM and CLONE_VFORK, after which the child makes the steps.
// It returns when the child has executed its program or ended, with the child's process
// id or a negative errno of clone3, and the errno of the step that failed, if one did.
//
// The runtime knows it for a system call, and so goes on with other goroutines while the
// child loads its program, or is stopped before that. No signal may come meanwhile: its
// handler would run in the child, too, on the parent's memory. So all are blocked, as
// masks[0] has it; masks[1] gets those that were before. The thread must be locked.
//
//go:noescape
func vfork(args *cloneArgs, size uintptr, steps *step, count uintptr, masks *[2]uint64, failed *syscall.Errno) (pid uintptr)

// childImage is all that a child needs between clone and exec, prepared, since it may
// neither allocate nor grow the stack there.
type childImage struct {
	clone cloneArgs
	pidfd int32
	steps []step // the last is execve

	masks  [2]uint64     // of signals: all, and those that were blocked before
	failed syscall.Errno // what the child could not do

	// What steps point to.
	path, dir *byte
	args, env []*byte
	groups    []uint32
	nofile    *nofile.Limit
}

// step is a system call that a child makes; vfork knows where its fields are.
type step struct {
	call, a, b, c, d uintptr
	optional         bool // the child goes on when it fails
}

func newChildImage(path string, args []string, attr *syscall.ProcAttr) (*childImage, error) {
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

// prepare lists what the child does, in package syscall's order but for the descriptors:
// once it is the user's, another process of his can stop it, and while it has copies of
// guestd's nobody who waits for the end of one of them would see it.
func (c *childImage) prepare(attr *syscall.ProcAttr) {
	c.steps = make([]step, 0, 16)
	if c.nofile != nil {
		c.then(step{call: unix.SYS_PRLIMIT64, b: unix.RLIMIT_NOFILE, c: uintptr(unsafe.Pointer(c.nofile)), optional: true})
	}
	c.then(step{call: unix.SYS_SETSID})
	for i, fd := range attr.Files {
		c.then(step{call: unix.SYS_DUP3, a: fd, b: uintptr(i)})
	}
	c.then(step{call: unix.SYS_CLOSE_RANGE, a: uintptr(len(attr.Files)), b: math.MaxUint32, optional: true}) // Linux 5.9
	if cred := attr.Sys.Credential; cred != nil {
		c.groups = cred.Groups
		c.then(step{call: unix.SYS_SETGROUPS, a: uintptr(len(c.groups)), b: uintptr(unsafe.Pointer(unsafe.SliceData(c.groups)))})
		c.then(step{call: unix.SYS_SETGID, a: uintptr(cred.Gid)})
		c.then(step{call: unix.SYS_SETUID, a: uintptr(cred.Uid)})
	}
	c.then(step{call: unix.SYS_CHDIR, a: uintptr(unsafe.Pointer(c.dir))})
	if attr.Sys.Setctty {
		c.then(step{call: unix.SYS_IOCTL, b: unix.TIOCSCTTY, c: 1})
	}
	c.then(step{call: unix.SYS_RT_SIGPROCMASK, a: unix.SIG_SETMASK, b: uintptr(unsafe.Pointer(&c.masks[1])), d: unsafe.Sizeof(c.masks[1])})
	c.then(step{call: unix.SYS_EXECVE, a: uintptr(unsafe.Pointer(c.path)), b: uintptr(unsafe.Pointer(&c.args[0])),
		c: uintptr(unsafe.Pointer(&c.env[0]))})
}

func (c *childImage) then(s step) { c.steps = append(c.steps, s) }
