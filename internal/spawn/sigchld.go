package spawn

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// childSignal is SIGCHLD, which tells the reaper that a child has ended, be it an orphan
// or one of this process's own. While nobody listens the kernel does not even deliver it:
// a signal interrupts a thread, which a short command would wait for.
//
// Package os/signal goes on handling a signal that nobody is notified of, and so the
// handler that the runtime has installed is put aside and back again here. SIGCHLD is the
// reaper's alone in a process that has one.
type childSignal struct {
	came    chan os.Signal
	handler sigaction // the runtime's
}

const sigchld = uintptr(unix.SIGCHLD)

// newChildSignal listens at once.
func newChildSignal() (*childSignal, error) {
	s := &childSignal{came: make(chan os.Signal, 1)}
	signal.Notify(s.came, unix.SIGCHLD)
	if err := setAction(sigchld, nil, &s.handler); err != nil {
		signal.Stop(s.came)
		return nil, fmt.Errorf("looking at the handler of SIGCHLD: %w", err)
	}
	return s, nil
}

// listen has the signal come again. What has ended before did not tell.
func (s *childSignal) listen() {
	signal.Notify(s.came, unix.SIGCHLD)
	_ = setAction(sigchld, &s.handler, nil) // cannot fail: it was there before
}

// ignore lets it come no more.
func (s *childSignal) ignore() {
	_ = setAction(sigchld, &sigaction{handler: sigDefault}, nil) // which is to do nothing, and keeps zombies
	signal.Stop(s.came)
}

// close gives SIGCHLD back to the runtime.
func (s *childSignal) close() {
	_ = setAction(sigchld, &s.handler, nil)
	signal.Stop(s.came)
}
