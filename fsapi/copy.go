package fsapi

import (
	"context"
	"errors"
	"io"
	"math"

	"golang.org/x/sys/unix"
)

// maxCopyDepth is how many levels of folders a copied tree may have. Each holds
// two descriptors.
const maxCopyDepth = 256

// copyChunk is how much is copied at once at most; the context is looked at
// between chunks.
const copyChunk = 8 << 20

// copyBuffer is the size of the buffer where the kernel cannot copy by itself.
const copyBuffer = 256 << 10

// maxHardLinks is how many files with several names are remembered during a
// copy; further ones are copied once for each name.
const maxHardLinks = 100_000

// copier copies a tree with modes, owners as far as the user may set them, times,
// user attributes, access lists, holes, and hard links within it.
type copier struct {
	ctx   context.Context
	root  int               // the folder that the copy is made in
	links map[fileID]string // where a file with several names was copied to, from root
	own   fileID            // root's own, which must not be met on the way
}

type fileID struct{ dev, ino uint64 }

func (i Info) id() fileID { return fileID{dev: i.Device, ino: i.Inode} }

// errCopyIntoItself says that a copy's destination lies within its source.
var errCopyIntoItself = errors.New("the destination is inside the source")

// copyTree copies the entry from of fromDir to the new entry to of the folder
// toDir. After an error a part may be there.
func copyTree(ctx context.Context, fromDir int, from string, toDir int, to string) error {
	own, err := statAt(toDir, "")
	if err != nil {
		return err
	}
	c := copier{ctx: ctx, root: toDir, links: map[fileID]string{}, own: own.id()}
	return c.copy(place{fromDir, from}, place{toDir, to}, to, 1)
}

// place is an entry of an open folder.
type place struct {
	dir  int
	name string
}

// copy copies one entry and all below. path is where to, from root.
func (c *copier) copy(from, to place, path string, depth int) error {
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	info, err := statAt(from.dir, from.name)
	if err != nil {
		return &PathError{Op: "copy", Path: path, Err: err}
	}
	if info.Links > 1 && info.Type != TypeDirectory {
		if first, ok := c.links[info.id()]; ok {
			return pathError("copy", path, unix.Linkat(c.root, first, to.dir, to.name, 0))
		}
		if len(c.links) < maxHardLinks {
			c.links[info.id()] = path
		}
	}
	switch info.Type {
	case TypeDirectory:
		err = c.copyFolder(from, to, path, depth)
	case TypeRegular:
		err = c.copyFile(from, to)
	case TypeSymlink:
		err = copyLink(from, to, info)
	default:
		err = copyNode(to, info)
	}
	return pathError("copy", path, err)
}

func (c *copier) copyFile(from, to place) error {
	in, err := openNoLinks(from.dir, from.name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	info, err := statAt(in, "")
	if err == nil && info.Type != TypeRegular {
		err = ErrNotSupportedType // it was replaced just now
	}
	if err != nil {
		return err
	}
	out, err := openNoLinks(to.dir, to.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(out)
	if err := copySparse(c.ctx, in, out); err != nil {
		return err
	}
	return finishCopy(in, out, to, info)
}

func (c *copier) copyFolder(from, to place, path string, depth int) error {
	if depth > maxCopyDepth {
		return ErrTooDeep
	}
	in, err := openSubfolder(from.dir, from.name)
	if err != nil {
		return err
	}
	reader := newDirReader(in)
	defer reader.close()
	info, err := statAt(in, "")
	if err == nil && info.id() == c.own {
		err = errCopyIntoItself
	}
	if err == nil {
		err = unix.Mkdirat(to.dir, to.name, 0o700)
	}
	if err != nil {
		return err
	}
	out, err := openSubfolder(to.dir, to.name)
	if err != nil {
		return err
	}
	defer unix.Close(out)
	for {
		entry, more, err := reader.next()
		if err != nil {
			return err
		}
		if !more {
			return finishCopy(in, out, to, info)
		}
		if err := c.copy(place{in, entry.name}, place{out, entry.name}, join(path, entry.name), depth+1); err != nil {
			return err
		}
	}
}

// finishCopy gives a copied file or folder the original's attributes.
func finishCopy(in, out int, to place, info Info) error {
	mode, err := setOwner(to.dir, to.name, info)
	if err != nil {
		return err
	}
	if err := copyAttributes(in, out); err != nil {
		return err
	}
	if err := unix.Fchmod(out, mode); err != nil {
		return err
	}
	return setTimes(to.dir, to.name, info.AccessTime, info.ModTime)
}

func copyLink(from, to place, info Info) error {
	target, err := readLinkAt(from.dir, from.name)
	if err != nil {
		return err
	}
	if err := unix.Symlinkat(target, to.dir, to.name); err != nil {
		return err
	}
	if _, err := setOwner(to.dir, to.name, info); err != nil {
		return err
	}
	return setTimes(to.dir, to.name, info.AccessTime, info.ModTime)
}

// copyNode makes a FIFO, socket or, where the user may, a device.
func copyNode(to place, info Info) error {
	kinds := map[Type]uint32{
		TypeFIFO: unix.S_IFIFO, TypeSocket: unix.S_IFSOCK,
		TypeCharDevice: unix.S_IFCHR, TypeBlockDevice: unix.S_IFBLK,
	}
	kind, ok := kinds[info.Type]
	if !ok {
		return ErrNotSupportedType
	}
	if err := unix.Mknodat(to.dir, to.name, kind|info.Mode&0o777, int(info.RDevice)); err != nil {
		return err
	}
	if _, err := setOwner(to.dir, to.name, info); err != nil {
		return err
	}
	return setTimes(to.dir, to.name, info.AccessTime, info.ModTime)
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
			if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
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
