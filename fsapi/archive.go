package fsapi

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/internal/fasttar"
)

// archiveWindow is zstd's window: what bounds the memory of both sides.
const archiveWindow = 1 << 20

// ArchiveOptions says what of a tree is packed, and how.
type ArchiveOptions struct {
	Compression Compression
	// Include and Exclude choose entries as in [ListOptions]. A folder that matches
	// no Include is in the archive all the same if something below it is.
	Include, Exclude []string
}

// ArchiveHandle is a tree that is open for packing.
type ArchiveHandle struct {
	// Info describes the root.
	Info Info

	fsys     *FS
	ctx      context.Context
	acc      account.Account
	opts     ArchiveOptions
	archiver *archiver
}

// OpenArchive opens a tree for packing it as a tar stream; a link at path itself
// is followed. A folder's archive begins with an entry "./" for the folder, and has
// names relative to it. A regular file is the one entry, under its own name.
// Anything else is ErrNotSupportedType. ctx ends the packing too.
//
// Links are packed as links, never followed. Files with several names in the tree
// are packed once and as hard links then (of the first 100,000 of them), FIFOs and
// devices as such. Kept are modes, owners with their names, modification times to
// the nanosecond, and user attributes. Holes are packed as zeros, which [FS.Extract]
// makes holes again.
//
// What cannot be read, sockets, and what vanishes meanwhile is left out and told in
// the result; so is what lies deeper than 256 levels (ErrTooDeep).
func (fsys *FS) OpenArchive(ctx context.Context, user, path string, opts ArchiveOptions) (*ArchiveHandle, error) {
	acc, err := fsys.account(user)
	if err != nil {
		return nil, err
	}
	full, err := absolute("path", path, acc.Home)
	if err != nil {
		return nil, err
	}
	if err := opts.Compression.check(); err != nil {
		return nil, err
	}
	filter, err := newFilter(opts.Include, opts.Exclude)
	if err != nil {
		return nil, err
	}
	a := &archiver{ctx: ctx, acc: acc, filter: filter, root: full, links: map[fileID]string{}}
	h := &ArchiveHandle{fsys: fsys, ctx: ctx, acc: acc, opts: opts, archiver: a}
	if err := fsys.as(ctx, acc, a.open); err != nil {
		h.Close()
		return nil, pathError("archive", path, err)
	}
	h.Info = a.rootInfo
	newNames(fsys.accounts).fill(&h.Info)
	return h, nil
}

// Close ends the handle; it does nothing the second time.
func (h *ArchiveHandle) Close() { h.archiver.close() }

// Stream writes the archive to w, once, on the calling goroutine, in memory that
// does not depend on the tree. w gets large pieces. An error is the context's, w's
// own, or the root's; what is wrong with single entries is in the result.
func (h *ArchiveHandle) Stream(w io.Writer) (TreeResult, error) {
	sink := bufio.NewWriterSize(w, archiveBuffer)
	packed, err := compressor(sink, h.opts.Compression)
	if err != nil {
		return TreeResult{}, err
	}
	p := &packer{
		ctx: h.ctx, acc: h.acc, tar: fasttar.NewWriter(packed), names: newNames(h.fsys.accounts),
		zeros: make([]byte, archiveBuffer), buf: make([]byte, archiveBuffer),
	}
	if err := h.stream(p); err != nil {
		_ = packed.Close() // frees what it holds; the stream is broken already
		return p.result, err
	}
	return p.result, errors.Join(p.tar.Close(), packed.Close(), sink.Flush())
}

// archiveBuffer is the size of the buffers through which contents go.
const archiveBuffer = 256 << 10

// stream packs one batch after the other. While one is written, the next is read.
func (h *ArchiveHandle) stream(p *packer) error {
	batches := [2]*archiveBatch{newArchiveBatch(), newArchiveBatch()}
	wait := func() error { return nil }
	defer func() {
		// What is being read must be over before anything is closed.
		_ = wait()
		batches[0].close()
		batches[1].close()
	}()
	read := func(b *archiveBatch) func() error {
		return h.fsys.aside(h.ctx, h.acc, func() error { return h.archiver.fill(b) })
	}
	wait = read(batches[0])
	for i := 0; ; i = 1 - i {
		err := wait()
		wait = func() error { return nil }
		if err != nil || len(batches[i].items) == 0 {
			return pathError("archive", h.archiver.root, err)
		}
		wait = read(batches[1-i])
		if err := p.write(batches[i]); err != nil {
			return err
		}
		batches[i].close()
	}
}

// compressor packs what is written to it into w. Close ends the stream, not w.
func compressor(w io.Writer, c Compression) (io.WriteCloser, error) {
	switch c {
	case CompressionGzip:
		return gzip.NewWriterLevel(w, gzip.BestSpeed)
	case CompressionZstd:
		// One block at a time: no goroutines, and memory for one.
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(archiveWindow),
			zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true))
	}
	return uncompressed{w}, nil
}

type uncompressed struct{ io.Writer }

// Close implements io.Closer.
func (uncompressed) Close() error { return nil }

// archiveBatch is what is read in one stay on a worker thread.
type archiveBatch struct {
	items []archiveItem
	arena []byte // small files' contents
	used  int
	open  int // descriptors that items hold
	extra int // bytes of names and attributes
}

// How much one batch holds: entries, bytes of small files and of names and
// attributes, each, and descriptors of larger files.
const (
	archiveEntries = 256
	archiveArena   = 1 << 20
	archiveFiles   = 32
	smallFile      = 64 << 10
)

// archiveItem is one entry of the archive.
type archiveItem struct {
	info    Info   // Path is set
	name    string // in the archive
	link    string // where a symbolic link leads, or the first name of the file
	again   bool   // it is another name of link
	attrs   map[string]string
	data    []byte // a small file's contents, in the arena
	fd      int    // a larger file's contents; -1 is none
	failure error  // it is told; left says that it is not packed
	left    bool
}

func newArchiveBatch() *archiveBatch { return &archiveBatch{arena: make([]byte, archiveArena)} }

func (b *archiveBatch) full() bool {
	return len(b.items) >= archiveEntries || len(b.arena)-b.used <= smallFile ||
		b.open >= archiveFiles || b.extra >= archiveArena
}

func (b *archiveBatch) add(item archiveItem) {
	b.items = append(b.items, item)
	b.extra += len(item.name) + len(item.info.Path) + len(item.link)
	for attr, value := range item.attrs {
		b.extra += len(attr) + len(value)
	}
}

// close closes the descriptors and makes the batch empty.
func (b *archiveBatch) close() {
	for _, item := range b.items {
		if item.fd >= 0 {
			unix.Close(item.fd)
		}
	}
	clear(b.items)
	b.items, b.used, b.open, b.extra = b.items[:0], 0, 0, 0
}
