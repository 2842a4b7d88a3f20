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
	"syscall"
)

const (
	// pieceBytes is how much of a file is read at once.
	pieceBytes = 256 << 10
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
		ctx: ctx, dir: dir, tar: tar.NewWriter(out), options: options,
		links: map[inode]string{}, buf: make([]byte, pieceBytes),
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
	tar     *tar.Writer
	options Options
	links   map[inode]string // where a file with several names is in the stream
	buf     []byte
	summary Summary
}

// leave takes note of an entry that is left out.
func (p *packer) leave(below string, err error) {
	p.summary.fail("copy", filepath.Join(p.dir, below), err)
}

// directory packs what is in a directory; below is its path from dir.
func (p *packer) directory(root *os.Root, below string, depth int) error {
	file, err := root.Open(".")
	if err != nil {
		p.leave(below, err)
		return nil
	}
	defer file.Close()
	for {
		names, err := file.Readdirnames(dirBatch)
		for _, name := range names {
			if err := p.entry(root, name, filepath.Join(below, name), depth); err != nil {
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
func (p *packer) entry(root *os.Root, name, below string, depth int) error {
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	p.options.tick(&p.summary)
	info, err := root.Lstat(name)
	if err != nil {
		p.leave(below, err)
		return nil
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		return p.subdirectory(root, name, below, depth+1, info)
	case 0:
		return p.file(root, name, below, info)
	case fs.ModeSymlink:
		target, err := root.Readlink(name)
		if err != nil {
			p.leave(below, err)
			return nil
		}
		h := header(below, info)
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
		return p.write(h)
	}
	p.leave(below, ErrType)
	return nil
}

func (p *packer) subdirectory(root *os.Root, name, below string, depth int, info fs.FileInfo) error {
	if depth >= MaxDepth {
		p.leave(below, ErrTooDeep)
		return nil
	}
	if err := p.write(header(below+"/", info)); err != nil {
		return err
	}
	sub, err := root.OpenRoot(name)
	if err != nil {
		p.leave(below, err)
		return nil
	}
	defer sub.Close()
	return p.directory(sub, below, depth)
}

func (p *packer) file(root *os.Root, name, below string, seen fs.FileInfo) error {
	// Not blocking: it may have become a FIFO just now.
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		p.leave(below, err)
		return nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !os.SameFile(seen, info) {
		err = ErrChanged // it, or a link that now is in its place
	}
	if err != nil {
		p.leave(below, err)
		return nil
	}
	h := header(below, info)
	if again, is := p.again(info, below); is {
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, again, 0
		return p.write(h)
	}
	if err := p.write(h); err != nil {
		return err
	}
	return p.contents(file, below, h.Size)
}

// again tells where a file is in the stream already, and remembers one that may come again.
func (p *packer) again(info fs.FileInfo, below string) (string, bool) {
	st, is := info.Sys().(*syscall.Stat_t)
	if !is || st.Nlink < 2 {
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
func (p *packer) contents(file io.Reader, below string, size int64) error {
	for left := size; left > 0; {
		if err := context.Cause(p.ctx); err != nil {
			return err
		}
		piece := p.buf[:min(left, int64(len(p.buf)))]
		n, err := file.Read(piece)
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				err = ErrChanged
			}
			p.leave(below, err)
			return p.pad(left)
		}
		if _, err := p.tar.Write(piece[:n]); err != nil {
			return err
		}
		left -= int64(n)
		p.summary.Bytes += uint64(n)
		p.options.tick(&p.summary)
	}
	if n, _ := file.Read(p.buf[:1]); n > 0 {
		p.leave(below, ErrChanged)
	}
	return nil
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

// header describes a file or directory in tar's terms, without its owner.
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
	} else if info.Mode().IsRegular() {
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
	}
	return h
}
