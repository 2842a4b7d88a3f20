package kernel

import (
	"syscall"
	"time"
)

// Event is one thing that happened in an execution.
type Event struct {
	Number uint64 // from 1, increasing; a Gap takes the number of the last event that it stands for
	Time   time.Time
	Body   Body
}

// Body is what happened: one of Accepted, Started, Stdout, Stderr, Result,
// ClearOutput, InputRequest, Error, Gap and Finished. The order is Accepted,
// Started, any of the others, Finished; Finished is the last event of every
// execution and comes exactly once. One that never got to run has no Started.
type Body interface {
	// size is about how many bytes the event holds in memory beyond its entry.
	size() int
}

// Accepted says that the execution is queued.
type Accepted struct {
	QueuePosition int // executions ahead of this one, the running one included
}

// Started says that the code runs now. Its time-out counts from here.
type Started struct {
	ExecutionCount   int64  // as in In[n]; 0 when the kernel did not tell
	KernelGeneration uint64 // 1 for the context's first kernel
	FreshKernel      bool   // nothing of earlier executions is there any more: their kernel has ended
	PreviousEnd      string // with FreshKernel: how it ended
}

// Stdout is text that the code wrote to its standard output.
type Stdout struct {
	Text string // valid UTF-8
}

// Stderr is text that the code wrote to its standard error.
type Stderr struct {
	Text string // valid UTF-8
}

// ResultKind tells values apart.
type ResultKind int

// Kinds of results.
const (
	Main    ResultKind = iota // the value of the code's last expression
	Display                   // shown by display() and the like
	Update                    // replaces the display with the same DisplayID, also of earlier executions
)

// MIMEPart is one representation of a value.
type MIMEPart struct {
	MIME string
	Data []byte // text as UTF-8, JSON as JSON, binary types decoded; not to be changed
	// Truncated is how many bytes were left out: all of a part over MaxResult, of
	// which there is no Data. 0 for a whole one.
	Truncated uint64
}

// Result is a value in all representations that the kernel made of it.
type Result struct {
	Parts        []MIMEPart // sorted by MIME type
	MetadataJSON []byte     // a JSON object, or nil for none
	Kind         ResultKind
	DisplayID    string
	Number       uint32 // among the execution's results, from 1
}

// ClearOutput asks whoever shows the output to clear it, with Wait not before
// the next output comes.
type ClearOutput struct {
	Wait bool
}

// InputRequest says that the code waits for Contexts.ReplyInput.
type InputRequest struct {
	Prompt   string
	Password bool // the input should not be shown
}

// Names of errors that are guestd's own and not the code's.
const (
	ErrorTimeout             = "TimeoutError"        // the execution's time was up
	ErrorKernelDied          = "KernelDied"          // the kernel process ended, and how
	ErrorKernelStart         = "KernelStartError"    // the kernel did not start, and why
	ErrorLanguageUnavailable = "LanguageUnavailable" // what the language needs is not installed
	ErrorInterrupted         = "Interrupted"         // taken out of the queue; code that ran says KeyboardInterrupt
	ErrorAborted             = "Aborted"             // the kernel refused to run the code
	ErrorSurroundings        = "EnvironmentError"    // the kernel did not take the execution's environment or folder
	ErrorExit                = "ExitError"           // the process of a process language did not end with 0
	ErrorStart               = "StartError"          // it did not start
)

// Error is an exception that the code did not catch, or one of guestd's own. An
// execution has at most one. TimeoutError comes when the time is up, while the
// kernel is still being interrupted; Finished follows once it is known whether
// the kernel's state is lost.
type Error struct {
	Name      string
	Value     string
	Traceback []string // lines or groups of lines, without colours
}

// Stream names what a Gap is a gap in.
type Stream string

// Streams.
const (
	StreamStdout Stream = "stdout"
	StreamStderr Stream = "stderr"
	StreamResult Stream = "result"
)

// Gap stands for events that were dropped, because nobody had read them in time
// or because they are long gone.
type Gap struct {
	Stream Stream
	Bytes  uint64 // about; at least what is known to be missing
}

// Status says how an execution ended.
type Status int

// Statuses.
const (
	OK          Status = iota // the code ran to its end
	Failed                    // an Error event tells why
	TimedOut                  // its time was up, whatever the kernel made of the interrupt
	Interrupted               // somebody interrupted it, or it was removed from the queue
	KernelDied                // the kernel ended before the code did
)

var statusNames = [...]string{OK: "OK", Failed: "Failed", TimedOut: "TimedOut", Interrupted: "Interrupted", KernelDied: "KernelDied"}

// String implements fmt.Stringer.
func (s Status) String() string { return statusNames[s] }

// Finished is an execution's last event.
type Finished struct {
	Status           Status
	ExecutionCount   int64         // 0 when the code did not get one
	Duration         time.Duration // since Started's time; 0 without
	StateLost        bool          // the kernel is gone, and its variables with it
	OutputIncomplete bool          // the kernel lost some of the output
	// HasExit says that ExitCode and Signal tell how a process ended: the kernel
	// that died, or that of a process language.
	HasExit  bool
	ExitCode int // -1 where a signal ended it
	Signal   syscall.Signal
}

func (Accepted) size() int       { return 0 }
func (e Started) size() int      { return len(e.PreviousEnd) }
func (e Stdout) size() int       { return len(e.Text) }
func (e Stderr) size() int       { return len(e.Text) }
func (ClearOutput) size() int    { return 0 }
func (e InputRequest) size() int { return len(e.Prompt) }
func (Gap) size() int            { return 0 }
func (Finished) size() int       { return 0 }

func (e Result) size() int {
	n := len(e.MetadataJSON) + len(e.DisplayID)
	for _, part := range e.Parts {
		n += len(part.MIME) + len(part.Data)
	}
	return n
}

func (e Error) size() int {
	n := len(e.Name) + len(e.Value)
	for _, line := range e.Traceback {
		n += len(line)
	}
	return n
}
