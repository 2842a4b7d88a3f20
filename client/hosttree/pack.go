package hosttree

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/fasttar"
)

const (
	// pieceBytes is how much of a file is read at once.
	pieceBytes = 256 << 10
	// smallBytes is up to which size a file is read before its header is written.
	smallBytes = 64 << 10
	// dirBatch is how many entries of a directory are read at once.
	dirBatch = 256
	// maxLinks is how many files with several names are remembered; of further ones each name is a
	// file of its own.
	maxLinks = 100_000
)

// Pack writes the directory dir as a tar stream to w; its own entry is "./", and the others have
// names relative to it. A link at dir itself is followed, others are packed as links. Modes and
// modification times are kept, and hard links within the tree. What cannot be read, devices, FIFOs
// and sockets are left out and told in the summary; an error is w's, ctx's, or dir's.
func Pack(ctx context.Context, w io.Writer, dir string, options Options) (Summary, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Summary{}, err
	}
	defer root.Close()
	info, err := root.Lstat(".")
	if err != nil {
		return Summary{}, err
	}
	out := bufio.NewWriterSize(w, pieceBytes)
	p := &packer{
		ctx: ctx, dir: dir, tar: fasttar.NewWriter(out), options: options,
		links: map[inode]string{}, buf: make([]byte, pieceBytes+1),
	}
	if err := p.write(header("./", info)); err != nil {
		return p.summary, err
	}
	if err := p.directory(root, "", 0); err != nil {
		return p.summary, err
	}
	options.tick(&p.summary)
	return p.summary, errors.Join(p.tar.Close(), out.Flush())
}

// inode is what names of one file have in common.
type inode struct{ device, number uint64 }

type packer struct {
	ctx     context.Context
	dir     string
	tar     *fasttar.Writer
	options Options
	links   map[inode]string // where a file with several names is in the stream
	buf     []byte
	summary Summary
}

// leave takes note of an entry that is left out.
func (p *packer) leave(below string, err error) {
	p.summary.fail("copy", filepath.Join(p.dir, below), err)
}

// directory packs what is in a directory, which it closes; below is its path from dir.
func (p *packer) directory(root *os.Root, below string, depth int) error {
	at, err := openDirectory(root)
	if err != nil {
		p.leave(below, err)
		return nil
	}
	defer at.close()
	for {
		entries, err := at.file.ReadDir(dirBatch)
		for _, entry := range entries {
			if err := p.entry(at, entry, filepath.Join(below, entry.Name()), depth); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			p.leave(below, err)
			return nil
		}
	}
}

// entry packs one entry and what is below it. An error ends the packing.
func (p *packer) entry(at *directory, entry fs.DirEntry, below string, depth int) error {
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	p.options.tick(&p.summary)
	switch entry.Type() {
	case fs.ModeDir:
		return p.subdirectory(at.root, entry.Name(), below, depth+1)
	case 0:
		return p.file(at, entry.Name(), below)
	case fs.ModeSymlink:
		return p.symlink(at.root, entry.Name(), below)
	}
	p.leave(below, ErrType)
	return nil
}

func (p *packer) symlink(root *os.Root, name, below string) error {
	info, err := root.Lstat(name)
	if err != nil {
		p.leave(below, err)
		return nil
	}
	target, err := root.Readlink(name)
	if err != nil {
		p.leave(below, err)
		return nil
	}
	h := header(below, info)
	h.Typeflag, h.Linkname = tar.TypeSymlink, target
	return p.write(h)
}

func (p *packer) subdirectory(root *os.Root, name, below string, depth int) error {
	if depth >= MaxDepth {
		p.leave(below, ErrTooDeep)
		return nil
	}
	info, err := root.Lstat(name)
	if err != nil {
		p.leave(below, err)
		return nil
	}
	sub, err := openDir(root, name, false)
	if errors.Is(err, ErrThroughLink) {
		p.leave(below, err)
		return nil
	}
	if err := p.write(header(below+"/", info)); err != nil {
		return err
	}
	if err != nil {
		p.leave(below, err)
		return nil
	}
	return p.directory(sub, below, depth)
}

