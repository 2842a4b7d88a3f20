package spawn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"guestd.internal/test/need"
)

// Starts go on side by side on several threads, and some fail at each of the steps
// between clone and exec; none leaves a process or a descriptor (TestMain looks).
func TestManyStartsAtOnce(t *testing.T) {
	eachTreeMode(t, manyStartsAtOnce)
}

func manyStartsAtOnce(t *testing.T, s *Spawner) {
	dir := openDir(t)
	text := write(t, filepath.Join(dir, "text"), "exit 7\n", 0o755) // for /bin/sh
	plain := write(t, filepath.Join(dir, "plain"), "", 0o644)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 50 {
				expectCode(t, s, command(t, "/bin/sh", "-c", "exit 3"), 3)
				expectCode(t, s, command(t, text), 7)
				expectErrno(t, s, command(t, filepath.Join(dir, "none")), unix.ENOENT)
				expectErrno(t, s, command(t, plain), unix.EACCES)
				nowhere := command(t, "/bin/true")
				nowhere.Dir = "/proc/self/none"
				expectErrno(t, s, nowhere, unix.ENOENT)
			}
		})
	}
	workers.Wait()
}

// What a start changes of its thread it sets back.
func TestStartsLeaveNoSignalBlocked(t *testing.T) { eachTreeMode(t, startsLeaveNoSignalBlocked) }

func startsLeaveNoSignalBlocked(t *testing.T, s *Spawner) {
	for range 20 {
		expectCode(t, s, command(t, "/bin/sh", "-c", "exit 3"), 3)
	}
	// The runtime blocks all of them for the moment of a thread's creation only.
	await(t, "every thread to take signals again", func() bool {
		threads, err := filepath.Glob("/proc/self/task/*")
		return err == nil && len(threads) > 0 && !slices.ContainsFunc(threads, blocksAll)
	})
}

// blocksAll says whether a thread, given as its folder under /proc, blocks all signals
// that can be.
func blocksAll(thread string) bool {
	all := ^uint64(0) &^ (1<<(unix.SIGKILL-1) | 1<<(unix.SIGSTOP-1))
	return statusFields(strings.TrimPrefix(thread, "/proc/"))["SigBlk"] == fmt.Sprintf("%016x", all)
}

func expectErrno(t *testing.T, s *Spawner, cmd Command, want syscall.Errno) {
	t.Helper()
	_, err := s.Start(cmd)
	if !errors.Is(err, want) {
		t.Errorf("%q: %v, want %v", cmd.Args, err, want)
	}
}

// A signal that comes while a child is about to become its program is guestd's, not the
// child's: no handler runs in the child on guestd's memory.
func TestSignalsDuringStarts(t *testing.T) { eachTreeMode(t, signalsDuringStarts) }

func signalsDuringStarts(t *testing.T, s *Spawner) {
	quit := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		for {
			select {
			case <-quit:
				return
			default: // SIGURG is what the runtime itself preempts with
				_ = unix.Kill(os.Getpid(), unix.SIGURG)
			}
		}
	})
	for range 300 {
		expectCode(t, s, command(t, "/bin/sh", "-c", "exit 5"), 5)
	}
	close(quit)
	sender.Wait()
}

// A child that takes long to load its program, or is stopped before it has, keeps nobody
// but its own start waiting: neither other starts nor the garbage collector, however few
// processors there are.
func TestSlowExecHoldsNobodyElse(t *testing.T) { eachTreeMode(t, slowExecHoldsNobodyElse) }

func slowExecHoldsNobodyElse(t *testing.T, s *Spawner) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	slow := write(t, filepath.Join(openDir(t), "slow"), "#!/bin/sh\nexit 9\n", 0o755)
	asked, allow := holdExec(t, slow)
	started := make(chan struct{})
	go func() {
		defer close(started)
		expectCode(t, s, command(t, slow), 9)
	}()
	<-asked
	runtime.GC()
	for range 3 {
		expectCode(t, s, command(t, "/bin/sh", "-c", "exit 3"), 3)
	}
	select {
	case <-started:
		t.Error("the slow program was not held")
	default:
	}
	allow()
	<-started
}

// holdExec has the kernel ask before it executes the file at path, and returns a channel
// that is closed when it has asked, and what lets it.
func holdExec(t *testing.T, path string) (asked <-chan struct{}, allow func()) {
	t.Helper()
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY|unix.O_CLOEXEC)
	if err == nil {
		err = unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_EXEC_PERM, unix.AT_FDCWD, path)
	}
	if errors.Is(err, unix.EPERM) {
		need.Skip(t, "to be asked before a program is executed needs root; try: sudo go test")
	}
	if err != nil {
		t.Skip("the kernel does not ask (CONFIG_FANOTIFY_ACCESS_PERMISSIONS): ", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // which lets everything go on
	ask := make(chan struct{})
	var event unix.FanotifyEventMetadata
	go func() {
		defer close(ask)
		buf := unsafe.Slice((*byte)(unsafe.Pointer(&event)), unsafe.Sizeof(event))
		if _, err := unix.Read(fd, buf); err != nil {
			t.Error(err)
		}
	}()
	return ask, func() {
		response := unix.FanotifyResponse{Fd: event.Fd, Response: unix.FAN_ALLOW}
		if _, err := unix.Write(fd, unsafe.Slice((*byte)(unsafe.Pointer(&response)), unsafe.Sizeof(response))); err != nil {
			t.Error(err)
		}
		_ = unix.Close(int(event.Fd))
	}
}
