package fsapi

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// ReadHandle is a file that is open for reading.
type ReadHandle struct {
	// Info describes the file as it was when it was opened.
	Info Info

	fsys    *FS
	ctx     context.Context // ends the reading, for as long as the handle lives
	acc     account.Account
	path    string
	file    *os.File
	conn    syscall.RawConn
	special bool  // the kernel asks for the rights of who reads
	left    int64 // bytes of the wanted range still to come; -1 is no limit
}

// OpenRead opens a file for reading length bytes from offset; nil is to the end
// as it is then found, 0 nothing but the Info. Links are followed, magic ones under
// /proc are ErrLoop. ctx ends reading too.
//
// Regular files include those of /proc and /sys, whose size says nothing. A
// device is read without blocking, and a character device needs a length, since
// most have no end. A directory is ErrIsDirectory; a FIFO or socket is
// ErrNotSupportedType and is not opened. An offset past the end is
// ErrOffsetPastEnd, one at the end an empty read.
func (fsys *FS) OpenRead(ctx context.Context, user, path string, offset uint64, length *uint64) (*ReadHandle, error) {
	acc, err := fsys.account(user)
	if err != nil {
		return nil, err
	}
	full, err := absolute("path", path, acc.Home)
	if err != nil {
		return nil, err
	}
	const most = 1<<63 - 1
	if offset > most {
		return nil, &InvalidError{Field: "offset", Problem: "is over 2^63-1"}
	}
	if length != nil && *length > most {
		return nil, &InvalidError{Field: "length", Problem: "is over 2^63-1"}
	}
	var info Info
	fd := -1
	err = fsys.as(ctx, acc, func() (err error) {
		fd, info, err = openForReading(acc, full, length != nil)
		return err
	})
	if err != nil {
		return nil, pathError("open", path, err)
	}
	newNames(fsys.accounts).fill(&info)
	h := &ReadHandle{Info: info, fsys: fsys, ctx: ctx, acc: acc, path: path}
	if err := h.adopt(fd); err != nil {
		return nil, pathError("open", path, err)
	}
	if h.left = -1; length != nil {
		h.left = int64(*length)
	}
	if err := h.skipTo(int64(offset)); err != nil {
		h.Close()
		return nil, pathError("read", path, err)
	}
	return h, nil
}

// openForReading looks at the file before it opens it, since opening alone has
// effects on FIFOs and devices, and again afterwards, since it may be another.
func openForReading(acc account.Account, path string, limited bool) (int, Info, error) {
	look, err := openAt(unix.AT_FDCWD, path, unix.O_PATH, 0)
	if err != nil {
		return -1, Info{}, err
	}
	info, err := statAt(look, "")
	unix.Close(look)
	if err == nil {
		err = readable(info, limited)
	}
	if err != nil {
		return -1, Info{}, err
	}
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, Info{}, err
	}
	if info, err = statAt(fd, ""); err == nil {
		err = readable(info, limited)
	}
	if err == nil {
		err = refuseOwnProc(fd, acc)
	}
	if err != nil {
		unix.Close(fd)
		return -1, Info{}, err
	}
	name(&info, path)
	return fd, info, nil
}

// readable says whether this kind of file can be read here.
func readable(info Info, limited bool) error {
	switch info.Type {
	case TypeRegular, TypeBlockDevice:
		return nil
	case TypeDirectory:
		return unix.EISDIR
	case TypeCharDevice:
		if !limited {
			return &InvalidError{Field: "length", Problem: "must be given for a character device"}
		}
		return nil
	}
	return ErrNotSupportedType
}

// adopt makes fd the file that is read; it is closed if that fails.
func (h *ReadHandle) adopt(fd int) (err error) {
	h.file = os.NewFile(uintptr(fd), h.path)
	if h.conn, err = h.file.SyscallConn(); err == nil {
		h.special, err = special(fd)
	}
	if err != nil {
		h.file.Close()
	}
	return err
}

// skipTo goes to the offset where reading starts.
func (h *ReadHandle) skipTo(offset int64) error {
	if offset == 0 {
		return nil
	}
	if h.Info.Type == TypeRegular && offset > h.Info.Size && !h.hasDataAt(offset-1) {
		return ErrOffsetPastEnd
	}
	_, err := h.file.Seek(offset, io.SeekStart)
	return err
}

// hasDataAt probes for a byte, where the size does not tell: in files of /proc,
// and in those that have grown.
func (h *ReadHandle) hasDataAt(offset int64) bool {
	n, err := h.file.ReadAt(make([]byte, 1), offset)
	return n == 1 && err == nil
}

// Read reads the next bytes of the wanted range. It never waits for data: where
// there is none yet (some files of /proc, some devices) the error wraps EAGAIN.
// Once the context has ended, its cause is the error.
func (h *ReadHandle) Read(p []byte) (int, error) {
	if err := context.Cause(h.ctx); err != nil {
		return 0, pathError("read", h.path, err)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if h.left >= 0 && int64(len(p)) > h.left {
		p = p[:h.left]
	}
	if len(p) == 0 {
		return 0, io.EOF
	}
	n, err := h.readOnce(p)
	switch {
	case err != nil:
		return 0, pathError("read", h.path, err)
	case n == 0:
		return 0, io.EOF
	}
	if h.left >= 0 {
		h.left -= int64(n)
	}
	return n, nil
}

// readOnce is read(2).
func (h *ReadHandle) readOnce(p []byte) (n int, err error) {
	read := func() error {
		// Not file.Read: that would wait in the poller for a pollable file of /proc.
		connErr := h.conn.Read(func(fd uintptr) bool {
			n, err = retry(func() (int, error) { return unix.Read(int(fd), p) })
			return true
		})
		if connErr != nil {
			return ErrClosed // the only reason there is
		}
		return err
	}
	if h.special {
		err = h.fsys.as(h.ctx, h.acc, read)
	} else {
		err = read()
	}
	return n, err
}

// Close ends the handle. It may be called while a Read runs, and more than once.
func (h *ReadHandle) Close() error {
	if err := h.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return pathError("close", h.path, err)
	}
	return nil
}
