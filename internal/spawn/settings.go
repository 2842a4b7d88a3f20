package spawn

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// settings are what a child gets that guestd itself does not have, and how.
type settings struct {
	thread bool // umask, nice value, audit session or signal mask: inherited from a prepared thread
	hold   bool // oom_score_adj and limits are written while the child is held at exec, unless it sets them itself
	vfork  bool // the child is started by guestd's own vfork, and so sets its limits itself

	umask       uint32
	setOOM      bool
	oomScoreAdj int
}

// settingsOf compares what cmd asks for with what guestd has itself.
func (s *Spawner) settingsOf(cmd *Command, files []uintptr) settings {
	set := settings{umask: DefaultUmask, vfork: hasVfork && !overlap(files)}
	if cmd.Umask != nil {
		set.umask = *cmd.Umask
	}
	set.thread = set.umask != s.inherited.umask || cmd.Nice != nil || s.nice != 0 || s.inherited.blocked || s.audit

	current := s.oomScore.read()
	if cmd.OOMScoreAdj != nil {
		set.oomScoreAdj, set.setOOM = *cmd.OOMScoreAdj, *cmd.OOMScoreAdj != current
	} else {
		set.setOOM = current < 0
	}
	set.hold = set.setOOM && !(set.vfork && s.closeRange) || len(cmd.Rlimits) > 0 && !set.vfork
	return set
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

// ownOOMScore is guestd's own oom_score_adj. The daemon lowers it some time after
// it has started, so it is read for each start, through a descriptor kept open:
// a microsecond.
type ownOOMScore struct{ file *os.File }

func openOwnOOMScore() (ownOOMScore, error) {
	f, err := os.Open("/proc/self/oom_score_adj")
	return ownOOMScore{f}, err
}

func (o ownOOMScore) read() int {
	var buf [16]byte
	n, _ := unix.Pread(int(o.file.Fd()), buf[:], 0) // one read, where ReadAt makes sure of the end
	value, _ := strconv.Atoi(string(bytes.TrimSpace(buf[:max(n, 0)])))
	return value
}

// timerSlack is how late, in nanoseconds, guestd's starter allows guestd to be woken up:
// prctl(2), "PR_SET_TIMERSLACK". Children get the same, while guestd has another one for
// some of its threads (package sysmon). It is 0 where it is not known.
type timerSlack uintptr

func ownTimerSlack() timerSlack {
	value, err := os.ReadFile("/proc/self/timerslack_ns") // the main thread's
	if err != nil {
		return 0
	}
	slack, _ := strconv.ParseUint(strings.TrimSpace(string(value)), 10, 64)
	return timerSlack(slack)
}

// restore sets the calling thread's.
func (t timerSlack) restore() {
	if t != 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uintptr(t), 0) // cannot fail
	}
}

// inherited is what guestd was started with and its children would have, too.
type inherited struct {
	umask   uint32
	blocked bool          // it was started with signals blocked
	ignored []unix.Signal // as far as it has not handled them since
}

// readInherited reads it from /proc/self/status.
func readInherited() (in inherited, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return in, err
	}
	in.umask = ^uint32(0) // unlike any where it is not told: then each child's is set
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "Umask":
			mask, err := strconv.ParseUint(value, 8, 32)
			if err != nil {
				return in, fmt.Errorf("reading the umask: %w", err)
			}
			in.umask = uint32(mask)
		case "SigBlk":
			in.blocked = strings.Trim(value, "0") != ""
		case "SigIgn":
			mask, err := strconv.ParseUint(value, 16, 64)
			if err != nil {
				return in, fmt.Errorf("reading the ignored signals: %w", err)
			}
			for ; mask != 0; mask &= mask - 1 {
				in.ignored = append(in.ignored, unix.Signal(1+bits.TrailingZeros64(mask)))
			}
		}
	}
	return in, nil
}

// closeOnExec marks every descriptor but the first three. Go opens its own that
// way; this is about those that whoever started guestd left open. It reports whether
// close_range(2) knows how.
func closeOnExec() (closeRange bool, err error) {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err == nil {
		return true, nil
	}
	entries, err := os.ReadDir("/proc/self/fd") // Linux before 5.11
	if err != nil {
		return false, fmt.Errorf("marking inherited descriptors: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return false, nil
}

// ownNice is the nice value that guestd was started with.
func ownNice() int {
	priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return 0
	}
	return 20 - priority // as the system call has it: getpriority(2), "C library/kernel differences"
}

// onFreshThread runs fn on a thread of its own that is gone afterwards, so that
// nothing fn changes about its thread reaches anybody else.
func onFreshThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the runtime ends the thread
		done <- fn()
	}()
	return <-done
}

// prepareThread gives the calling thread what the child inherits from it.
func (l *launch) prepareThread() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unsharing the umask: %w", err)
	}
	unix.Umask(int(l.settings.umask))
	var none unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil); err != nil {
		return fmt.Errorf("emptying the signal mask: %w", err)
	}
	nice := 0
	if l.cmd.Nice != nil {
		nice = *l.cmd.Nice
	} else if l.spawner.nice == 0 {
		return nil
	}
	err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice)
	if err == unix.EACCES || err == unix.EPERM {
		l.spawner.degrade("nice values below guestd's own are refused (no CAP_SYS_NICE)")
		return nil
	}
	if err != nil {
		return fmt.Errorf("setting the nice value: %w", err)
	}
	return nil
}

