package kernel

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrContextNotFound says that there is no context with the given id.
	ErrContextNotFound = errors.New("no such context")
	// ErrExecutionNotFound says that there is no execution with the given id,
	// or none any more.
	ErrExecutionNotFound = errors.New("no such execution")
	// ErrTooManyContexts says that there are MaxContexts already.
	ErrTooManyContexts = fmt.Errorf("there are %d code contexts already, which is the most", MaxContexts)
	// ErrNoInputWanted says that the execution is not waiting for input.
	ErrNoInputWanted = errors.New("the execution is not waiting for input")
	// ErrRequestIDReused says that a request id was used for another request.
	ErrRequestIDReused = errors.New("the request id belongs to a different request")
	// ErrQueueFull says that too many executions wait in a context.
	ErrQueueFull = errors.New("too many executions are waiting in this context")
	// ErrClosed says that the contexts are being closed.
	ErrClosed = errors.New("guestd is shutting down")

	// errDeleted is why a deleted context ends.
	errDeleted = fmt.Errorf("%w: it was deleted", ErrContextNotFound)
)

// CrashLoopError says that a context's kernels keep dying, and that no other one
// is started for a while, or until it is restarted.
type CrashLoopError struct {
	Count int       // deaths in a row
	How   string    // the last one
	Until time.Time // of the pause
}

// Error implements error.
func (e *CrashLoopError) Error() string {
	return fmt.Sprintf("the last %d kernels ended soon after their start, the last one because %s; the next one is tried in %s, or when the context is restarted",
		e.Count, e.How, max(time.Until(e.Until), 0).Round(time.Second))
}

// InvalidError says which field of a request is wrong and why.
type InvalidError struct {
	Field   string // as in the API: "code", "timeout", …
	Problem string
}

// Error implements error.
func (e *InvalidError) Error() string { return fmt.Sprintf("invalid %s: %s", e.Field, e.Problem) }

// LanguageNotFoundError says that nothing is known by a language's name.
type LanguageNotFoundError struct {
	Language string
}

// Error implements error.
func (e *LanguageNotFoundError) Error() string {
	return fmt.Sprintf("unknown language %q: neither built in nor an installed kernelspec", e.Language)
}

// LanguageUnavailableError says that a known language is not installed in the
// guest, and what would help.
type LanguageUnavailableError struct {
	Language string
	Reason   string // what was looked for
	Install  string // what to install
}

// Error implements error.
func (e *LanguageUnavailableError) Error() string {
	return fmt.Sprintf("%s is not available: %s; %s", e.Language, e.Reason, e.Install)
}

// StartError says that a kernel did not start.
type StartError struct {
	Problem string // what happened; empty where Err says it all
	Stderr  string // the last lines that it wrote, at most 8 KiB
	Err     error  // the cause, if there is one
}

// Error implements error.
func (e *StartError) Error() string {
	text := "starting the kernel"
	if e.Problem != "" {
		text += ": " + e.Problem
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if lines := strings.TrimSpace(e.Stderr); lines != "" {
		text += "; it wrote:\n" + lines
	}
	return text
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }
