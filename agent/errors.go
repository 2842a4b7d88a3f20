package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"guestd.internal/agent/internal/replay"
	"guestd.internal/fsapi"
	"guestd.internal/internal/account"
	"guestd.internal/internal/spawn"
	"guestd.internal/kernel"
	"guestd.internal/proc"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// errPanic stands for a handler's panic, which is logged and not told.
var errPanic = errors.New("the call failed; guestd's log says how")

// panicError carries a panic from another goroutine of a call to the call's own.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// errCallEnded is why a call's context ends when nothing went wrong.
var errCallEnded = errors.New("the call has ended")

// invalidError says which field of a request is malformed.
type invalidError struct {
	field, problem string
}

func (e *invalidError) Error() string { return e.field + ": " + e.problem }

// invalid is the error for a malformed request. field is its path in the request,
// for example "spec.cwd".
func invalid(field, problem string) error { return &invalidError{field, problem} }

// answer is a code and a reason.
type answer struct {
	code   codes.Code
	reason guestdv1.ErrorReason
}

// sentinels are the errors that are recognised by errors.Is. The first that
// matches counts: ENOTEMPTY is an fs.ErrExist too.
var sentinels = []struct {
	err error
	answer
}{
	{errShuttingDown, answer{codes.Unavailable, guestdv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN}},
	{proc.ErrClosed, answer{codes.Unavailable, guestdv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN}},
	{kernel.ErrClosed, answer{codes.Unavailable, guestdv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN}},
	{spawn.ErrClosed, answer{codes.Unavailable, guestdv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN}},
	{errTokenRefused, answer{codes.Unauthenticated, guestdv1.ErrorReason_ERROR_REASON_TOKEN_REFUSED}},
	{account.ErrOtherUser, answer{codes.PermissionDenied, guestdv1.ErrorReason_ERROR_REASON_OTHER_USER_WITHOUT_ROOT}},

	{proc.ErrNotFound, answer{codes.NotFound, guestdv1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND}},
	{proc.ErrNoInput, answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_NO_SUCH_STREAM}},
	{proc.ErrNoTerminal, answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_NO_SUCH_STREAM}},
	{proc.ErrInputClosed, answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_INPUT_CLOSED}},
	{proc.ErrSuperseded, answer{codes.Aborted, guestdv1.ErrorReason_ERROR_REASON_SUPERSEDED}},
	{proc.ErrStalled, answer{codes.Aborted, guestdv1.ErrorReason_ERROR_REASON_STALLED}},
	{os.ErrProcessDone, answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_PROCESS_ENDED}},

	{kernel.ErrContextNotFound, answer{codes.NotFound, guestdv1.ErrorReason_ERROR_REASON_CONTEXT_NOT_FOUND}},
	{kernel.ErrExecutionNotFound, answer{codes.NotFound, guestdv1.ErrorReason_ERROR_REASON_EXECUTION_NOT_FOUND}},
	{kernel.ErrSuperseded, answer{codes.Aborted, guestdv1.ErrorReason_ERROR_REASON_SUPERSEDED}},
	{kernel.ErrStalled, answer{codes.Aborted, guestdv1.ErrorReason_ERROR_REASON_STALLED}},
	{kernel.ErrNoInputWanted, answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_NO_INPUT_REQUEST}},
	{replay.ErrReused, answer{codes.AlreadyExists, guestdv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED}},
	{kernel.ErrRequestIDReused, answer{codes.AlreadyExists, guestdv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED}},
	{kernel.ErrTooManyContexts, answer{codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_LIMIT_REACHED}},
	{kernel.ErrNotSupported, answer{codes.Unimplemented, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED}},
	{kernel.ErrKernelEnded, answer{codes.Aborted, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED}},
	{kernel.ErrQueueFull, answer{codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_LIMIT_REACHED}},

	{fsapi.ErrNotEmpty, answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_NOT_EMPTY}},
	{fsapi.ErrIsDirectory, answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY}},
	{fsapi.ErrNotDirectory, answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY}},
	{fsapi.ErrNoSpace, answer{codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_DISK_FULL}},
	{fsapi.ErrLoop, answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_LINK_REFUSED}},
	{fsapi.ErrReadOnly, answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_READ_ONLY_FILE_SYSTEM}},
	{fsapi.ErrNameTooLong, answer{codes.InvalidArgument, guestdv1.ErrorReason_ERROR_REASON_NAME_TOO_LONG}},
	{fsapi.ErrNoAttribute, answer{codes.NotFound, guestdv1.ErrorReason_ERROR_REASON_FILE_NOT_FOUND}},
	{fsapi.ErrNotSupportedType, answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE}},
	{fsapi.ErrNoReader, answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE}},
	{fsapi.ErrOffsetPastEnd, answer{codes.OutOfRange, guestdv1.ErrorReason_ERROR_REASON_OFFSET_OUT_OF_RANGE}},
	{fsapi.ErrSizeMismatch, answer{codes.DataLoss, guestdv1.ErrorReason_ERROR_REASON_CHECKSUM_MISMATCH}},
	{fsapi.ErrChecksumMismatch, answer{codes.DataLoss, guestdv1.ErrorReason_ERROR_REASON_CHECKSUM_MISMATCH}},
	{fsapi.ErrBadArchive, answer{codes.DataLoss, guestdv1.ErrorReason_ERROR_REASON_ARCHIVE_DAMAGED}},
	{fsapi.ErrArchiveLimit, answer{codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_LIMIT_REACHED}},
	{fsapi.ErrOutside, answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_OUTSIDE_DIRECTORY}},
	{fsapi.ErrChanged, answer{codes.DataLoss, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED}},
	{fsapi.ErrAttributesLeft, answer{codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED}},
	{fsapi.ErrTooDeep, answer{codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_LIMIT_REACHED}},
	{fsapi.ErrIgnoreLimit, answer{codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_LIMIT_REACHED}},
}

