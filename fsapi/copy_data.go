package fsapi

import (
	"context"
	"errors"
	"io"
	"math"

	"golang.org/x/sys/unix"
)

// copyChunk is how much is copied at once at most; the context is looked at
// between chunks.
const copyChunk = 8 << 20

// copyBuffer is the size of the buffer where the kernel cannot copy by itself.
const copyBuffer = 256 << 10

// copyContents copies a regular file's contents to an empty one: by sharing them
// where the file system can, else holes as holes.
func copyContents(ctx context.Context, in, out int) error {
	_, err := retry(func() (int, error) { return 0, unix.IoctlFileClone(out, in) })
	if err == nil {
		return nil
	}
	return copySparse(ctx, in, out)
}

// copySparse copies a regular file's contents to an empty one, holes as holes.
func copySparse(ctx context.Context, in, out int) error {
	for offset := int64(0); ; {
		data, err := unix.Seek(in, offset, unix.SEEK_DATA)
		hole := int64(math.MaxInt64)
		switch {
		case errors.Is(err, unix.ENXIO): // no data up to the end
			size, err := unix.Seek(in, 0, io.SeekEnd)
			if err != nil {
				return err
			}
			return unix.Ftruncate(out, max(size, offset))
		case err != nil: // the file system knows of no holes
			data = offset
		default:
			if hole, err = unix.Seek(in, data, unix.SEEK_HOLE); err != nil {
				return err
			}
		}
		end, err := copyRange(ctx, in, out, data, hole)
		if err != nil {
			return err
		}
		if end < hole { // the end of the file, where it was then
			return unix.Ftruncate(out, end)
		}
		offset = hole
	}
}

// copyRange copies [from, to) to the same offsets, and says where it ended,
// which is before to at the end of the file.
func copyRange(ctx context.Context, in, out int, from, to int64) (int64, error) {
	var buf []byte
	for from < to {
		if err := context.Cause(ctx); err != nil {
			return from, err
		}
		n := 0
		var err error
		if buf == nil {
			readAt, writeAt := from, from
			n, err = retry(func() (int, error) {
				return unix.CopyFileRange(in, &readAt, out, &writeAt, int(min(to-from, copyChunk)), 0)
			})
			if err == nil && n > 0 {
				from += int64(n)
				continue
			}
			if isFull(err) {
				return from, err
			}
			// Between file systems, or at what calls itself empty, as /proc's
			// files do: by hand.
			buf = make([]byte, copyBuffer)
		}
		n, err = retry(func() (int, error) { return unix.Pread(in, buf[:min(to-from, copyBuffer)], from) })
		if err != nil || n == 0 {
			return from, err
		}
		if err := writeAt(out, buf[:n], from); err != nil {
			return from, err
		}
		from += int64(n)
	}
	return from, nil
}

// isFull says whether there was no room for what was written, or none for this user.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

func writeAt(fd int, p []byte, offset int64) error {
	for len(p) > 0 {
		n, err := retry(func() (int, error) { return unix.Pwrite(fd, p, offset) })
		if err != nil {
			return err
		}
		p, offset = p[n:], offset+int64(n)
	}
	return nil
}

// copyRest copies from the one descriptor's position to its end to the other's
// position.
func copyRest(ctx context.Context, in, out int) error {
	buf := make([]byte, copyBuffer)
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := retry(func() (int, error) { return unix.Read(in, buf) })
		if err != nil || n == 0 {
			return err
		}
		for p := buf[:n]; len(p) > 0; {
			n, err := retry(func() (int, error) { return unix.Write(out, p) })
			if err != nil {
				return err
			}
			p = p[n:]
		}
	}
}