// blockSignals blocks what can be blocked for the thread that is about to fork a child
// to be held. The child inherits it: any signal, also one that is ignored, would stop a
// child that is traced and not at its exec yet, for ever, and all of guestd with it, as
// its thread waits for the exec. SIGTRAP tells of the exec.
func (l *launch) blockSignals() error {
	all := unix.Sigset_t{}
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	all.Val[0] &^= 1 << (unix.SIGTRAP - 1)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &l.mask); err != nil {
		return fmt.Errorf("blocking signals: %w", err)
	}
	return nil
}

func (l *launch) restoreSignals() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &l.mask, nil) }

// unblockHeld gives a held child the signals that it is to have; those that have come
// meanwhile reach it when it goes on.
func (l *launch) unblockHeld() error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SETSIGMASK, uintptr(l.pid),
		sigsetSize, uintptr(unsafe.Pointer(&l.mask)), 0, 0)
	if errno != 0 && errno != unix.ESRCH {
		return fmt.Errorf("unblocking the child's signals: %w", errno)
	}
	return nil
}

// applyHeld writes the settings of a child that is stopped at exec, and lets it
// go. Where ptrace is refused the child already runs.
func (l *launch) applyHeld() error {
	held := l.sys.Ptrace
	if held && !l.awaitStop() {
		return nil // something killed it meanwhile: its end is told as any other
	}
	if err := l.writeSettings(); err != nil {
		l.discard()
		return err
	}
	if !held {
		return nil
	}
	if err := l.unblockHeld(); err != nil {
		l.discard()
		return err
	}
	if err := unix.PtraceDetach(l.pid); err != nil && err != unix.ESRCH {
		l.discard()
		return fmt.Errorf("letting the child go: %w", err)
	}
	return nil
}

// awaitStop waits until the child is stopped at exec, and returns false if it
// has ended instead. WNOWAIT leaves that end to whoever waits for the child.
func (l *launch) awaitStop() bool {
	info, err := waitid(l.pidfd, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
	return err == nil && info.Code == cldTrapped
}

func (l *launch) writeSettings() error {
	if l.settings.setOOM {
		path := "/proc/" + strconv.Itoa(l.pid) + "/oom_score_adj"
		err := writeExisting(path, strconv.Itoa(l.settings.oomScoreAdj))
		if isRefusal(err) {
			l.spawner.degradeOOM(errnoOf(err))
		} else if err != nil && !isGone(err) {
			return fmt.Errorf("setting oom_score_adj: %w", err)
		}
	}
	if l.settings.vfork {
		return nil // the child has set its limits
	}
	for _, limit := range l.cmd.Rlimits {
		value := unix.Rlimit{Cur: limit.Soft, Max: limit.Hard}
		err := unix.Prlimit(l.pid, limit.Resource, &value, nil)
		if isRefusal(err) {
			l.spawner.degrade("raising hard resource limits, and limits for other users, are refused (no CAP_SYS_RESOURCE)")
		} else if err != nil && !isGone(err) {
			return fmt.Errorf("setting resource limit %d to %d:%d: %w", limit.Resource, limit.Soft, limit.Hard, err)
		}
	}
	return nil
}

// degradeOOM notes why a child keeps the oom_score_adj that it has.
func (s *Spawner) degradeOOM(errno syscall.Errno) {
	why := "no CAP_SYS_RESOURCE"
	if !isRefusal(errno) {
		why = errno.Error()
	}
	s.degrade("lowering oom_score_adj is refused (" + why + ")")
}

// discard kills and reaps a child that cannot be used.
func (l *launch) discard() {
	_ = unix.PidfdSendSignal(l.pidfd, unix.SIGKILL, nil, 0)
	_, _ = waitid(l.pidfd, unix.WEXITED, nil)
	l.closePidfd(l.pidfd)
	l.pidfd = -1
}

// closePidfd closes the pidfd of a child that is not to be.
func (l *launch) closePidfd(pidfd int) {
	l.spawner.mu.Lock()
	atomic.StoreInt32(&l.early, -1)
	l.spawner.mu.Unlock()
	_ = unix.Close(pidfd)
}

// mayPtrace says that ptrace was not refused yet.
func (s *Spawner) mayPtrace() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.noPtrace
}

// refusePtrace notes that children cannot be held at exec.
func (s *Spawner) refusePtrace() {
	s.mu.Lock()
	s.noPtrace = true
	s.mu.Unlock()
	s.degrade("ptrace is refused: oom_score_adj and resource limits are set right after a process has started")
}

// isGone says that the child was killed while its settings were written; its end
// is told as any other.
func isGone(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT)
}

func isRefusal(err error) bool {
	return err != nil && (errnoOf(err) == syscall.EPERM || errnoOf(err) == syscall.EACCES)
}

// writeExisting writes value to an existing file with one write call, as files
// under /proc and cgroup folders demand.
func writeExisting(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
