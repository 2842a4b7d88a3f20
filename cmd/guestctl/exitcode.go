package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"guestd.internal/client"
)

// Exit codes besides the command's own, as docker run and timeout(1) have them.
const (
	exitCodeError     = 1 // `run`: an error in the code, or a dead kernel
	exitTimeout       = 124
	exitFailure       = 125 // guestctl's own failure, or the request's
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // plus the signal's number
)

// exitError ends guestctl with a code, without a word.
type exitError int

func (e exitError) Error() string { return "exit" }

// exitCode is the code with which guestctl ends after err; ctx tells whether a signal has ended it.
func exitCode(ctx context.Context, err error) int {
	if err == nil {
		return 0
	}
	if code, is := errors.AsType[exitError](err); is {
		return int(code)
	}
	if exit, is := errors.AsType[*client.ExitError](err); is {
		return statusCode(&exit.ExitStatus)
	}
	if signal, is := errors.AsType[signalError](context.Cause(ctx)); is {
		return exitSignal + int(signal)
	}
	if signal, is := errors.AsType[signalError](err); is {
		return exitSignal + int(signal)
	}
	switch {
	case isBrokenStdout(err):
		return exitSignal + int(syscall.SIGPIPE)
	case errors.Is(err, exec.ErrNotFound):
		return exitNotFound
	case errors.Is(err, client.ErrNotExecutable):
		return exitNotExecutable
	default:
		return exitFailure
	}
}

// statusCode is the code for a process's end.
func statusCode(status *client.ExitStatus) int {
	switch {
	case status.TimedOut:
		return exitTimeout
	case status.Signal != 0:
		return exitSignal + int(status.Signal)
	default:
		return status.ExitCode
	}
}

// complaint is what to tell the user about err; empty where the exit code says it all.
func complaint(ctx context.Context, err error) string {
	if err == nil {
		return ""
	}
	if _, is := errors.AsType[exitError](err); is {
		return ""
	}
	if exit, is := errors.AsType[*client.ExitError](err); is {
		if several, is := err.(interface{ Unwrap() []error }); is { // and what got lost
			return complaints(ctx, several.Unwrap())
		}
		switch {
		case exit.OOMKilled:
			return "the guest ran out of memory"
		case exit.TimedOut:
			return "the command ran out of time"
		}
		return ""
	}
	_, ended := errors.AsType[signalError](context.Cause(ctx))
	if _, is := errors.AsType[signalError](err); is || ended || isBrokenStdout(err) {
		return ""
	}
	switch {
	case errors.Is(err, client.ErrUnauthenticated):
		return plain(err) + " (give it with --token-file or " + envToken + ")"
	case errors.Is(err, errors.ErrUnsupported):
		return "this guest does not serve that: " + plain(err)
	}
	return plain(err)
}

// complaints is what to tell about each of several errors.
func complaints(ctx context.Context, errs []error) string {
	var all []string
	for _, err := range errs {
		if c := complaint(ctx, err); c != "" {
			all = append(all, c)
		}
	}
	return strings.Join(all, "\n")
}

// isBrokenStdout tells whether whoever read guestctl's output has gone, as head does when it has enough.
func isBrokenStdout(err error) bool { return isStdout(err) && errors.Is(err, syscall.EPIPE) }

// isStdout tells whether guestctl's output could not be written.
func isStdout(err error) bool {
	path, is := errors.AsType[*fs.PathError](err)
	return is && path.Path == os.Stdout.Name()
}
