package spawn

import (
	"errors"
	"fmt"
	"syscall"
)

// Reason tells apart why a process could not be started.
type Reason int

// The reasons of a StartError.
const (
	// Other is everything below not named: EAGAIN (too many processes), ENOMEM,
	// EINVAL, EPERM and so on; see Err.
	Other Reason = iota
	// CommandNotFound: no such file, or no file of that name in PATH.
	CommandNotFound
	// CommandNotExecutable: there is such a file, and it is a folder, lacks the
	// execute permission, may not be reached by this user, or lies on a noexec
	// mount.
	CommandNotExecutable
	// BadInterpreter: the file is there and executable, but the interpreter in
	// its "#!" line or its program header is not.
	BadInterpreter
	// CwdNotFound: the working directory does not exist.
	CwdNotFound
	// CwdDenied: the user may not enter the working directory.
	CwdDenied
	// CwdNotDirectory: the working directory is no directory.
	CwdNotDirectory
	// TooLong: arguments and environment exceed what execve(2) takes (E2BIG).
	TooLong
)

var reasonTexts = map[Reason]string{
	Other:                "cannot be started",
	CommandNotFound:      "command not found",
	CommandNotExecutable: "command is not executable",
	BadInterpreter:       "bad interpreter",
	CwdNotFound:          "working directory not found",
	CwdDenied:            "working directory may not be entered",
	CwdNotDirectory:      "working directory is not a directory",
	TooLong:              "argument list too long",
}

// String returns the reason in words, for example "command not found".
func (r Reason) String() string { return reasonTexts[r] }

// StartError says why a process was not started. Nothing of it has run.
type StartError struct {
	Reason Reason
	Path   string // the command or working directory it is about; may be empty
	Err    error  // the system's error number, a syscall.Errno, perhaps wrapped with what it is about
}

// Error implements error.
func (e *StartError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("%v: %v", e.Reason, e.Err)
	}
	return fmt.Sprintf("%v: %q: %v", e.Reason, e.Path, e.Err)
}

// Unwrap returns Err, so that errors.Is(err, fs.ErrNotExist) works.
func (e *StartError) Unwrap() error { return e.Err }

// ErrClosed is what Start returns once Close was called.
var ErrClosed = errors.New("spawner is closed")

func newStartError(reason Reason, path string, errno syscall.Errno, detail string) *StartError {
	var err error = errno
	if detail != "" {
		err = fmt.Errorf("%s: %w", detail, errno)
	}
	return &StartError{Reason: reason, Path: path, Err: err}
}

// errnoOf returns the error number in err, or EIO for an error without one.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}