func (p *packer) file(at *directory, name, below string) error {
	fd, err := at.open(name)
	if err != nil {
		p.leave(below, err)
		return nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = ErrType // it was replaced just now
	}
	if err != nil {
		p.leave(below, err)
		return nil
	}
	h := fileHeader(below, &st)
	if again, is := p.again(&st, below); is {
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, again, 0
		return p.write(h)
	}
	if h.Size <= smallBytes {
		return p.smallFile(fd, below, h)
	}
	if err := p.write(h); err != nil {
		return err
	}
	return p.contents(fd, below, h.Size)
}

// smallFile packs a file at once.
func (p *packer) smallFile(fd int, below string, h *tar.Header) error {
	n, err := readUpTo(fd, p.buf[:h.Size+1], int(h.Size))
	if err != nil {
		p.leave(below, err)
		return nil
	}
	contents := p.buf[:h.Size]
	if n != len(contents) {
		p.leave(below, ErrChanged)
		n = min(n, len(contents))
		clear(contents[n:])
	}
	if err := p.tar.WriteFile(h, contents); err != nil {
		return err
	}
	p.summary.Entries++
	p.summary.Bytes += uint64(n)
	return nil
}

// readUpTo reads until a file's end, or until it has enough.
func readUpTo(fd int, buf []byte, enough int) (n int, err error) {
	for {
		got, err := retry(func() (int, error) { return unix.Read(fd, buf[n:]) })
		if n += max(got, 0); err != nil || got == 0 || n >= enough {
			return n, err
		}
	}
}

// again tells where a file is in the stream already, and remembers one that may come again.
func (p *packer) again(st *unix.Stat_t, below string) (string, bool) {
	if st.Nlink < 2 {
		return "", false
	}
	id := inode{uint64(st.Dev), st.Ino}
	first, known := p.links[id]
	if !known && len(p.links) < maxLinks {
		p.links[id] = below
	}
	return first, known
}

// contents packs exactly as many bytes as the header has announced.
func (p *packer) contents(fd int, below string, size int64) error {
	for left := size; ; {
		if err := context.Cause(p.ctx); err != nil {
			return err
		}
		most := min(left, pieceBytes)
		if most == left {
			most++ // which tells whether the file has grown
		}
		n, err := retry(func() (int, error) { return unix.Read(fd, p.buf[:most]) })
		switch {
		case err == nil && n == 0 && left > 0:
			err = ErrChanged
			fallthrough
		case err != nil:
			p.leave(below, err)
			return p.pad(left)
		case int64(n) > left:
			p.leave(below, ErrChanged)
		}
		n = int(min(int64(n), left))
		if _, err := p.tar.Write(p.buf[:n]); err != nil {
			return err
		}
		left -= int64(n)
		p.summary.Bytes += uint64(n)
		p.options.tick(&p.summary)
		if left == 0 {
			return nil
		}
	}
}

// pad packs zeros in the place of what could not be read.
func (p *packer) pad(n int64) error {
	clear(p.buf)
	for n > 0 {
		if err := context.Cause(p.ctx); err != nil {
			return err
		}
		written, err := p.tar.Write(p.buf[:min(n, int64(len(p.buf)))])
		if err != nil {
			return err
		}
		n -= int64(written)
	}
	return nil
}

func (p *packer) write(h *tar.Header) error {
	if err := p.tar.WriteHeader(h); err != nil {
		return err
	}
	p.summary.Entries++
	return nil
}

// header describes a directory or link in tar's terms, without its owner.
func header(name string, info fs.FileInfo) *tar.Header {
	h := &tar.Header{
		Format: tar.FormatPAX, // the one with nanoseconds and names of any bytes and length
		Name:   name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(),
	}
	for flag, bit := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if info.Mode()&flag != 0 {
			h.Mode |= bit
		}
	}
	if info.IsDir() {
		h.Typeflag = tar.TypeDir
	}
	return h
}

// fileHeader describes a regular file.
func fileHeader(name string, st *unix.Stat_t) *tar.Header {
	return &tar.Header{
		Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		Name: name, Mode: int64(st.Mode & 0o7777), ModTime: time.Unix(st.Mtim.Unix()), Size: st.Size,
	}
}
