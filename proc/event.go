package proc

import (
	"syscall"
	"time"

	"guestd.internal/internal/outlog"
)

// Stream names one stream of output.
type Stream int

// The streams; a process has the first, the first two, or the last.
const (
	Stdout   Stream = iota + 1 // descriptor 1; with Spec.Merge also 2
	Stderr                     // descriptor 2
	Terminal                   // what the terminal shows
)

// String returns "stdout", "stderr" or "terminal".
func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case Terminal:
		return "terminal"
	}
	return "no stream"
}

// Exit is how a process ended.
type Exit struct {
	// Code is the leader's exit code, 0 to 255, or -1 when a signal ended it.
	Code int
	// Signal is the signal that ended it, 0 when it exited.
	Signal     syscall.Signal
	CoreDumped bool
	// TimedOut says that Spec.Timeout ran out first.
	TimedOut bool
	// OOMKilled says that the kernel's out-of-memory killer took something of the tree.
	OOMKilled bool
	// UserTime and SystemTime are CPU time of the leader and the children it
	// waited for, PeakMemory is bytes: of the tree where its cgroup tells, else of
	// the largest of these.
	UserTime, SystemTime time.Duration
	PeakMemory           int64
	// Start and End are by the guest's clock, Duration by the monotonic one.
	Start, End time.Time
	Duration   time.Duration
}

// Event is what an Attachment delivers: one of [Output], [Gap], [Resized],
// [InputStatus] and [Exited].
type Event interface{ event() }

// Output is a piece of output, in order for each stream.
type Output struct {
	Stream Stream
	Offset uint64 // of Data's first byte
	Data   []byte // never empty, at most 256 KiB; not to be changed

	chunk outlog.Chunk
}

// Release gives Data back once it is no longer used, exactly once. Forgetting
// it costs the garbage collector, nothing else.
func (o Output) Release() { o.chunk.Release() }

// Gap tells that the bytes from From up to To were dropped.
type Gap struct {
	Stream   Stream
	From, To uint64
}

// Resized tells that the terminal's output from Offset on is painted for Size.
type Resized struct {
	Offset uint64
	Size   Size
}

// InputStatus tells how far the program has been given its input.
type InputStatus struct {
	// Accepted is the offset up to which a client need not send again. It is told
	// after steps of 64 KiB, and at the end.
	Accepted uint64
	// Closed says that further input is refused with ErrInputClosed: the program
	// has ended or closed its stdin.
	Closed bool
}

// Exited tells how the process ended; all that the leader wrote was delivered
// before.
type Exited struct{ Exit Exit }

func (Output) event()      {}
func (Gap) event()         {}
func (Resized) event()     {}
func (InputStatus) event() {}
func (Exited) event()      {}
