package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"guestd.internal/agent/internal/codec"
	"guestd.internal/fsapi"
	"guestd.internal/internal/account"
	"guestd.internal/internal/outlog"
	"guestd.internal/internal/spawn"
	"guestd.internal/kernel"
	"guestd.internal/proc"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// errorCases have at least one error for each reason that a package of guestd's
// gives.
var errorCases = []struct {
	err    error
	code   codes.Code
	reason string
	meta   map[string]string // as a whole
}{
	{&spawn.StartError{Reason: spawn.CommandNotFound, Path: "nope", Err: unix.ENOENT}, codes.NotFound, "COMMAND_NOT_FOUND", map[string]string{"errno": "ENOENT", "path": `"nope"`}},
	{&spawn.StartError{Reason: spawn.CommandNotExecutable, Path: "/x", Err: unix.EACCES}, codes.FailedPrecondition, "COMMAND_NOT_EXECUTABLE", map[string]string{"errno": "EACCES", "path": `"/x"`}},
	{&spawn.StartError{Reason: spawn.BadInterpreter, Path: "/x", Err: unix.ENOENT}, codes.FailedPrecondition, "BAD_INTERPRETER", map[string]string{"errno": "ENOENT", "path": `"/x"`}},
	{&spawn.StartError{Reason: spawn.CwdNotFound, Path: "/d", Err: unix.ENOENT}, codes.NotFound, "CWD_NOT_FOUND", map[string]string{"errno": "ENOENT", "path": `"/d"`}},
	{&spawn.StartError{Reason: spawn.CwdNotDirectory, Path: "/d", Err: unix.ENOTDIR}, codes.FailedPrecondition, "CWD_NOT_FOUND", map[string]string{"errno": "ENOTDIR", "path": `"/d"`}},
	{&spawn.StartError{Reason: spawn.CwdDenied, Path: "/d", Err: unix.EACCES}, codes.PermissionDenied, "CWD_DENIED", map[string]string{"errno": "EACCES", "path": `"/d"`}},
	{&spawn.StartError{Reason: spawn.TooLong, Err: unix.E2BIG}, codes.ResourceExhausted, "ARGUMENTS_TOO_LONG", map[string]string{"errno": "E2BIG"}},
	{&spawn.StartError{Reason: spawn.Other, Err: fmt.Errorf("forking: %w", unix.EAGAIN)}, codes.ResourceExhausted, "LIMIT_REACHED", map[string]string{"errno": "EAGAIN"}},
	{&account.UnknownUserError{Spec: "who"}, codes.NotFound, "USER_NOT_FOUND", nil},
	{fmt.Errorf("serving user: %w", account.ErrOtherUser), codes.PermissionDenied, "OTHER_USER_WITHOUT_ROOT", nil},

	{&fsapi.PathError{Op: "open", Path: "/f\xff", Err: unix.ENOENT}, codes.NotFound, "FILE_NOT_FOUND", map[string]string{"errno": "ENOENT", "path": `"/f\xff"`}},
	{&fsapi.PathError{Op: "open", Path: "/f", Err: unix.EEXIST}, codes.AlreadyExists, "FILE_EXISTS", map[string]string{"errno": "EEXIST", "path": `"/f"`}},
	{&fsapi.PathError{Op: "open", Path: "/f", Err: unix.ENOTDIR}, codes.FailedPrecondition, "NOT_A_DIRECTORY", map[string]string{"errno": "ENOTDIR", "path": `"/f"`}},
	{&fsapi.PathError{Op: "read", Path: "/f", Err: fsapi.ErrIsDirectory}, codes.FailedPrecondition, "IS_A_DIRECTORY", map[string]string{"path": `"/f"`}},
	{&fsapi.PathError{Op: "remove", Path: "/f", Err: unix.ENOTEMPTY}, codes.FailedPrecondition, "NOT_EMPTY", map[string]string{"errno": "ENOTEMPTY", "path": `"/f"`}},
	{&fsapi.PathError{Op: "open", Path: "/f", Err: unix.EACCES}, codes.PermissionDenied, "PERMISSION_DENIED", map[string]string{"errno": "EACCES", "path": `"/f"`}},
	{&fsapi.PathError{Op: "open", Path: "/f", Err: fs.ErrPermission}, codes.PermissionDenied, "PERMISSION_DENIED", map[string]string{"path": `"/f"`}},
	{&fsapi.PathError{Op: "write", Path: "/f", Err: unix.EDQUOT}, codes.ResourceExhausted, "DISK_FULL", map[string]string{"errno": "EDQUOT", "path": `"/f"`}},
	{&fsapi.PathError{Op: "open", Path: "/f", Err: unix.ELOOP}, codes.FailedPrecondition, "LINK_REFUSED", map[string]string{"errno": "ELOOP", "path": `"/f"`}},
	{&fsapi.PathError{Op: "open", Path: "/f", Err: unix.ENAMETOOLONG}, codes.InvalidArgument, "NAME_TOO_LONG", map[string]string{"errno": "ENAMETOOLONG", "path": `"/f"`}},
	{&spawn.StartError{Reason: spawn.Other, Path: "/d", Err: unix.ENAMETOOLONG}, codes.InvalidArgument, "NAME_TOO_LONG", map[string]string{"errno": "ENAMETOOLONG", "path": `"/d"`}},
	{&fsapi.PathError{Op: "open", Path: "/f", Err: unix.EROFS}, codes.FailedPrecondition, "READ_ONLY_FILE_SYSTEM", map[string]string{"errno": "EROFS", "path": `"/f"`}},
	{&fsapi.PathError{Op: "read", Path: "/f", Err: fsapi.ErrNotSupportedType}, codes.FailedPrecondition, "NOT_A_REGULAR_FILE", map[string]string{"path": `"/f"`}},
	{&fsapi.PathError{Op: "read", Path: "/f", Err: fsapi.ErrOffsetPastEnd}, codes.OutOfRange, "OFFSET_OUT_OF_RANGE", map[string]string{"path": `"/f"`}},
	{&fsapi.PathError{Op: "read", Path: "/f", Err: fsapi.ErrIgnoreLimit}, codes.ResourceExhausted, "LIMIT_REACHED", map[string]string{"path": `"/f"`}},
	{&fsapi.PathError{Op: "commit", Path: "/f", Err: fsapi.ErrChecksumMismatch}, codes.DataLoss, "CHECKSUM_MISMATCH", map[string]string{"path": `"/f"`}},
	{&fsapi.PathError{Op: "commit", Path: "/f", Err: fsapi.ErrSizeMismatch}, codes.DataLoss, "CHECKSUM_MISMATCH", map[string]string{"path": `"/f"`}},
	{&fsapi.PathError{Op: "extract", Path: "/d", Err: fmt.Errorf("%w: it ends in the middle", fsapi.ErrBadArchive)}, codes.DataLoss, "ARCHIVE_DAMAGED", map[string]string{"path": `"/d"`}},
	{&fsapi.PathError{Op: "extract", Path: "/d", Err: fsapi.ErrArchiveLimit}, codes.ResourceExhausted, "LIMIT_REACHED", map[string]string{"path": `"/d"`}},
	{&fsapi.PathError{Op: "extract", Path: "/f", Err: fsapi.ErrOutside}, codes.FailedPrecondition, "OUTSIDE_DIRECTORY", map[string]string{"path": `"/f"`}},
	{&fsapi.PathError{Op: "archive", Path: "/f", Err: fsapi.ErrChanged}, codes.DataLoss, "UNSPECIFIED", map[string]string{"path": `"/f"`}},
	{&fsapi.PathError{Op: "archive", Path: "/f", Err: fsapi.ErrAttributesLeft}, codes.FailedPrecondition, "UNSPECIFIED", map[string]string{"path": `"/f"`}},
	{&fs.PathError{Op: "open", Path: "/f", Err: unix.EIO}, codes.DataLoss, "UNSPECIFIED", map[string]string{"errno": "EIO", "path": `"/f"`}},
	{&fsapi.InvalidError{Field: "path", Problem: "empty"}, codes.InvalidArgument, "INVALID_FIELD", map[string]string{"field": "path"}},

	{fmt.Errorf("%w: %q", proc.ErrNotFound, "p-x"), codes.NotFound, "PROCESS_NOT_FOUND", nil},
	{proc.ErrNoInput, codes.FailedPrecondition, "NO_SUCH_STREAM", nil},
	{proc.ErrNoTerminal, codes.FailedPrecondition, "NO_SUCH_STREAM", nil},
	{proc.ErrInputClosed, codes.FailedPrecondition, "INPUT_CLOSED", nil},
	{proc.ErrSuperseded, codes.Aborted, "SUPERSEDED", nil},
	{proc.ErrStalled, codes.Aborted, "STALLED", nil},
	{proc.ErrClosed, codes.Unavailable, "SHUTTING_DOWN", nil},
	{os.ErrProcessDone, codes.FailedPrecondition, "PROCESS_ENDED", nil},
	{&outlog.OffsetError{Offset: 5, End: 3}, codes.OutOfRange, "OFFSET_OUT_OF_RANGE", nil},
	{&proc.InvalidError{Field: "nice", Problem: "is 99"}, codes.InvalidArgument, "INVALID_FIELD", map[string]string{"field": "nice"}},

	{kernel.ErrContextNotFound, codes.NotFound, "CONTEXT_NOT_FOUND", nil},
	{kernel.ErrExecutionNotFound, codes.NotFound, "EXECUTION_NOT_FOUND", nil},
	{&kernel.LanguageNotFoundError{Language: "cobol"}, codes.NotFound, "LANGUAGE_NOT_FOUND", nil},
	{&kernel.LanguageUnavailableError{Language: "python"}, codes.FailedPrecondition, "LANGUAGE_UNAVAILABLE", nil},
	{&kernel.StartError{Problem: "it ended", Stderr: strings.Repeat("x", 8<<10)}, codes.FailedPrecondition, "LANGUAGE_UNAVAILABLE", nil},
	{kernel.ErrRequestIDReused, codes.AlreadyExists, "REQUEST_ID_REUSED", nil},
	{kernel.ErrTooManyContexts, codes.ResourceExhausted, "LIMIT_REACHED", nil},
	{kernel.ErrNotSupported, codes.Unimplemented, "UNSPECIFIED", nil},
	{kernel.ErrKernelEnded, codes.Aborted, "UNSPECIFIED", nil},
	{&kernel.CrashLoopError{Count: 5, How: "it exited with code 1"}, codes.FailedPrecondition, "CRASH_LOOP", nil},
	{kernel.ErrQueueFull, codes.ResourceExhausted, "LIMIT_REACHED", nil},
	{kernel.ErrSuperseded, codes.Aborted, "SUPERSEDED", nil},
	{kernel.ErrStalled, codes.Aborted, "STALLED", nil},
	{&kernel.NumberError{Number: 9, Next: 3}, codes.OutOfRange, "OFFSET_OUT_OF_RANGE", nil},
	{kernel.ErrNoInputWanted, codes.FailedPrecondition, "NO_INPUT_REQUEST", nil},
	{kernel.ErrClosed, codes.Unavailable, "SHUTTING_DOWN", nil},
	{&kernel.InvalidError{Field: "code", Problem: "empty"}, codes.InvalidArgument, "INVALID_FIELD", map[string]string{"field": "code"}},

	{spawn.ErrClosed, codes.Unavailable, "SHUTTING_DOWN", nil},
	{errShuttingDown, codes.Unavailable, "SHUTTING_DOWN", nil},
	{errTokenRefused, codes.Unauthenticated, "TOKEN_REFUSED", nil},
	{invalid("spec.cwd", "has a NUL"), codes.InvalidArgument, "INVALID_FIELD", map[string]string{"field": "spec.cwd"}},
	{&codec.Fault{Field: "process_id", Detail: "not valid UTF-8"}, codes.InvalidArgument, "INVALID_FIELD", map[string]string{"field": "process_id"}},
	{&codec.Fault{Size: 9 << 20}, codes.ResourceExhausted, "LIMIT_REACHED", nil},
	{errors.New("never seen"), codes.Internal, "UNSPECIFIED", nil},
	{unix.EBADF, codes.Internal, "UNSPECIFIED", map[string]string{"errno": "EBADF"}},
	{context.DeadlineExceeded, codes.Internal, "UNSPECIFIED", nil}, // somebody else's deadline
}

