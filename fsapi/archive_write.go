package fsapi

import (
	"archive/tar"
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/internal/fasttar"
	"guestd.internal/internal/fscred"
)

// attributeRecord is what extended attributes are called in a PAX header, after
// star and GNU tar.
const attributeRecord = "SCHILY.xattr."

// packer writes entries as tar; on any goroutine.
type packer struct {
	ctx    context.Context
	acc    account.Account
	tar    *fasttar.Writer
	names  *names
	zeros  []byte
	buf    []byte
	result TreeResult
}

// write packs a batch. An error is about the stream and ends it.
func (p *packer) write(b *archiveBatch) error {
	for i := range b.items {
		item := &b.items[i]
		if item.failure != nil {
			p.result.fail("archive", item.info.Path, item.failure)
		}
		if item.left {
			continue
		}
		if err := p.writeItem(item); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) writeItem(item *archiveItem) error {
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	p.names.fill(&item.info)
	header := item.header()
	var err error
	if item.fd >= 0 {
		err = p.tar.WriteHeader(header)
	} else {
		err = p.tar.WriteFile(header, item.data)
	}
	if err != nil {
		return err
	}
	p.result.Entries++
	p.result.Bytes += uint64(header.Size)
	if item.fd >= 0 {
		return p.writeContents(item)
	}
	return nil
}

// header describes an entry in tar's terms.
func (item *archiveItem) header() *tar.Header {
	info := &item.info
	h := &tar.Header{
		Format: tar.FormatPAX, // the one with nanoseconds and names of any bytes and length
		Name:   item.name, Mode: int64(info.Mode), ModTime: info.ModTime,
		Uid: int(info.UID), Gid: int(info.GID), Uname: info.Owner, Gname: info.Group,
	}
	if strings.IndexByte(h.Uname, 0) >= 0 || strings.IndexByte(h.Gname, 0) >= 0 {
		h.Uname, h.Gname = "", "" // a broken /etc/passwd
	}
	for attr, value := range item.attrs {
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords[attributeRecord+attr] = value
	}
	switch {
	case item.again:
		h.Typeflag, h.Linkname = tar.TypeLink, item.link
	case info.Type == TypeDirectory:
		h.Typeflag = tar.TypeDir
	case info.Type == TypeSymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, item.link
	case info.Type == TypeFIFO:
		h.Typeflag = tar.TypeFifo
	case info.Type == TypeCharDevice:
		h.Typeflag = tar.TypeChar
		h.Devmajor, h.Devminor = int64(unix.Major(info.RDevice)), int64(unix.Minor(info.RDevice))
	case info.Type == TypeBlockDevice:
		h.Typeflag = tar.TypeBlock
		h.Devmajor, h.Devminor = int64(unix.Major(info.RDevice)), int64(unix.Minor(info.RDevice))
	default:
		h.Typeflag, h.Size = tar.TypeReg, info.Size
	}
	return h
}

// writeContents packs exactly as many bytes of an open file as its header says.
func (p *packer) writeContents(item *archiveItem) error {
	size := item.info.Size
	for offset := int64(0); offset < size; {
		if err := context.Cause(p.ctx); err != nil {
			return err
		}
		piece := p.buf[:min(size-offset, int64(len(p.buf)))]
		n, err := p.read(item.fd, piece, offset)
		if err != nil || n == 0 {
			if err == nil {
				err = ErrChanged
			}
			p.result.fail("archive", item.info.Path, err)
			return p.pad(size - offset)
		}
		if _, err := p.tar.Write(piece[:n]); err != nil {
			return err
		}
		offset += int64(n)
	}
	more, err := p.read(item.fd, p.buf[:1], size)
	if err == nil && more > 0 {
		p.result.fail("archive", item.info.Path, ErrChanged)
	}
	return nil
}

// read reads a file with the user's rights.
func (p *packer) read(fd int, buf []byte, offset int64) (n int, err error) {
	err = fscred.Here(p.acc, func() (err error) {
		n, err = retry(func() (int, error) { return unix.Pread(fd, buf, offset) })
		return err
	})
	return n, err
}

// pad packs zeros in the place of what could not be read.
func (p *packer) pad(n int64) error {
	for n > 0 {
		if err := context.Cause(p.ctx); err != nil {
			return err
		}
		written, err := p.tar.Write(p.zeros[:min(n, int64(len(p.zeros)))])
		if err != nil {
			return err
		}
		n -= int64(written)
	}
	return nil
}
