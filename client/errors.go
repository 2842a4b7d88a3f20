package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errorDomain is the domain of guestd's google.rpc.ErrorInfo.
const errorDomain = "guestd"

// What errors.Is finds in an Error where Go has no error of its own.
var (
	// ErrNotExecutable: the command exists, and cannot be executed.
	ErrNotExecutable = errors.New("not executable")
	// ErrUserNotFound: the guest has no such user.
	ErrUserNotFound = errors.New("no such user")
	// ErrProcessNotFound: guestd lists no such process; it may have ended more than ten minutes
	// ago, or guestd was restarted.
	ErrProcessNotFound = errors.New("no such process")
	// ErrContextNotFound: guestd has no such code context.
	ErrContextNotFound = errors.New("no such context")
	// ErrExecutionNotFound: guestd lists no such execution.
	ErrExecutionNotFound = errors.New("no such execution")
	// ErrLanguageNotFound: the guest knows no such language.
	ErrLanguageNotFound = errors.New("no such language")
	// ErrUnauthenticated: the token is missing or wrong.
	ErrUnauthenticated = errors.New("token refused")
	// ErrInvalid: the request is malformed.
	ErrInvalid = errors.New("invalid request")
	// ErrUnavailable: guestd cannot be reached, shuts down or is being snapshotted; the same call
	// may succeed later.
	ErrUnavailable = errors.New("guestd is unavailable")
	// ErrChecksum: what arrived is not what was announced.
	ErrChecksum = errors.New("checksum or size does not match")
	// ErrArchive: what was sent to Extract is no archive, damaged, or cut.
	ErrArchive = errors.New("the archive is damaged or incomplete")
	// ErrOutside: an archive's entry would lie outside the directory.
	ErrOutside = errors.New("leads out of the directory")
	// ErrNotStarted: a Cmd that does not run yet cannot be signalled, resized or waited for.
	ErrNotStarted = errors.New("the command was not started")
	// ErrLeft: the process was left alone, by Leave, before its end.
	ErrLeft = errors.New("the process was left")
	// ErrLimit: a limit of guestd's own is reached.
	ErrLimit = errors.New("limit reached")
)

// Error is a call that guestd refused or that did not reach it. errors.Is finds in it Go's own
// error of the same meaning (fs.ErrNotExist, exec.ErrNotFound, os.ErrProcessDone,
// errors.ErrUnsupported, context.DeadlineExceeded, …), the kernel's errno, or one of this
// package's.
type Error struct {
	// Code is the call's gRPC status.
	Code codes.Code
	// Reason is guestd's own, one of the proto's ErrorReason without its prefix, e.g.
	// "FILE_NOT_FOUND"; empty where it gave none.
	Reason string
	// Field is the request's field that is at fault, e.g. "spec.cwd"; may be empty.
	Field string
	// Path is the file that the error is about; may be empty.
	Path string
	// Errno is what the guest's kernel said; 0 where it was not asked or its symbol is not known here.
	Errno syscall.Errno
	// Message is for people.
	Message string

	status *status.Status
}

// Error gives the message.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.String()
	}
	return e.Message
}

// GRPCStatus gives the call's status as it came, for status.FromError.
func (e *Error) GRPCStatus() *status.Status {
	if e.status == nil {
		return status.New(e.Code, e.Message)
	}
	return e.status
}

// Is tells whether the error means the same as one of Go's or of this package's.
func (e *Error) Is(target error) bool {
	for _, meaning := range meaningOfReason[e.Reason] {
		if meaning == target {
			return true
		}
	}
	meaning, ok := meaningOfCode[e.Code]
	return ok && meaning == target
}

// Unwrap gives the errno, if there is one, so that errors.Is finds it and what it means (as EACCES
// means fs.ErrPermission).
func (e *Error) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}

// meaningOfReason is the one table from guestd's reasons back to Go's errors.
var meaningOfReason = map[string][]error{
	"COMMAND_NOT_FOUND":       {exec.ErrNotFound, fs.ErrNotExist},
	"COMMAND_NOT_EXECUTABLE":  {ErrNotExecutable, fs.ErrPermission},
	"BAD_INTERPRETER":         {ErrNotExecutable},
	"CWD_NOT_FOUND":           {fs.ErrNotExist},
	"CWD_DENIED":              {fs.ErrPermission},
	"USER_NOT_FOUND":          {ErrUserNotFound},
	"OTHER_USER_WITHOUT_ROOT": {fs.ErrPermission},
	"FILE_NOT_FOUND":          {fs.ErrNotExist, syscall.ENOENT},
	"FILE_EXISTS":             {fs.ErrExist, syscall.EEXIST},
	"NOT_A_DIRECTORY":         {syscall.ENOTDIR},
	"IS_A_DIRECTORY":          {syscall.EISDIR},
	"NOT_EMPTY":               {syscall.ENOTEMPTY},
	"NAME_TOO_LONG":           {syscall.ENAMETOOLONG},
	"PROCESS_NOT_FOUND":       {ErrProcessNotFound},
	"PROCESS_ENDED":           {os.ErrProcessDone},
	"CONTEXT_NOT_FOUND":       {ErrContextNotFound},
	"EXECUTION_NOT_FOUND":     {ErrExecutionNotFound},
	"LANGUAGE_NOT_FOUND":      {ErrLanguageNotFound},
	"DISK_FULL":               {syscall.ENOSPC},
	"CHECKSUM_MISMATCH":       {ErrChecksum},
	"ARCHIVE_DAMAGED":         {ErrArchive},
	"OUTSIDE_DIRECTORY":       {ErrOutside},
	"LIMIT_REACHED":           {ErrLimit},
	"PERMISSION_DENIED":       {fs.ErrPermission},
	"LINK_REFUSED":            {syscall.ELOOP},
	"INPUT_CLOSED":            {syscall.EPIPE},
	"READ_ONLY_FILE_SYSTEM":   {syscall.EROFS},
	"ARGUMENTS_TOO_LONG":      {syscall.E2BIG},
}

