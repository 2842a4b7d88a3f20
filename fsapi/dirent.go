package fsapi

import (
	"bytes"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// direntBuffer is how much of a folder is read with one system call.
const direntBuffer = 32 << 10

// dirEntry is one name of a folder.
type dirEntry struct {
	name string
	kind Type // TypeUnknown where the file system does not tell
}

// dirReader reads a folder entry by entry, in constant memory. It owns its
// descriptor.
type dirReader struct {
	fd   int
	buf  []byte
	rest []byte // what of buf is not handed out yet
}

func newDirReader(fd int) *dirReader { return &dirReader{fd: fd} }

func (d *dirReader) close() { unix.Close(d.fd) }

// rewind starts again with the folder's first entry.
func (d *dirReader) rewind() error {
	d.rest = nil
	_, err := unix.Seek(d.fd, 0, unix.SEEK_SET)
	return err
}

// next returns the next entry but "." and ".."; more is false at the end.
func (d *dirReader) next() (entry dirEntry, more bool, err error) {
	for {
		for len(d.rest) > 0 {
			var ok bool
			if entry, d.rest, ok = parseDirent(d.rest); ok {
				return entry, true, nil
			}
		}
		if d.buf == nil {
			d.buf = make([]byte, direntBuffer)
		}
		n, err := retry(func() (int, error) { return unix.Getdents(d.fd, d.buf) })
		if errors.Is(err, unix.ENOENT) {
			return dirEntry{}, false, nil // the folder itself was removed
		}
		if err != nil || n <= 0 {
			return dirEntry{}, false, err
		}
		d.rest = d.buf[:n]
	}
}

// Offsets in struct linux_dirent64, getdents64(2).
const (
	direntReclen = 16
	direntType   = 18
	direntName   = 19
)

// parseDirent cuts one record off buf. ok is false if it is not to be reported:
// "." or "..", or a record that makes no sense, which ends the buffer.
func parseDirent(buf []byte) (entry dirEntry, rest []byte, ok bool) {
	if len(buf) < direntName {
		return dirEntry{}, nil, false
	}
	reclen := int(binary.NativeEndian.Uint16(buf[direntReclen:]))
	if reclen < direntName || reclen > len(buf) {
		return dirEntry{}, nil, false
	}
	name := buf[direntName:reclen]
	if end := bytes.IndexByte(name, 0); end >= 0 {
		name = name[:end]
	}
	entry = dirEntry{name: string(name), kind: typeOf(uint32(buf[direntType]) << 12)}
	// The kernel never gives these, but a FUSE server is a guest's program.
	bad := entry.name == "" || entry.name == "." || entry.name == ".." || bytes.IndexByte(name, '/') >= 0
	return entry, buf[reclen:], !bad
}
