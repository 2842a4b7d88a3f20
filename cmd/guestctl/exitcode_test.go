package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"

	"guestd.internal/client"
)

func TestExitCodes(t *testing.T) {
	exited := func(status client.ExitStatus) error { return &client.ExitError{ExitStatus: status} }
	refused := func(code codes.Code, reason string) error {
		return fmt.Errorf("wrapped: %w", &client.Error{Code: code, Reason: reason, Message: "told"})
	}
	signalled, cancel := context.WithCancelCause(t.Context())
	cancel(signalError(syscall.SIGTERM))
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		code int
		told bool
	}{
		"success":          {t.Context(), nil, 0, false},
		"exit 7":           {t.Context(), exited(client.ExitStatus{ExitCode: 7}), 7, false},
		"exit 255":         {t.Context(), exited(client.ExitStatus{ExitCode: 255}), 255, false},
		"killed":           {t.Context(), exited(client.ExitStatus{ExitCode: -1, Signal: syscall.SIGKILL}), 137, false},
		"out of memory":    {t.Context(), exited(client.ExitStatus{ExitCode: -1, Signal: syscall.SIGKILL, OOMKilled: true}), 137, true},
		"timed out":        {t.Context(), exited(client.ExitStatus{ExitCode: -1, Signal: syscall.SIGTERM, TimedOut: true}), 124, true},
		"timed out calmly": {t.Context(), exited(client.ExitStatus{TimedOut: true}), 124, true},
		"not found":        {t.Context(), refused(codes.NotFound, "COMMAND_NOT_FOUND"), 127, true},
		"not executable":   {t.Context(), refused(codes.FailedPrecondition, "COMMAND_NOT_EXECUTABLE"), 126, true},
		"no interpreter":   {t.Context(), refused(codes.FailedPrecondition, "BAD_INTERPRETER"), 126, true},
		"no directory":     {t.Context(), refused(codes.NotFound, "CWD_NOT_FOUND"), 125, true},
		"no file":          {t.Context(), refused(codes.NotFound, "FILE_NOT_FOUND"), 125, true},
		"no guestd":        {t.Context(), refused(codes.Unavailable, ""), 125, true},
		"anything":         {t.Context(), errors.New("anything"), 125, true},
		"error in code":    {t.Context(), exitError(exitCodeError), 1, false},
		"signalled":        {signalled, errors.New("cancelled"), 143, false},
		"hung up":          {t.Context(), signalError(syscall.SIGHUP), 129, false},
		"signalled, ended": {signalled, exited(client.ExitStatus{ExitCode: 3}), 3, false},
		"reader has gone":  {t.Context(), &fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: syscall.EPIPE}, 141, false},
		"pipe elsewhere":   {t.Context(), &fs.PathError{Op: "write", Path: "fifo", Err: syscall.EPIPE}, 125, true},
	} {
		if code := exitCode(c.ctx, c.err); code != c.code {
			t.Errorf("%s: exit code %d, want %d", name, code, c.code)
		}
		if message := complaint(c.ctx, c.err); (message != "") != c.told {
			t.Errorf("%s: tells %q", name, message)
		}
	}
}
