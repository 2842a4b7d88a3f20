package spawn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Starts go on side by side on several threads, and some fail at each of the steps
// between clone and exec; none leaves a process or a descriptor (TestMain looks).
func TestManyStartsAtOnce(t *testing.T) {
	s := cgroupSpawner(t)
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
func TestStartsLeaveNoSignalBlocked(t *testing.T) {
	s := cgroupSpawner(t)
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
func TestSignalsDuringStarts(t *testing.T) {
	s := cgroupSpawner(t)
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
