package client

import (
	"syscall"
	"time"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// Event is one thing that happened in an execution.
type Event struct {
	// Number is its number within the execution, from 1; a Data event has its result's.
	Number uint64
	// Time is by the guest's clock.
	Time time.Time
	// Detail is what happened: one of Accepted, Started, Text, Result, Data, ClearOutput,
	// InputRequest, CodeError, OutputGap and Finished.
	Detail EventDetail
}

// EventDetail is what an Event is about.
type EventDetail interface{ isEventDetail() }

// Accepted is the first event: guestd knows the execution.
type Accepted struct {
	// ContextID is the context that it runs in; QueuePosition how many executions come before it.
	ContextID     string
	QueuePosition int
}

// Started tells that the code runs.
type Started struct {
	// ExecutionCount is the kernel's counter, and KernelGeneration how many kernels the context has
	// had; 0 for process languages.
	ExecutionCount   int
	KernelGeneration uint64
	// FreshKernel: earlier state is gone, and PreviousEnd says why.
	FreshKernel bool
	PreviousEnd string
}

// Text is a piece of text that the code wrote.
type Text struct {
	// Stream is Stdout or Stderr.
	Stream Stream
	// Text is valid UTF-8.
	Text string
}

// ResultKind is what role a result plays.
type ResultKind int

// The roles.
const (
	// MainResult is the value of the code's last expression.
	MainResult = ResultKind(guestdv1.ResultKind_RESULT_KIND_MAIN)
	// DisplayResult is something displayed.
	DisplayResult = ResultKind(guestdv1.ResultKind_RESULT_KIND_DISPLAY)
	// UpdateResult is a new version of an earlier display with the same DisplayID.
	UpdateResult = ResultKind(guestdv1.ResultKind_RESULT_KIND_UPDATE)
)

// Result is a value or a display.
type Result struct {
	// Kind is its role.
	Kind ResultKind
	// Number is its position among the execution's results, from 1.
	Number int
	// Parts are its representations; the same thing in each.
	Parts []Part
	// MetadataJSON is Jupyter's metadata object; empty is none.
	MetadataJSON []byte
	// DisplayID is the name under which it can be updated; empty where it cannot.
	DisplayID string
}

// Part is one representation of a value.
type Part struct {
	// MIME is its type, e.g. "text/plain" or "image/png".
	MIME string
	// Bytes is the contents: text as UTF-8, JSON as JSON, binary decoded. Nil where Size is not 0.
	Bytes []byte
	// Size is how many bytes follow in Data events; 0 for a part that is here.
	Size uint64
	// TruncatedBytes is how much was left out of a part beyond guestd's limit, which then has no
	// contents.
	TruncatedBytes uint64
}

// Part gives the contents of a representation, and whether there is one of that type here.
func (r Result) Part(mime string) ([]byte, bool) {
	for _, part := range r.Parts {
		if part.MIME == mime && part.Size == 0 && part.TruncatedBytes == 0 {
			return part.Bytes, true
		}
	}
	return nil, false
}

// Data is a piece of a large part of the result that came right before.
type Data struct {
	// ResultNumber and MIME name the part, Offset the first byte's position in it.
	ResultNumber int
	MIME         string
	Offset       uint64
	Bytes        []byte
	// Last: this was the part's last piece.
	Last bool
}

// ClearOutput tells that the code cleared its output; with Wait only when the next output comes.
type ClearOutput struct{ Wait bool }

// InputRequest tells that the code waits for a line; see Execution.ReplyInput.
type InputRequest struct {
	// Prompt is to be shown; Password says that the answer is not.
	Prompt   string
	Password bool
}

// CodeError is an error in the code, or how the execution failed: ExitError, TimeoutError,
// KernelDied, Interrupted, Aborted, LanguageUnavailable.
type CodeError struct {
	// Name is the error's class, Value its message.
	Name, Value string
	// Traceback are its lines, without colours; may be empty.
	Traceback []string
}

// Error makes a CodeError an error, for whoever wants it as one.
func (e CodeError) Error() string {
	if e.Value == "" {
		return e.Name
	}
	return e.Name + ": " + e.Value
}

// OutputGap tells of output that was dropped: this reader was away for too long.
type OutputGap struct {
	// Stream is Stdout or Stderr; 0 for results.
	Stream Stream
	// Bytes is how many, at least.
	Bytes uint64
}

// ExecutionStatus is how an execution ended.
type ExecutionStatus int

// The ends.
const (
	ExecutionOK          = ExecutionStatus(guestdv1.ExecutionStatus_EXECUTION_STATUS_OK)
	ExecutionError       = ExecutionStatus(guestdv1.ExecutionStatus_EXECUTION_STATUS_ERROR)
	ExecutionTimedOut    = ExecutionStatus(guestdv1.ExecutionStatus_EXECUTION_STATUS_TIMED_OUT)
	ExecutionInterrupted = ExecutionStatus(guestdv1.ExecutionStatus_EXECUTION_STATUS_INTERRUPTED)
	ExecutionKernelDied  = ExecutionStatus(guestdv1.ExecutionStatus_EXECUTION_STATUS_KERNEL_DIED)
)

// Finished is the last event.
type Finished struct {
	// Status is how it ended.
	Status ExecutionStatus
	// ExecutionCount is the kernel's counter; 0 where the code never ran.
	ExecutionCount int
	// Duration is from Started to the end.
	Duration time.Duration
	// StateLost: the context's state is gone. OutputIncomplete: the kernel lost output before
	// guestd got it.
	StateLost, OutputIncomplete bool
	// ExitCode and Signal tell how a dead kernel or a process language ended; ExitCode is -1 and
	// Signal 0 where that does not apply.
	ExitCode int
	Signal   syscall.Signal
}

func (Accepted) isEventDetail()     {}
func (Started) isEventDetail()      {}
func (Text) isEventDetail()         {}
func (Result) isEventDetail()       {}
func (Data) isEventDetail()         {}
func (ClearOutput) isEventDetail()  {}
func (InputRequest) isEventDetail() {}
func (CodeError) isEventDetail()    {}
func (OutputGap) isEventDetail()    {}
func (Finished) isEventDetail()     {}
