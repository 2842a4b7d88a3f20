package epoll

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pipe returns a pipe's ends, of which the first is non-blocking.
func pipe(t *testing.T) (read int, write *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	write = os.NewFile(uintptr(fds[1]), "write")
	t.Cleanup(func() {
		write.Close()
		unix.Close(fds[0])
	})
	return fds[0], write
}

func newSet(t *testing.T) *Set {
	t.Helper()
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// wait expects one descriptor to be ready, with these events.
func wait(t *testing.T, s *Set, fd int, events uint32) {
	t.Helper()
	ready, err := s.Wait()
	if err != nil || len(ready) != 1 || int(ready[0].Fd) != fd || ready[0].Events != events {
		t.Fatalf("%+v, %v, want %d with %#x", ready, err, fd, events)
	}
}

func TestWaitTellsWhatIsReady(t *testing.T) {
	s := newSet(t)
	first, firstEnd := pipe(t)
	second, secondEnd := pipe(t)
	for _, fd := range []int{first, second} {
		if err := s.Add(fd); err != nil {
			t.Fatal(err)
		}
	}
	go firstEnd.Write([]byte("x"))
	wait(t, s, first, unix.EPOLLIN)
	wait(t, s, first, unix.EPOLLIN) // for as long as it is there
	s.Remove(first)
	go secondEnd.Close()
	wait(t, s, second, unix.EPOLLHUP)
	s.Remove(second)
	s.Remove(second) // not in any more
	if err := s.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if ready, err := s.Wait(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("an empty set has %+v, %v", ready, err)
	}
}

// A set that is used again knows nothing of what was in it.
func TestSetIsUsedAgain(t *testing.T) {
	s := newSet(t)
	for range 1000 {
		fd, end := pipe(t)
		if err := errors.Join(s.SetDeadline(time.Now().Add(time.Minute)), s.Add(fd)); err != nil {
			t.Fatal(err)
		}
		var writer sync.WaitGroup
		writer.Go(func() { end.Write([]byte("x")) })
		wait(t, s, fd, unix.EPOLLIN)
		writer.Wait()
		s.Remove(fd)
	}
}

func TestErrors(t *testing.T) {
	s := newSet(t)
	if err := s.Add(-1); !errors.Is(err, unix.EBADF) {
		t.Errorf("adding nothing: %v", err)
	}
	s.Close()
	if ready, err := s.Wait(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("waiting after Close: %+v, %v", ready, err)
	}
}
