package vm

import (
	"fmt"
	"io"
	"io/fs"
)

// File type bits of a cpio entry's mode, as stat(2) has them.
const (
	modeDir     = 0o040000
	modeRegular = 0o100000
	modeSymlink = 0o120000
	modeChar    = 0o020000
)

// entry is one file of an archive. Times are zero, so that the same files always
// give the same archive.
type entry struct {
	name     string // relative to the root, without a leading slash
	mode     uint32 // type and permission bits
	uid, gid uint32
	rmajor   uint32 // device numbers of a character device
	rminor   uint32
	data     []byte // a regular file's content or a link's target
}

// cpioWriter writes the "newc" format, the one that the kernel unpacks as an
// initramfs (Documentation/driver-api/early-userspace/buffer-format.rst in its
// source). The caller closes it, which writes the trailer but closes nothing
// else. It starts nothing.
type cpioWriter struct {
	w      io.Writer
	offset int64
	inode  uint32
}

// add appends e. Parents must have been added before.
func (c *cpioWriter) add(e entry) error {
	if e.name == "" || e.name[0] == '/' {
		return fmt.Errorf("archiving %q: %w", e.name, fs.ErrInvalid)
	}
	c.inode++
	return c.write(e, c.inode)
}

// close writes the trailer.
func (c *cpioWriter) close() error {
	return c.write(entry{name: "TRAILER!!!"}, 0)
}

func (c *cpioWriter) write(e entry, inode uint32) error {
	// magic, ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor,
	// rdevmajor, rdevminor, namesize, check: eight hexadecimal digits each.
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		inode, e.mode, e.uid, e.gid, 1, 0, len(e.data), 0, 0, e.rmajor, e.rminor, len(e.name)+1, 0, e.name)
	if err := c.padded([]byte(header)); err != nil {
		return fmt.Errorf("archiving %s: %w", e.name, err)
	}
	if err := c.padded(e.data); err != nil {
		return fmt.Errorf("archiving %s: %w", e.name, err)
	}
	return nil
}

// padded writes p and zeros up to the next multiple of four.
func (c *cpioWriter) padded(p []byte) error {
	n, err := c.w.Write(p)
	c.offset += int64(n)
	if err != nil {
		return err
	}
	if rest := c.offset % 4; rest != 0 {
		n, err = c.w.Write(make([]byte, 4-rest))
		c.offset += int64(n)
	}
	return err
}
