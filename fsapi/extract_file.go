package fsapi

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/fscred"
)

// largeFile is a file that is written while its contents arrive.
type largeFile struct {
	file *newFile
	dir  int // of the folder that it goes into, owned
}

// takeLarge writes a large file's contents as they come. Where that cannot be, the
// item becomes a failure, and its contents are passed over.
func (x *extractor) takeLarge(item *extractItem, contents io.Reader) error {
	// Entries before it may make its folder, or replace it.
	if err := x.flush(); err != nil {
		return err
	}
	if err := x.wait(); err != nil {
		return err
	}
	err := x.fsys.as(x.ctx, x.acc, func() (err error) {
		item.large, err = x.openLarge(item.name)
		return err
	})
	if err == nil {
		err = x.fillLarge(item, contents)
	}
	var fromStream *streamError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fromStream):
	case x.fatal(err):
		err = pathError("extract", join(x.full, item.name), err)
	default:
		item.failure, err = err, nil
	}
	if item.large != nil {
		x.dropLarge(item.large)
		item.large = nil
	}
	return err
}

// openLarge makes a file without a name in the folder that an entry goes into; on
// a worker.
func (x *extractor) openLarge(clean string) (*largeFile, error) {
	dir, base, err := x.openParent(clean)
	if err != nil {
		return nil, err
	}
	own, err := openBeneath(dir, ".", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	at := place{own, base}
	if entryExists(at) {
		if err := x.replaceable(at); err != nil { // before all of it has come
			unix.Close(own)
			return nil, err
		}
	}
	file, err := x.create(at)
	if err != nil {
		unix.Close(own)
		return nil, err
	}
	return &largeFile{file: &file, dir: own}, nil
}

func entryExists(at place) bool {
	_, err := statAt(at.dir, at.name)
	return err == nil
}

// fillLarge writes contents, pages of zeros as holes.
func (x *extractor) fillLarge(item *extractItem, contents io.Reader) error {
	buf := x.batch.arena[:archiveBuffer] // empty, since it was flushed
	fd := item.large.file.fd
	for offset := int64(0); offset < item.size; {
		if err := context.Cause(x.ctx); err != nil {
			return err
		}
		piece := buf[:min(item.size-offset, int64(len(buf)))]
		if _, err := io.ReadFull(contents, piece); err != nil {
			return contentsError(err)
		}
		if err := fscred.Here(x.acc, func() error { return writeSparse(fd, piece, offset) }); err != nil {
			return err
		}
		offset += int64(len(piece))
	}
	return fscred.Here(x.acc, func() error { return unix.Ftruncate(fd, item.size) })
}

// writeSparse writes p at an offset that is a multiple of the page size, but for
// its pages of zeros.
func writeSparse(fd int, p []byte, offset int64) error {
	for len(p) > 0 {
		skip := 0
		for skip < len(p) && allZero(p[skip:min(len(p), skip+len(zeroPage))]) {
			skip += len(zeroPage)
		}
		if skip >= len(p) {
			return nil
		}
		end := skip
		for end < len(p) && !allZero(p[end:min(len(p), end+len(zeroPage))]) {
			end += len(zeroPage)
		}
		end = min(end, len(p))
		if err := writeAt(fd, p[skip:end], offset+int64(skip)); err != nil {
			return err
		}
		p, offset = p[end:], offset+int64(end)
	}
	return nil
}

// dropLarge closes a file, which goes unless it was placed.
func (x *extractor) dropLarge(l *largeFile) {
	if l.file.name != "" {
		x.fsys.cleanUp(x.ctx, x.acc, "unpacked file", func() error {
			l.file.close()
			return nil
		})
	} else {
		l.file.close()
	}
	unix.Close(l.dir)
}
