package fsapi

import (
	"errors"
	"fmt"
	"strconv"
	"syscall"
)

// Errors that say what was wrong with a file, for use with errors.Is on what
// this package returns. Those of package io/fs (fs.ErrNotExist,
// fs.ErrPermission, fs.ErrExist) work too; since syscall.ENOTEMPTY counts as
// fs.ErrExist, test for [ErrNotEmpty] first.
var (
	ErrIsDirectory  = errors.New("is a directory")           // EISDIR
	ErrNotDirectory = errors.New("not a directory")          // ENOTDIR
	ErrNotEmpty     = errors.New("directory not empty")      // ENOTEMPTY
	ErrNoSpace      = errors.New("no space left or quota")   // ENOSPC, EDQUOT
	ErrLoop         = errors.New("too many links, or magic") // ELOOP, also a refused /proc magic link
	ErrReadOnly     = errors.New("read-only file system")    // EROFS
	ErrNameTooLong  = errors.New("name too long")            // ENAMETOOLONG
	ErrNoAttribute  = errors.New("no such attribute")        // ENODATA

	// ErrNotSupportedType says that this kind of file cannot be read or written
	// here: a FIFO for reading, a socket.
	ErrNotSupportedType = errors.New("not supported for this type of file")
	// ErrNoReader says that a FIFO cannot be written since nobody reads it.
	ErrNoReader = errors.New("nobody reads the FIFO")
	// ErrOffsetPastEnd says that an offset is beyond the file's size.
	ErrOffsetPastEnd = errors.New("offset past the end of the file")
	// ErrSizeMismatch says that an upload is not as long as announced.
	ErrSizeMismatch = errors.New("size does not match")
	// ErrChecksumMismatch says that an upload has another SHA-256 than announced.
	ErrChecksumMismatch = errors.New("SHA-256 does not match")
	// ErrTooDeep says that a tree is nested deeper than this call goes.
	ErrTooDeep = errors.New("folders nested too deeply")
	// ErrIgnoreLimit says that a folder's .gitignore file does not count, since
	// those above it have too much text already.
	ErrIgnoreLimit = errors.New("too much text in .gitignore files")
	// ErrClosed says that a handle was used after its Close, Commit or Abort.
	ErrClosed = errors.New("handle is closed")
)

// errnoSentinels are the sentinels that stand for error numbers.
var errnoSentinels = map[error][]syscall.Errno{
	ErrIsDirectory:  {syscall.EISDIR},
	ErrNotDirectory: {syscall.ENOTDIR},
	ErrNotEmpty:     {syscall.ENOTEMPTY},
	ErrNoSpace:      {syscall.ENOSPC, syscall.EDQUOT},
	ErrLoop:         {syscall.ELOOP},
	ErrReadOnly:     {syscall.EROFS},
	ErrNameTooLong:  {syscall.ENAMETOOLONG},
	ErrNoAttribute:  {syscall.ENODATA},
}

// PathError is a failed operation on a path. It wraps the error number, where
// the kernel gave one, or one of this package's sentinels.
type PathError struct {
	Op   string // what was done, such as "open" or "rename"
	Path string // as the caller gave it, or below it; exact bytes
	Err  error
}

// Error implements error; the path is quoted.
func (e *PathError) Error() string {
	return e.Op + " " + strconv.QuoteToASCII(e.Path) + ": " + e.Err.Error()
}

// Unwrap gives the error number or sentinel.
func (e *PathError) Unwrap() error { return e.Err }

// Is makes error numbers match this package's sentinels.
func (e *PathError) Is(target error) bool {
	var errno syscall.Errno
	if !errors.As(e.Err, &errno) {
		return false
	}
	for _, candidate := range errnoSentinels[target] {
		if errno == candidate {
			return true
		}
	}
	return false
}

// pathError wraps err unless it is nil, or says already what and where, or is
// about the request and not the path.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	var have *PathError
	var invalid *InvalidError
	if errors.As(err, &have) || errors.As(err, &invalid) {
		return err
	}
	return &PathError{Op: op, Path: path, Err: err}
}

// InvalidError is malformed input. Field is the name of the request's field
// ("path", "length", "include", …).
type InvalidError struct {
	Field   string
	Problem string
}

// Error implements error.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid %s: %s", e.Field, e.Problem)
}
