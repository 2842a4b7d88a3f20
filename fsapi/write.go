package fsapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/internal/fscred"
)

// WriteHandle is an upload that is under way. It is for one goroutine.
type WriteHandle struct {
	fsys *FS
	ctx  context.Context // ends the upload, for as long as the handle lives
	acc  account.Account
	path string // as the caller gave it
	full string
	opts WriteOptions

	target  target
	made    madeFolders
	inPlace bool   // file is the target itself
	temp    string // the temporary file's name in the target's folder, if it has one
	file    *os.File
	conn    syscall.RawConn
	special bool // file is no ordinary one
	hand    hand // writes if it is special
	written uint64
	sum     hash.Hash // nil if nobody wants it
	unwatch func() bool
	closed  bool
}

// OpenWrite begins to write a file. The caller writes the contents, then calls
// Commit, and in any case Abort, which does nothing after a Commit.
//
// What is written goes into a temporary file without a name in the same folder
// (O_TMPFILE; where the file system has none, one named ".guestd-….tmp", which
// the next write of the same path removes should guestd be killed). Commit gives
// it the existing file's owner, mode, access list and user attributes and renames it
// over. Until then, and after any failure, the old file is as it was. A link at
// the path is written through: the file that it leads to is replaced, the link
// stays; other hard links of a replaced file keep the old contents. The user
// needs write permission for an existing file as for opening it.
//
// It is written in place instead, and WriteResult.InPlace says so, if the target
// is no regular file (device, FIFO), Append or Offset is given, or the file
// cannot be replaced by one that is alike: its folder is not writable or on a
// file system such as /proc, its owner is another user, renaming over it is
// refused. Then an aborted upload leaves what it has written.
//
// A FIFO that nobody reads is ErrNoReader, a socket ErrNotSupportedType, a
// folder ErrIsDirectory. In a world-writable sticky folder a link that belongs
// to neither the user nor the folder's owner is not followed (a permission
// error), as with the sysctl fs.protected_symlinks.
func (fsys *FS) OpenWrite(ctx context.Context, user, path string, opts WriteOptions) (*WriteHandle, error) {
	acc, err := fsys.account(user)
	if err != nil {
		return nil, err
	}
	full, err := absolute("path", path, acc.Home)
	if err != nil {
		return nil, err
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	h := &WriteHandle{
		fsys: fsys, ctx: ctx, acc: acc, path: path, full: full, opts: opts,
		target: target{dir: -1}, made: madeFolders{dir: -1}, hand: hand{fsys: fsys, ctx: ctx, acc: acc},
	}
	if opts.SumSHA256 || len(opts.ExpectedSHA256) > 0 {
		h.sum = sha256.New()
	}
	if err := fsys.as(ctx, acc, h.open); err != nil {
		h.Abort()
		return nil, pathError("open", path, err)
	}
	// A FIFO or terminal makes Write wait; the end of the context ends that. Other
	// files never wait and have no deadlines, which is the one error there is.
	h.unwatch = context.AfterFunc(ctx, func() { _ = h.file.SetWriteDeadline(time.Unix(1, 0)) })
	return h, nil
}

// open finds the target and opens what will be written; on a worker.
func (h *WriteHandle) open() error {
	if err := h.locate(); err != nil {
		return err
	}
	existing := h.target.info
	switch {
	case !h.target.exists:
		return h.openTemp()
	case h.opts.Exclusive:
		return unix.EEXIST
	case existing.Type == TypeDirectory:
		return unix.EISDIR
	case existing.Type == TypeSocket:
		return ErrNotSupportedType
	case existing.Type != TypeRegular || h.opts.partial():
		return h.openInPlace()
	}
	if err := writable(h.target.dir, h.target.base); err != nil {
		return err
	}
	err := h.openTemp()
	if err != nil && needsInPlace(err) {
		return h.openInPlace()
	}
	return err
}

// adopt makes fd the file that is written.
func (h *WriteHandle) adopt(fd int) error {
	var err error
	if h.special, err = special(fd); err != nil {
		unix.Close(fd)
		return err
	}
	h.file = os.NewFile(uintptr(fd), h.path)
	conn, err := h.file.SyscallConn()
	h.conn = conn
	return err
}

// openInPlace opens the existing target itself.
func (h *WriteHandle) openInPlace() error {
	fd, err := openTarget(h.target, h.opts)
	if err != nil {
		return err
	}
	h.inPlace = true
	if err := h.adopt(fd); err != nil {
		return err
	}
	return refuseOwnProc(fd, h.acc)
}

// openTarget opens an existing file for writing in place, without blocking.
func openTarget(t target, opts WriteOptions) (int, error) {
	flags := unix.O_WRONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_NOFOLLOW
	switch {
	case opts.Append:
		flags |= unix.O_APPEND
	case opts.Offset == nil:
		flags |= unix.O_TRUNC
	}
	fd, err := openNoLinks(t.dir, t.base, flags, 0)
	if errors.Is(err, unix.ENXIO) && t.info.Type == TypeFIFO {
		return -1, ErrNoReader
	}
	if err != nil {
		return -1, err
	}
	if opts.Offset != nil {
		if _, err := unix.Seek(fd, int64(*opts.Offset), io.SeekStart); err != nil {
			unix.Close(fd)
			return -1, err
		}
	}
	return fd, nil
}

// Write adds p to the file. After an error only Abort makes sense. Writing to
// special files of /proc and /sys hands each Write over as one write(2), which
// is what most of them want.
func (h *WriteHandle) Write(p []byte) (int, error) {
	if h.closed {
		return 0, pathError("write", h.path, ErrClosed)
	}
	if err := context.Cause(h.ctx); err != nil {
		return 0, pathError("write", h.path, err)
	}
	if want := h.opts.ExpectedSize; want != nil && uint64(len(p)) > *want-h.written {
		return 0, pathError("write", h.path, ErrSizeMismatch)
	}
	n, err := h.writeAll(p)
	h.written += uint64(n)
	if h.sum != nil {
		h.sum.Write(p[:n])
	}
	return n, pathError("write", h.path, err)
}

// writeAll writes p, waiting for whoever reads a FIFO or terminal.
func (h *WriteHandle) writeAll(p []byte) (done int, err error) {
	for done < len(p) {
		var n int
		err := h.withRights(func() error {
			var err error
			connErr := h.conn.Write(func(fd uintptr) bool {
				n, err = retry(func() (int, error) { return unix.Write(int(fd), p[done:]) })
				return true // waiting is nothing for a worker
			})
			return errors.Join(connErr, err)
		})
		done += max(n, 0)
		if errors.Is(err, unix.EAGAIN) {
			err = h.waitForReader()
		} else if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = context.Cause(h.ctx)
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// withRights does something with the file's contents. Of a special file or one that
// the kernel makes up anything may ask for any of the user's rights; of others see
// [fscred.Here].
func (h *WriteHandle) withRights(fn func() error) error {
	if h.special {
		return h.hand.do(fn)
	}
	return fscred.Here(h.acc, fn)
}

// waitForReader waits until a FIFO or terminal takes more.
func (h *WriteHandle) waitForReader() error {
	h.hand.release()
	return h.conn.Write(func(fd uintptr) bool {
		// What became of it before the poller began to wait would not be told.
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := retry(func() (int, error) { return unix.Poll(fds, 0) })
		return n > 0 || err != nil
	})
}

// Commit ends the upload and makes it the file's contents. On an error the
// upload is aborted.
func (h *WriteHandle) Commit() (WriteResult, error) {
	if h.closed {
		return WriteResult{}, pathError("write", h.path, ErrClosed)
	}
	defer h.Abort()
	h.hand.release()
	sum, err := h.verify()
	if err != nil {
		return WriteResult{}, pathError("write", h.path, err)
	}
	result := WriteResult{BytesWritten: h.written, SHA256: sum, Created: !h.target.exists}
	err = h.fsys.as(h.ctx, h.acc, func() error {
		if !h.inPlace {
			if err := h.publish(); err != nil {
				return err
			}
		} else if err := h.finishInPlace(int(h.file.Fd())); err != nil {
			return err
		}
		// The file is what it should be from here on, and so are its folders.
		h.made.keep()
		result.Info, err = h.describe()
		return err
	})
	if err != nil {
		return WriteResult{}, pathError("write", h.path, err)
	}
	result.InPlace = h.inPlace
	newNames(h.fsys.accounts).fill(&result.Info)
	return result, nil
}

// verify compares what was written with what was announced.
func (h *WriteHandle) verify() (sum []byte, err error) {
	if want := h.opts.ExpectedSize; want != nil && *want != h.written {
		return nil, ErrSizeMismatch
	}
	if h.sum == nil {
		return nil, nil
	}
	sum = h.sum.Sum(nil)
	if want := h.opts.ExpectedSHA256; len(want) > 0 && !bytes.Equal(sum, want) {
		return nil, ErrChecksumMismatch
	}
	return sum, nil
}

// describe is the Info of the file as it is now.
func (h *WriteHandle) describe() (Info, error) {
	info, err := statAt(h.target.dir, h.target.base)
	name(&info, h.full)
	return info, err
}

// Abort gives the upload up: the target is as before, and nothing is left of
// it, unless it is written in place. It does nothing after Commit or Abort.
func (h *WriteHandle) Abort() {
	if h.closed {
		return
	}
	h.closed = true
	h.hand.release()
	if h.unwatch != nil {
		h.unwatch()
	}
	if h.temp != "" || !h.made.empty() {
		h.fsys.cleanUp(h.ctx, h.acc, "aborted upload", h.removeTraces)
	}
	if h.file != nil {
		h.file.Close()
	}
	h.made.close()
	h.target.close()
}

// removeTraces removes the named temporary file and the folders made; on a worker.
func (h *WriteHandle) removeTraces() error {
	var err error
	if h.temp != "" {
		err = unix.Unlinkat(h.target.dir, h.temp, 0)
		h.temp = ""
	}
	h.made.remove()
	return err
}