func TestErrorsOverTheWire(t *testing.T) {
	var next error
	f := &faults{unary: func(context.Context, *guestdv1.GetRequest) error { return next }}
	a := startAgent(t, Config{}, f.desc())
	seen := make(map[string]bool)
	for _, tt := range errorCases {
		next = tt.err
		err := a.call(within(t))
		wantCode(t, err, tt.code, tt.reason)
		st := status.Convert(err)
		info := errorInfo(st)
		if len(info.GetMetadata()) != len(tt.meta) {
			t.Errorf("%v: metadata = %v, want %v", tt.err, info.GetMetadata(), tt.meta)
		}
		for key, want := range tt.meta {
			if got := info.GetMetadata()[key]; got != want {
				t.Errorf("%v: %s = %q, want %q", tt.err, key, got, want)
			}
		}
		if _, known := guestdv1.ErrorReason_value["ERROR_REASON_"+tt.reason]; !known {
			t.Errorf("%s is no reason of the API", tt.reason)
		}
		seen[tt.reason] = true
	}
	// What no package gives yet.
	for _, later := range []string{"SNAPSHOTTING", "CRASH_LOOP"} {
		seen[later] = true
	}
	for _, name := range guestdv1.ErrorReason_name {
		if reason := strings.TrimPrefix(name, "ERROR_REASON_"); !seen[reason] {
			t.Errorf("no case for %s", reason)
		}
	}
}

