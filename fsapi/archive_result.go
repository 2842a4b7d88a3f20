package fsapi

import (
	"errors"
	"fmt"
)

// Errors of Archive and Extract, for use with errors.Is.
var (
	// ErrBadArchive says that a stream is no tar stream, is damaged, or ends too
	// early.
	ErrBadArchive = errors.New("the archive is damaged or incomplete")
	// ErrArchiveLimit says that a stream would unpack to more than the call allows.
	ErrArchiveLimit = errors.New("the archive is larger than allowed")
	// ErrOutside says that an entry's name, or a hard link's target, does not lie
	// below the folder.
	ErrOutside = errors.New("leads out of the folder")
	// ErrAttributesLeft says that some of an entry's extended attributes do not fit
	// into an archive: more than 512 KiB, or a name with "=".
	ErrAttributesLeft = errors.New("not all extended attributes could be archived")
	// ErrChanged says that a file had not the size any more that the archive had
	// already announced: it was cut, or zeros fill what was missing.
	ErrChanged = errors.New("changed its size while it was read")
)

// Compression is how a tar stream is packed.
type Compression int

// The kinds of compression. CompressionAuto is, for Extract, what the stream's
// first bytes say, and for OpenArchive the same as CompressionNone.
const (
	CompressionAuto Compression = iota
	CompressionNone
	CompressionGzip
	CompressionZstd
)

func (c Compression) check() error {
	if c < CompressionAuto || c > CompressionZstd {
		return &InvalidError{Field: "compression", Problem: fmt.Sprintf("is %d, which is none", int(c))}
	}
	return nil
}

// maxTreeFailures is how many failures a TreeResult describes.
const maxTreeFailures = 100

// maxTreeDepth is how many levels of folders a packed or unpacked tree may have.
// When packing each holds a descriptor.
const maxTreeDepth = 256

// TreeFailure is one entry of a tree that was left out, or is not quite as it
// should be. The call goes on after it.
type TreeFailure struct {
	Path string // absolute; exact bytes, at most 4,095
	Err  error
}

// TreeResult counts what was packed or unpacked.
type TreeResult struct {
	Entries uint64 // files, links and folders, the root's own entry included
	Bytes   uint64 // of contents, holes included
	// Failures are the first 100 entries that were left out, FailureCount says how
	// many there are.
	Failures     []TreeFailure
	FailureCount uint64
}

// fail takes note of a failure.
func (r *TreeResult) fail(op, path string, err error) {
	r.FailureCount++
	if len(r.Failures) >= maxTreeFailures {
		return
	}
	path = path[:min(len(path), maxPath)]
	r.Failures = append(r.Failures, TreeFailure{Path: path, Err: pathError(op, path, err)})
}