// meaningOfCode is what a status means by itself, whatever its reason.
var meaningOfCode = map[codes.Code]error{
	codes.Canceled:         context.Canceled,
	codes.DeadlineExceeded: context.DeadlineExceeded,
	codes.InvalidArgument:  ErrInvalid,
	codes.PermissionDenied: fs.ErrPermission,
	codes.Unauthenticated:  ErrUnauthenticated,
	codes.Unavailable:      ErrUnavailable,
	codes.Unimplemented:    errors.ErrUnsupported,
}

// errnoOfSymbol knows the errnos that file and process calls meet.
var errnoOfSymbol = map[string]syscall.Errno{
	"E2BIG": syscall.E2BIG, "EACCES": syscall.EACCES, "EAGAIN": syscall.EAGAIN, "EBADF": syscall.EBADF, "EBUSY": syscall.EBUSY,
	"EDQUOT": syscall.EDQUOT, "EEXIST": syscall.EEXIST, "EFBIG": syscall.EFBIG, "EINVAL": syscall.EINVAL, "EIO": syscall.EIO,
	"EISDIR": syscall.EISDIR, "ELOOP": syscall.ELOOP, "EMFILE": syscall.EMFILE, "EMLINK": syscall.EMLINK,
	"ENAMETOOLONG": syscall.ENAMETOOLONG, "ENFILE": syscall.ENFILE, "ENODEV": syscall.ENODEV, "ENOENT": syscall.ENOENT,
	"ENOEXEC": syscall.ENOEXEC, "ENOMEM": syscall.ENOMEM, "ENOSPC": syscall.ENOSPC, "ENOSYS": syscall.ENOSYS,
	"ENOTDIR": syscall.ENOTDIR, "ENOTEMPTY": syscall.ENOTEMPTY, "ENOTSUP": syscall.ENOTSUP, "ENOTTY": syscall.ENOTTY,
	"ENXIO": syscall.ENXIO, "EOPNOTSUPP": syscall.EOPNOTSUPP, "EPERM": syscall.EPERM, "EPIPE": syscall.EPIPE,
	"EROFS": syscall.EROFS, "ESPIPE": syscall.ESPIPE, "ESRCH": syscall.ESRCH, "ESTALE": syscall.ESTALE,
	"ETXTBSY": syscall.ETXTBSY, "EXDEV": syscall.EXDEV,
}

// fromRPC turns what a gRPC call returned into an Error. It leaves nil, and errors that are no
// status, as they are.
func fromRPC(err error) error {
	if err == nil {
		return nil
	}
	if _, is := errors.AsType[*Error](err); is {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	e := &Error{Code: st.Code(), Message: plainMessage(st.Message()), status: st}
	for _, detail := range st.Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is && info.GetDomain() == errorDomain {
			e.Reason = info.GetReason()
			e.Field = info.GetMetadata()["field"]
			e.Path = unquote(info.GetMetadata()["path"])
			e.Errno = errnoOfSymbol[info.GetMetadata()["errno"]]
		}
	}
	return e
}

// plainMessage takes from grpc's message about a failed dial what the dialer said.
func plainMessage(message string) string {
	quoted, is := strings.CutPrefix(message, "connection error: desc = ")
	if !is {
		return message
	}
	said := unquote(quoted)
	if ended, is := strings.CutPrefix(said, "error reading server preface: "); is {
		return "guestd closed the connection without an answer, as it does to who may not connect (its log tells why): " + ended
	}
	return strings.TrimPrefix(said, "transport: Error while dialing: ")
}

// fromCall is fromRPC for a call made under ctx: where ctx itself ended the call, the error is
// ctx's cause.
func fromCall(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if code := status.Code(err); ctx.Err() != nil && (code == codes.Canceled || code == codes.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	return fromRPC(err)
}

// withCause prefers the reason why ctx ended to the error that its end has led to, and keeps both.
func withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w (%w)", cause, err)
}

// broken tells whether an error means that the connection was lost and not that guestd has
// answered: its own errors have a reason.
func broken(err error) bool {
	e, is := errors.AsType[*Error](err)
	return is && e.Code == codes.Unavailable && e.Reason == ""
}

// final tells whether waiting does not help against an error.
func final(err error) bool {
	e, is := errors.AsType[*Error](err)
	if !is {
		return err != nil && !errors.Is(err, ErrUnavailable)
	}
	return e.Code == codes.Unauthenticated || e.Code == codes.Unimplemented || e.Code == codes.PermissionDenied
}

// unquote undoes the quoting of a path; one that was cut in the middle of its quotes stays as it is.
func unquote(path string) string {
	if plain, err := strconv.Unquote(path); err == nil {
		return plain
	}
	return path
}

// invalid is what guestd answers to a malformed field, made here where the request cannot even be sent.
func invalid(field, format string, args ...any) error {
	return &Error{
		Code: codes.InvalidArgument, Reason: "INVALID_FIELD", Field: field, Message: field + ": " + fmt.Sprintf(format, args...),
	}
}

// checkText refuses text that protobuf could not carry, as guestd would.
func checkText(field, text string) error {
	if !utf8.ValidString(text) {
		return invalid(field, "not valid UTF-8")
	}
	return nil
}