func TestErrorsStaySmallAndValid(t *testing.T) {
	long := strings.Repeat("\xff/ü\n", 2000)
	for _, err := range []error{
		&fsapi.PathError{Op: "open", Path: long, Err: unix.ENOENT},
		&spawn.StartError{Reason: spawn.CommandNotFound, Path: long, Err: unix.ENOENT},
		&fs.PathError{Op: "open", Path: long, Err: errors.New(long)},
		invalid(long, long),
	} {
		st := statusOf(t.Context(), err)
		if size := proto.Size(st.Proto()); size > 4<<10 {
			t.Errorf("%T: the status has %d bytes, more than 4 KiB", err, size)
		}
		if !utf8.ValidString(st.Message()) {
			t.Errorf("%T: the message is not valid UTF-8", err)
		}
		if errorInfo(st) == nil {
			t.Errorf("%T: no error info", err)
		}
	}
}

func TestContextErrors(t *testing.T) {
	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(nil)
	expired, stop := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer stop()
	ended, end := context.WithCancelCause(context.Background())
	end(errShuttingDown)
	for _, tt := range []struct {
		ctx    context.Context
		err    error
		code   codes.Code
		reason string
	}{
		{cancelled, context.Canceled, codes.Canceled, ""},
		{expired, fmt.Errorf("waiting: %w", context.DeadlineExceeded), codes.DeadlineExceeded, ""},
		{ended, context.Canceled, codes.Unavailable, "SHUTTING_DOWN"},
		{ended, context.Cause(ended), codes.Unavailable, "SHUTTING_DOWN"},
		{cancelled, unix.ENOENT, codes.NotFound, "FILE_NOT_FOUND"}, // what went wrong first
		{context.Background(), context.Canceled, codes.Internal, ""},
		{context.Background(), status.Error(codes.Unimplemented, "no"), codes.Unimplemented, ""},
	} {
		wantCode(t, statusOf(tt.ctx, tt.err).Err(), tt.code, tt.reason)
	}
}

// A client finds what it has written by the same name whatever call carries it.
func TestFieldsOfHeadersStandByThemselves(t *testing.T) {
	for in, want := range map[string]string{
		"spec.cwd":                "spec.cwd",
		"request.start.spec.user": "spec.user",
		"attach.process_id":       "process_id",
		"header.path":             "path",
		"request.input.data":      "input.data",
		"request.start":           "start",
		"request":                 "request",
		"request_id":              "request_id",
		"":                        "",
	} {
		for _, err := range []error{invalid(in, "is wrong"), &codec.Fault{Field: in, Detail: "is wrong"}} {
			if got := errorInfo(statusOf(t.Context(), err)).GetMetadata()["field"]; got != want {
				t.Errorf("%T of %q: field %q, want %q", err, in, got, want)
			}
		}
	}
}