// fsSentinels are io/fs's errors, for what failed without an error number.
var fsSentinels = []struct {
	err error
	answer
}{
	{fs.ErrNotExist, answer{codes.NotFound, guestdv1.ErrorReason_ERROR_REASON_FILE_NOT_FOUND}},
	{fs.ErrExist, answer{codes.AlreadyExists, guestdv1.ErrorReason_ERROR_REASON_FILE_EXISTS}},
	{fs.ErrPermission, answer{codes.PermissionDenied, guestdv1.ErrorReason_ERROR_REASON_PERMISSION_DENIED}},
}

// errnos are the kernel's errors that are the guest's doing and not guestd's.
var errnos = map[syscall.Errno]answer{
	unix.ENOENT:       {codes.NotFound, guestdv1.ErrorReason_ERROR_REASON_FILE_NOT_FOUND},
	unix.EEXIST:       {codes.AlreadyExists, guestdv1.ErrorReason_ERROR_REASON_FILE_EXISTS},
	unix.EACCES:       {codes.PermissionDenied, guestdv1.ErrorReason_ERROR_REASON_PERMISSION_DENIED},
	unix.EPERM:        {codes.PermissionDenied, guestdv1.ErrorReason_ERROR_REASON_PERMISSION_DENIED},
	unix.ENOTDIR:      {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY},
	unix.EISDIR:       {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY},
	unix.ENOTEMPTY:    {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_NOT_EMPTY},
	unix.ELOOP:        {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_LINK_REFUSED},
	unix.EROFS:        {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_READ_ONLY_FILE_SYSTEM},
	unix.ENOSPC:       {codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_DISK_FULL},
	unix.EDQUOT:       {codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_DISK_FULL},
	unix.E2BIG:        {codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_ARGUMENTS_TOO_LONG},
	unix.ENAMETOOLONG: {codes.InvalidArgument, guestdv1.ErrorReason_ERROR_REASON_NAME_TOO_LONG},
	unix.EFBIG:        {codes.OutOfRange, guestdv1.ErrorReason_ERROR_REASON_OFFSET_OUT_OF_RANGE},
	unix.EPIPE:        {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_INPUT_CLOSED},
	unix.ESRCH:        {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_PROCESS_ENDED},
	unix.ENXIO:        {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE},
	unix.ESPIPE:       {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE},
	unix.EAGAIN:       {codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_LIMIT_REACHED},
	unix.ENOMEM:       {codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_LIMIT_REACHED},
	unix.EMFILE:       {codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_LIMIT_REACHED},
	unix.ENFILE:       {codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_LIMIT_REACHED},
	unix.EMLINK:       {codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_LIMIT_REACHED},
	unix.EINVAL:       {codes.InvalidArgument, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
	unix.EBUSY:        {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
	unix.ETXTBSY:      {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
	unix.EXDEV:        {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
	unix.ENODEV:       {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
	unix.ESTALE:       {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
	unix.EIO:          {codes.DataLoss, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
	unix.EUCLEAN:      {codes.DataLoss, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
	unix.EOPNOTSUPP:   {codes.Unimplemented, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
	unix.ENOSYS:       {codes.Unimplemented, guestdv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
}

// startReasons are why a process did not start; spawn.Other goes by its error
// number.
var startReasons = map[spawn.Reason]answer{
	spawn.CommandNotFound:      {codes.NotFound, guestdv1.ErrorReason_ERROR_REASON_COMMAND_NOT_FOUND},
	spawn.CommandNotExecutable: {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_COMMAND_NOT_EXECUTABLE},
	spawn.BadInterpreter:       {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_BAD_INTERPRETER},
	spawn.CwdNotFound:          {codes.NotFound, guestdv1.ErrorReason_ERROR_REASON_CWD_NOT_FOUND},
	spawn.CwdDenied:            {codes.PermissionDenied, guestdv1.ErrorReason_ERROR_REASON_CWD_DENIED},
	spawn.CwdNotDirectory:      {codes.FailedPrecondition, guestdv1.ErrorReason_ERROR_REASON_CWD_NOT_FOUND},
	spawn.TooLong:              {codes.ResourceExhausted, guestdv1.ErrorReason_ERROR_REASON_ARGUMENTS_TOO_LONG},
}
