// Package hosttree packs trees of the host as tar streams for a guest, and unpacks those that a
// guest has made.
//
// A guest's stream is hostile until proven otherwise. [Unpack] opens every directory by itself and
// never through a link (os.Root and a look at each name), so that no entry lands outside the
// directory, whatever its name and whatever links there are; it makes no devices, FIFOs or
// sockets, and sets no set-uid, set-gid or sticky bit. It bounds bytes, entries and depth.
// Symbolic links are stored as they are and may lead anywhere: whoever follows them later does so at
// their own risk.
//
// The package talks to no guest, knows no compression, keeps no owners and no extended attributes,
// and starts no goroutine. Memory does not depend on the tree. Files that are open during a call
// are closed when it returns.
package hosttree

import (
	"errors"
	"fmt"
	"io/fs"
)

// Errors of Pack and Unpack, for use with errors.Is.
var (
	// ErrOutside: an entry's name, or a hard link's target, does not lie below the directory.
	ErrOutside = errors.New("leads out of the directory")
	// ErrThroughLink: there is a link, or no directory, on the way to an entry.
	ErrThroughLink = errors.New("something on the way is no directory")
	// ErrLimit: the stream holds more than the call allows.
	ErrLimit = errors.New("more than is allowed")
	// ErrTooDeep: an entry lies deeper than MaxDepth.
	ErrTooDeep = fmt.Errorf("over %d directories deep", MaxDepth)
	// ErrType: this kind of file is not packed or unpacked.
	ErrType = errors.New("not copied: it is a device, FIFO or socket")
	// ErrChanged: a file changed its size while it was read; it was cut, or zeros fill what was
	// missing.
	ErrChanged = errors.New("changed its size while it was read")
)

// MaxDepth is how many directories an entry may lie deep.
const MaxDepth = 256

// What Unpack takes unless it is told otherwise.
const (
	DefaultMaxBytes   = 64 << 30
	DefaultMaxEntries = 10_000_000
)

// maxFailures is how many failures a Summary describes.
const maxFailures = 100

// Options says how a tree is packed or unpacked. The zero value works.
type Options struct {
	// MaxBytes and MaxEntries bound what Unpack takes; 0 is the default.
	MaxBytes, MaxEntries uint64
	// Umask are the permissions that Unpack gives nobody; the process's own umask does not count.
	Umask fs.FileMode
	// Progress, if not nil, is told now and then how far it has got, on the calling goroutine.
	Progress func(entries, bytes uint64)
}

// Summary counts what was packed or unpacked.
type Summary struct {
	// Entries are files, links and directories, the directory itself included.
	Entries uint64
	// Bytes of contents.
	Bytes uint64
	// Failures are the first 100 entries that were left out, each an *fs.PathError.
	Failures []error
	// FailureCount is how many were left out.
	FailureCount uint64
}

// fail takes note of an entry that is left out.
func (s *Summary) fail(op, path string, err error) {
	s.FailureCount++
	if len(s.Failures) >= maxFailures {
		return
	}
	const longest = 4095
	s.Failures = append(s.Failures, pathError(op, path[:min(len(path), longest)], err))
}

// pathError tells what went wrong with an entry. The path that err may have itself, within a
// directory and perhaps a temporary one, says less.
func pathError(op, path string, err error) error {
	if inner, is := errors.AsType[*fs.PathError](err); is {
		err = inner.Err
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// tick tells the caller how far it has got.
func (o *Options) tick(s *Summary) {
	if o.Progress != nil {
		o.Progress(s.Entries, s.Bytes)
	}
}
