package client

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// ExitStatus is how a process ended.
type ExitStatus struct {
	// ExitCode is 0 to 255; -1 where a signal ended the process.
	ExitCode int
	// Signal is the signal that ended the process; 0 where it exited.
	Signal syscall.Signal
	// CoreDumped, TimedOut and OOMKilled tell of a core dump, of a time-out that ran out, and of
	// the out-of-memory killer in the tree.
	CoreDumped, TimedOut, OOMKilled bool
	// UserTime and SystemTime are the CPU time of the leader and the children that it waited for.
	UserTime, SystemTime time.Duration
	// PeakMemory is in bytes.
	PeakMemory uint64
	// Duration is from start to end by the monotonic clock, Started and Ended are by the guest's clock.
	Duration       time.Duration
	Started, Ended time.Time
}

func exitStatus(e *guestdv1.ProcessExit) *ExitStatus {
	if e == nil {
		return nil
	}
	status := &ExitStatus{
		ExitCode:   int(e.GetExitCode()),
		Signal:     syscall.Signal(e.GetSignal()),
		CoreDumped: e.GetCoreDumped(), TimedOut: e.GetTimedOut(), OOMKilled: e.GetOomKilled(),
		UserTime: e.GetUserTime().AsDuration(), SystemTime: e.GetSystemTime().AsDuration(),
		PeakMemory: e.GetPeakMemoryBytes(), Duration: e.GetDuration().AsDuration(),
		Started: timeOf(e.GetStartTime()), Ended: timeOf(e.GetEndTime()),
	}
	if status.Signal != 0 {
		status.ExitCode = -1
	}
	return status
}

// Success tells whether the process exited with code 0 in its own time.
func (s *ExitStatus) Success() bool { return s.ExitCode == 0 && !s.TimedOut }

// String tells the end as os/exec does: "exit status 1", "signal: killed".
func (s *ExitStatus) String() string {
	var b strings.Builder
	if s.Signal != 0 {
		fmt.Fprintf(&b, "signal: %s", s.Signal)
	} else {
		fmt.Fprintf(&b, "exit status %d", s.ExitCode)
	}
	if s.CoreDumped {
		b.WriteString(" (core dumped)")
	}
	if s.TimedOut {
		b.WriteString(" (timed out)")
	}
	if s.OOMKilled {
		b.WriteString(" (out of memory)")
	}
	return b.String()
}

// ExitError is a process's end that is not exit code 0: another code, a signal, or a time-out,
// whatever the process made of it.
type ExitError struct {
	ExitStatus
	cause error
}

// Error tells the end.
func (e *ExitError) Error() string { return e.String() }

// Unwrap gives the cause of the context that has killed the process; nil where none did.
func (e *ExitError) Unwrap() error { return e.cause }

// GapError tells that output was lost before it could be delivered.
type GapError struct {
	// Gaps are the ranges, in the order met.
	Gaps []Gap
}

// Error counts what is lost.
func (e *GapError) Error() string {
	var lost uint64
	for _, gap := range e.Gaps {
		lost += gap.End - gap.Start
	}
	return fmt.Sprintf("%d bytes of output were lost in %d gaps", lost, len(e.Gaps))
}
