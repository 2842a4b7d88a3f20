package client

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// refusal is an error as guestd sends it.
func refusal(t *testing.T, code codes.Code, reason string, metadata map[string]string) error {
	t.Helper()
	st, err := status.New(code, "for people").WithDetails(&errdetails.ErrorInfo{
		Domain: errorDomain, Reason: reason, Metadata: metadata,
	})
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

func TestErrorsMeanGosOwn(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		is   []error
		isnt []error
	}{
		"no file": {
			refusal(t, codes.NotFound, "FILE_NOT_FOUND", map[string]string{"errno": "ENOENT"}),
			[]error{fs.ErrNotExist, syscall.ENOENT}, []error{fs.ErrExist, exec.ErrNotFound},
		},
		"file exists":       {refusal(t, codes.AlreadyExists, "FILE_EXISTS", nil), []error{fs.ErrExist}, []error{fs.ErrNotExist}},
		"request id reused": {refusal(t, codes.AlreadyExists, "REQUEST_ID_REUSED", nil), nil, []error{fs.ErrExist}},
		"denied": {
			refusal(t, codes.PermissionDenied, "PERMISSION_DENIED", map[string]string{"errno": "EACCES"}),
			[]error{fs.ErrPermission, syscall.EACCES}, nil,
		},
		"no command":     {refusal(t, codes.NotFound, "COMMAND_NOT_FOUND", nil), []error{exec.ErrNotFound, fs.ErrNotExist}, nil},
		"not executable": {refusal(t, codes.FailedPrecondition, "COMMAND_NOT_EXECUTABLE", nil), []error{ErrNotExecutable}, []error{exec.ErrNotFound}},
		"no directory": {
			refusal(t, codes.FailedPrecondition, "NOT_A_DIRECTORY", nil), []error{syscall.ENOTDIR}, []error{fs.ErrNotExist},
		},
		"directory":       {refusal(t, codes.FailedPrecondition, "IS_A_DIRECTORY", nil), []error{syscall.EISDIR}, nil},
		"not empty":       {refusal(t, codes.FailedPrecondition, "NOT_EMPTY", nil), []error{syscall.ENOTEMPTY}, nil},
		"long name":       {refusal(t, codes.InvalidArgument, "NAME_TOO_LONG", nil), []error{syscall.ENAMETOOLONG, ErrInvalid}, nil},
		"disk full":       {refusal(t, codes.ResourceExhausted, "DISK_FULL", nil), []error{syscall.ENOSPC}, nil},
		"damaged archive": {refusal(t, codes.DataLoss, "ARCHIVE_DAMAGED", nil), []error{ErrArchive}, []error{ErrChecksum}},
		"outside":         {refusal(t, codes.FailedPrecondition, "OUTSIDE_DIRECTORY", nil), []error{ErrOutside}, []error{syscall.ELOOP}},
		"a limit":         {refusal(t, codes.ResourceExhausted, "LIMIT_REACHED", nil), []error{ErrLimit}, []error{syscall.ENOSPC}},
		"no user":         {refusal(t, codes.NotFound, "USER_NOT_FOUND", nil), []error{ErrUserNotFound}, []error{fs.ErrNotExist}},
		"process gone":    {refusal(t, codes.NotFound, "PROCESS_NOT_FOUND", nil), []error{ErrProcessNotFound}, []error{fs.ErrNotExist}},
		"process ended":   {refusal(t, codes.FailedPrecondition, "PROCESS_ENDED", nil), []error{os.ErrProcessDone}, nil},
		"token":           {refusal(t, codes.Unauthenticated, "TOKEN_REFUSED", nil), []error{ErrUnauthenticated}, []error{fs.ErrPermission}},
		"invalid":         {refusal(t, codes.InvalidArgument, "INVALID_FIELD", map[string]string{"field": "x"}), []error{ErrInvalid}, nil},
		"not served":      {status.Error(codes.Unimplemented, "no"), []error{errors.ErrUnsupported}, nil},
		"no guestd":       {status.Error(codes.Unavailable, "no"), []error{ErrUnavailable}, nil},
		"deadline passed": {status.Error(codes.DeadlineExceeded, "late"), []error{context.DeadlineExceeded}, nil},
		"other domain": {
			func() error {
				st, _ := status.New(codes.NotFound, "x").WithDetails(&errdetails.ErrorInfo{Domain: "other", Reason: "FILE_NOT_FOUND"})
				return st.Err()
			}(),
			nil, []error{fs.ErrNotExist},
		},
	} {
		err := fromRPC(c.err)
		for _, target := range c.is {
			if !errors.Is(err, target) {
				t.Errorf("%s: is not %v", name, target)
			}
		}
		for _, target := range c.isnt {
			if errors.Is(err, target) {
				t.Errorf("%s: is %v", name, target)
			}
		}
		if status.Code(err) != status.Code(c.err) {
			t.Errorf("%s: its status is %v, want %v", name, status.Code(err), status.Code(c.err))
		}
	}
}

func TestErrorDetails(t *testing.T) {
	err := fromRPC(refusal(t, codes.NotFound, "FILE_NOT_FOUND", map[string]string{
		"errno": "ENOENT", "path": `"/tmp/\xff"`, "field": "path",
	}))
	e, is := errors.AsType[*Error](err)
	if !is {
		t.Fatalf("%T is no *Error", err)
	}
	if e.Reason != "FILE_NOT_FOUND" || e.Path != "/tmp/\xff" || e.Field != "path" || e.Errno != syscall.ENOENT || e.Message != "for people" {
		t.Errorf("got %+v", e)
	}
	if fromRPC(err) != err {
		t.Error("it is translated twice")
	}
	if cut := unquote(`"/tmp/cut of`); cut != `"/tmp/cut of` {
		t.Errorf("a path cut within its quotes became %q", cut)
	}
}

func TestEveryReasonIsOfTheAPI(t *testing.T) {
	for reason := range meaningOfReason {
		if _, known := guestdv1.ErrorReason_value["ERROR_REASON_"+reason]; !known {
			t.Errorf("the API has no reason %s", reason)
		}
	}
}

func TestCallEndedByItsContextTellsTheCause(t *testing.T) {
	why := errors.New("the user has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := fromCall(ctx, status.Error(codes.Canceled, "context canceled")); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
	if err := fromCall(ctx, status.Error(codes.NotFound, "x")); errors.Is(err, why) {
		t.Error("an answer of guestd's is taken for the context's end")
	}
}

// TestMessageOfAFailedDialIsUnquoted: what a monitor said is quoted once, by who tells it.
func TestMessageOfAFailedDialIsUnquoted(t *testing.T) {
	for message, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: the monitor answered \"no \\\\r\" instead of OK"`: `the monitor answered "no \\r" instead of OK`,
		`connection error: desc = "error reading server preface: EOF"`:                                               "guestd closed the connection without an answer, as it does to who may not connect (its log tells why): EOF",
		`connection error: desc = "cut of`:                                                                           `"cut of`,
		`the file "x" is none`:                                                                                       `the file "x" is none`,
	} {
		if got := plainMessage(message); got != want {
			t.Errorf("%s\nbecame %s\n   want %s", message, got, want)
		}
	}
}

func TestMessageOfAFailedDialIsPlain(t *testing.T) {
	c, err := Dial("unix:///nonexistent/guestd.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Health(t.Context(), "")
	const want = "connecting to unix:///nonexistent/guestd.sock: dial unix /nonexistent/guestd.sock: connect: no such file or directory"
	if err == nil || err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}
