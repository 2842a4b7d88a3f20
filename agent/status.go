package agent

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"guestd.internal/agent/internal/codec"
	"guestd.internal/fsapi"
	"guestd.internal/internal/account"
	"guestd.internal/internal/outlog"
	"guestd.internal/internal/spawn"
	"guestd.internal/kernel"
	"guestd.internal/proc"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// ErrorDomain is the domain of every google.rpc.ErrorInfo from guestd.
const ErrorDomain = "guestd"

// Message, path and field of an error are cut so that all of it stays under the
// 4 KiB that the API promises.
const (
	maxErrorMessage = 2048
	maxErrorPath    = 1024
	maxErrorField   = 256
)

// statusOf is what a call with the context ctx answers for err, which is not nil.
// An error that is already a status stays what it is. What the table does not
// know is a fault of guestd's own.
func statusOf(ctx context.Context, err error) *status.Status {
	if st, ok := status.FromError(err); ok {
		return explained(st)
	}
	if ctx.Err() != nil && isContextError(err) {
		// The call's own end, unless somebody had a reason to end it.
		if err = context.Cause(ctx); isContextError(err) {
			return status.FromContextError(err)
		}
	}
	a, field := classify(err)
	message := err.Error()
	if a.code == codes.Internal {
		message = "internal error: " + message
	}
	metadata := make(map[string]string)
	put := func(key, value string) {
		if value != "" {
			metadata[key] = value
		}
	}
	put("errno", errnoName(err))
	put("path", quotedPath(err))
	put("field", clip(bareField(field), maxErrorField))
	return explain(status.New(a.code, clip(message, maxErrorMessage)), a.reason, metadata)
}

// explain adds ErrorInfo to a status.
func explain(st *status.Status, reason guestdv1.ErrorReason, metadata map[string]string) *status.Status {
	detailed, err := st.WithDetails(&errdetails.ErrorInfo{
		Reason:   strings.TrimPrefix(reason.String(), "ERROR_REASON_"),
		Domain:   ErrorDomain,
		Metadata: metadata,
	})
	if err != nil {
		return st // an OK, which has no details
	}
	return detailed
}

// explained is a status of the generated code's, for a call that is not served, as
// every other error looks. What grpc says of a call's end stays as it is.
func explained(st *status.Status) *status.Status {
	if st.Code() != codes.Unimplemented || len(st.Details()) > 0 {
		return st
	}
	return explain(st, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED, nil)
}

// bareField is a field's path without the members of a stream's message that hold
// its header, so that Exec names fields as Start does.
func bareField(path string) string {
	path = strings.TrimPrefix(path, "request.")
	for _, member := range []string{"start.", "attach.", "header."} {
		if rest, ok := strings.CutPrefix(path, member); ok {
			return rest
		}
	}
	return path
}

// isFault says whether a status is a fault of guestd's own.
func isFault(st *status.Status) bool { return st.Code() == codes.Internal }

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// classify looks err up: typed errors first, since they wrap the others, then
// sentinels, error numbers, and io/fs's errors.
func classify(err error) (a answer, field string) {
	if a, field, ok := classifyRequest(err); ok {
		return a, field
	}
	if a, ok := classifyTyped(err); ok {
		return a, ""
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.answer, ""
		}
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		if a, ok := errnos[errno]; ok {
			return a, ""
		}
	}
	for _, s := range fsSentinels {
		if errors.Is(err, s.err) {
			return s.answer, ""
		}
	}
	return answer{codes.Internal, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED}, ""
}

// classifyRequest recognises errors that name a field of the request.
func classifyRequest(err error) (a answer, field string, ok bool) {
	a = answer{codes.InvalidArgument, guestdv1.ErrorReason_ERROR_REASON_INVALID_FIELD}
	if e, ok := errors.AsType[*codec.Fault](err); ok {
		if e.Size > 0 {
			a = answer{codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_LIMIT_REACHED}
		}
		return a, e.Field, true
	}
	if e, ok := errors.AsType[*invalidError](err); ok {
		return a, e.field, true
	}
	if e, ok := errors.AsType[*fsapi.InvalidError](err); ok {
		return a, e.Field, true
	}
	if e, ok := errors.AsType[*kernel.InvalidError](err); ok {
		return a, e.Field, true
	}
	if e, ok := errors.AsType[*proc.InvalidError](err); ok {
		return a, e.Field, true
	}
	return answer{}, "", false
}

// classifyTyped recognises the other typed errors.
func classifyTyped(err error) (answer, bool) {
	if e, ok := errors.AsType[*spawn.StartError](err); ok {
		a, ok := startReasons[e.Reason]
		return a, ok
	}
	if _, ok := errors.AsType[*account.UnknownUserError](err); ok {
		return answer{codes.NotFound, guestdv1.ErrorReason_ERROR_REASON_USER_NOT_FOUND}, true
	}
	if _, ok := errors.AsType[*fsapi.WatchLimitError](err); ok {
		return answer{codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_LIMIT_REACHED}, true
	}
	if _, ok := errors.AsType[*outlog.OffsetError](err); ok {
		return answer{codes.OutOfRange, guestdv1.ErrorReason_ERROR_REASON_OFFSET_OUT_OF_RANGE}, true
	}
	if _, ok := errors.AsType[*kernel.NumberError](err); ok {
		return answer{codes.OutOfRange, guestdv1.ErrorReason_ERROR_REASON_OFFSET_OUT_OF_RANGE}, true
	}
	if _, ok := errors.AsType[*kernel.LanguageNotFoundError](err); ok {
		return answer{codes.NotFound, guestdv1.ErrorReason_ERROR_REASON_LANGUAGE_NOT_FOUND}, true
	}
	if _, ok := errors.AsType[*kernel.LanguageUnavailableError](err); ok {
		return answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_LANGUAGE_UNAVAILABLE}, true
	}
	if _, ok := errors.AsType[*kernel.CrashLoopError](err); ok {
		return answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_CRASH_LOOP}, true
	}
	if _, ok := errors.AsType[*kernel.StartError](err); ok {
		return answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_LANGUAGE_UNAVAILABLE}, true
	}
	return answer{}, false
}

// errnoName is the symbol of the error number in err, "" where there is none.
func errnoName(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return unix.ErrnoName(errno)
	}
	return ""
}

// quotedPath is the path that err is about, quoted so that any bytes survive, ""
// where there is none.
func quotedPath(err error) string {
	path := ""
	if e, ok := errors.AsType[*fsapi.PathError](err); ok {
		path = e.Path
	} else if e, ok := errors.AsType[*spawn.StartError](err); ok {
		path = e.Path
	} else if e, ok := errors.AsType[*fs.PathError](err); ok {
		path = e.Path
	}
	if path == "" {
		return ""
	}
	return clip(strconv.Quote(path), maxErrorPath)
}

// clip makes text that may hold anything fit for a message: valid UTF-8 of at
// most limit bytes.
func clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= limit {
		return text
	}
	const mark = "…"
	cut := limit - len(mark)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}
