package fsapi

import "crypto/sha256"

// newFileMode is the mode of files that are made without a mode of their own:
// what a program gets under the usual umask of 022.
const newFileMode = 0o644

// WriteOptions says how a file is written. The zero value replaces the file
// atomically or makes a new one in a folder that exists.
type WriteOptions struct {
	// Mode is the file's mode afterwards, at most 07777. nil keeps the existing
	// file's, or is 0644 for a new one.
	Mode *uint32
	// CreateParents makes missing folders, owned by the user, with mode 0755.
	// They go again if the upload is aborted and they are still empty.
	CreateParents bool
	// Exclusive fails with fs.ErrExist if there is anything at the path, a
	// broken link included; also if it comes before Commit.
	Exclusive bool
	// Append adds to the end of an existing file, in place. Not with Offset.
	Append bool
	// Offset writes from there on into an existing file, in place, without
	// truncating it; past the end leaves a hole.
	Offset *uint64
	// Fsync makes Commit return only once data and name are on the disk.
	Fsync bool
	// ExpectedSize is how many bytes will be written in all. Any other number is
	// ErrSizeMismatch.
	ExpectedSize *uint64
	// ExpectedSHA256, if not empty, are the 32 bytes that the SHA-256 of what is
	// written must have, else Commit fails with ErrChecksumMismatch.
	ExpectedSHA256 []byte
	// SumSHA256 asks for the SHA-256 in the result. Without it, or an expected
	// one, nothing is hashed.
	SumSHA256 bool
}

func (o *WriteOptions) check() error {
	const mostOffset = 1<<63 - 1
	switch {
	case o.Mode != nil && *o.Mode > 0o7777:
		return &InvalidError{Field: "mode", Problem: "has bits beyond 07777"}
	case o.Append && o.Offset != nil:
		return &InvalidError{Field: "offset", Problem: "cannot be combined with append"}
	case o.Offset != nil && *o.Offset > mostOffset:
		return &InvalidError{Field: "offset", Problem: "is over 2^63-1"}
	case len(o.ExpectedSHA256) != 0 && len(o.ExpectedSHA256) != sha256.Size:
		return &InvalidError{Field: "expected_sha256", Problem: "is not 32 bytes long"}
	}
	return nil
}

// partial says that an existing file keeps what is not written over.
func (o *WriteOptions) partial() bool { return o.Append || o.Offset != nil }

// WriteResult says what Commit has done.
type WriteResult struct {
	Info         Info // of the file afterwards
	BytesWritten uint64
	// InPlace says that the existing file itself was written, so that readers
	// may have seen it half written.
	InPlace bool
	// Created says that there was no file before.
	Created bool
	// SHA256 of the bytes written, if it was asked for or expected.
	SHA256 []byte
}
