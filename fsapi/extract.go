package fsapi

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// How much Extract unpacks unless it is told otherwise.
const (
	DefaultExtractBytes   = 64 << 30
	DefaultExtractEntries = 10_000_000
)

// ExtractOptions says how an archive is unpacked.
type ExtractOptions struct {
	Compression Compression
	// KeepOwners gives entries the owners that the archive names, by name where the
	// guest has it and else by number, keeps set-user-id and set-group-id, and makes
	// devices. Only root may ask for it.
	KeepOwners bool
	// NoReplace ends with fs.ErrExist at the first entry that is there already; a
	// folder that is there already is entered and left as it is.
	NoReplace bool
	// Include and Exclude choose entries by their names below the folder, as in
	// [ListOptions]. What they leave out is passed over without a word. A folder on
	// the way to an entry is made even if it was left out itself.
	Include, Exclude []string
	// MaxBytes and MaxEntries bound what is unpacked, holes and what is left out
	// included; nil is the default above. Beyond it is ErrArchiveLimit.
	MaxBytes, MaxEntries *uint64
}

// Extract unpacks the tar stream r below the folder at path, which is made with
// its parents if need be; a link at path itself is followed. It reads r to its end,
// on the calling goroutine, in memory that does not depend on it.
//
// Nothing outside the folder is touched: a name that is absolute or has ".." in it
// is ErrOutside, and so is such a target of a hard link; no link is followed on the
// way to an entry, be it one that was there or one from the archive (ErrLoop or
// ErrNotDirectory). Symbolic links are stored as they are. What cannot be unpacked
// is told in the result, and the rest goes on.
//
// A file gets its name once it is complete and replaces an existing file, or a link
// itself, in one step; of two entries with one name the later counts. Folders are
// never replaced by anything else nor anything else by them, and FIFOs, sockets and
// devices are not replaced. Missing folders on the way are made with mode 0755.
//
// Entries belong to the user and have the mode of the archive without set-user-id
// and set-group-id, whatever the umask, its times to the nanosecond, and its user
// attributes. Folders get mode and time at the end, those that were there already
// too, but not the folder at path, unless it was made just now. FIFOs are made,
// sockets never, devices with KeepOwners only. Pages of zeros become holes.
//
// The call ends with an error at what concerns the whole: the stream's own
// (ErrBadArchive, ErrArchiveLimit; also if it ends without tar's end mark, or anything but
// zeros follows), r's, no space left, NoReplace, the context. What was unpacked up
// to there stays, and the result counts it.
func (fsys *FS) Extract(ctx context.Context, user, path string, opts ExtractOptions, r io.Reader) (TreeResult, error) {
	acc, err := fsys.account(user)
	if err != nil {
		return TreeResult{}, err
	}
	full, err := absolute("path", path, acc.Home)
	if err != nil {
		return TreeResult{}, err
	}
	if err := opts.check(acc); err != nil {
		return TreeResult{}, err
	}
	filter, err := newFilter(opts.Include, opts.Exclude)
	if err != nil {
		return TreeResult{}, err
	}
	x := &extractor{fsys: fsys, ctx: ctx, acc: acc, opts: opts, filter: filter, full: full, root: -1, parent: -1, made: madeFolders{dir: -1}}
	if opts.KeepOwners {
		x.owners = newEntryOwners(fsys.accounts)
	}
	err = x.unpack(r)
	if err != nil && x.result.Entries > 0 {
		err = fmt.Errorf("%w (what was unpacked before stays: %s with %s)", err,
			counted(x.result.Entries, "entry", "entries"), counted(x.result.Bytes, "byte", "bytes"))
	}
	return x.result, pathError("extract", path, err)
}

func counted(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (o *ExtractOptions) check(acc account.Account) error {
	if o.KeepOwners && acc.UID != 0 {
		return &InvalidError{Field: "keep_owners", Problem: "is for root only"}
	}
	return o.Compression.check()
}

// extractor unpacks one archive. It parses on the caller's goroutine and puts
// entries, a batch at a time, into their places on a worker.
type extractor struct {
	fsys   *FS
	ctx    context.Context
	acc    account.Account
	opts   ExtractOptions
	filter *filter
	full   string // the folder's absolute path

	// The following belong to the goroutine that parses.
	bytesLeft, entriesLeft uint64
	owners                 *entryOwners // nil: entries are the user's
	batch                  *extractBatch
	spare                  *extractBatch
	working                func() error // waits until spare is put; nil: it is not being put
	broken                 error        // what a batch has ended with

	// The following belong to the worker while a batch is being put.
	root       int // the folder
	made       madeFolders
	parentName string // the folder of the last entry, and its descriptor
	parent     int
	unnamed    bool // files without names could be made
	folders    pendingFolders
	result     TreeResult
}

// unpack opens the folder, unpacks the stream, and ends in any case.
func (x *extractor) unpack(r io.Reader) (err error) {
	defer func() { x.end(err == nil) }()
	if err := x.fsys.as(x.ctx, x.acc, x.open); err != nil {
		return err
	}
	return x.run(r)
}

// open opens the folder, and makes it if need be; on a worker.
func (x *extractor) open() (err error) {
	x.root, err = openAt(unix.AT_FDCWD, x.full, unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOENT) {
		x.root, x.made, err = makeFolders(x.full)
	}
	return err
}

// run unpacks the stream.
func (x *extractor) run(r io.Reader) (err error) {
	stream, err := openTarStream(x.ctx, r, x.opts.Compression)
	defer stream.free()
	if err != nil {
		return err
	}
	x.bytesLeft, x.entriesLeft = limitOr(x.opts.MaxBytes, DefaultExtractBytes), limitOr(x.opts.MaxEntries, DefaultExtractEntries)
	x.batch, x.spare = newExtractBatch(), newExtractBatch()
	defer func() {
		// What is parsed is unpacked, even if the stream goes on badly.
		if flushErr := x.flush(); err == nil {
			err = flushErr
		}
		if waitErr := x.wait(); err == nil {
			err = waitErr
		}
		x.discard(x.batch)
	}()
	reader := tar.NewReader(stream)
	for {
		stream.inHeader, stream.header = true, 0
		header, err := reader.Next()
		stream.inHeader = false
		if errors.Is(err, io.EOF) && stream.failed == nil {
			return stream.finish()
		}
		if err != nil {
			return stream.explain(err)
		}
		if err := x.take(header, reader); err != nil {
			return stream.blame(err)
		}
	}
}

func limitOr(limit *uint64, otherwise uint64) uint64 {
	if limit != nil {
		return *limit
	}
	return otherwise
}

// take takes one entry over from the stream.
func (x *extractor) take(header *tar.Header, contents io.Reader) error {
	if x.entriesLeft == 0 {
		return fmt.Errorf("%w: it has over %d entries", ErrArchiveLimit, limitOr(x.opts.MaxEntries, DefaultExtractEntries))
	}
	x.entriesLeft--
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil // settings for all entries, which archive/tar does not apply either
	}
	size := contentsSize(header)
	if size > x.bytesLeft {
		return fmt.Errorf("%w: it has over %d bytes of contents", ErrArchiveLimit, limitOr(x.opts.MaxBytes, DefaultExtractBytes))
	}
	x.bytesLeft -= size
	item, err := x.item(header)
	if err == nil && !x.filter.wants(item.name, item.kind == TypeDirectory) {
		return x.passOver(contents)
	}
	if err != nil {
		item = extractItem{name: header.Name[:min(len(header.Name), maxPath)], failure: err}
	} else if err := x.takeContents(&item, contents); err != nil {
		return err
	}
	if item.failure != nil {
		if err := x.passOver(contents); err != nil {
			return err
		}
	}
	x.batch.add(item)
	if x.batch.full() {
		return x.flush()
	}
	return nil
}

// contentsSize is how many bytes an entry unpacks to. Some writers give links and
// folders a size too, that nothing stands for.
func contentsSize(h *tar.Header) uint64 {
	switch h.Typeflag {
	case tar.TypeLink, tar.TypeSymlink, tar.TypeChar, tar.TypeBlock, tar.TypeDir, tar.TypeFifo:
		return 0
	}
	return uint64(max(h.Size, 0))
}

// passOver reads the contents of an entry that is not unpacked.
func (x *extractor) passOver(contents io.Reader) error {
	buf := make([]byte, smallFile)
	for {
		if err := context.Cause(x.ctx); err != nil {
			return err
		}
		_, err := contents.Read(buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return contentsError(err)
		}
	}
}

// takeContents reads a small file's contents into the batch, and writes a larger
// one's to a file that has no name yet.
func (x *extractor) takeContents(item *extractItem, contents io.Reader) error {
	if item.kind != TypeRegular {
		return nil
	}
	if item.size > smallFile {
		return x.takeLarge(item, contents)
	}
	if !x.batch.fits(item.size) {
		if err := x.flush(); err != nil {
			return err
		}
	}
	item.data = x.batch.reserve(item.size)
	_, err := io.ReadFull(contents, item.data)
	return contentsError(err)
}

// streamError is an error of reading the stream, as opposed to writing files.
type streamError struct{ err error }

func (e *streamError) Error() string { return e.err.Error() }
func (e *streamError) Unwrap() error { return e.err }

func contentsError(err error) error {
	if err == nil {
		return nil
	}
	return &streamError{err}
}

// blame explains those errors that come from the stream.
func (s *tarStream) blame(err error) error {
	var fromStream *streamError
	if errors.As(err, &fromStream) {
		return s.explain(fromStream.err)
	}
	return err
}

// flush hands the batch to a worker, once that is done with the one before.
func (x *extractor) flush() error {
	if err := x.wait(); err != nil {
		return err
	}
	if len(x.batch.items) == 0 {
		return nil
	}
	batch := x.batch
	x.batch, x.spare = x.spare, batch
	x.working = x.fsys.aside(x.ctx, x.acc, func() error { return x.put(batch) })
	return nil
}

// wait waits for the worker. Once a batch has failed nothing more is put.
func (x *extractor) wait() error {
	if x.working != nil {
		working := x.working
		x.working = nil
		x.broken = working()
		x.discard(x.spare)
	}
	return x.broken
}

// discard drops what is left of a batch.
func (x *extractor) discard(b *extractBatch) {
	for i := range b.items {
		if b.items[i].large != nil {
			x.dropLarge(b.items[i].large)
		}
	}
	clear(b.items)
	b.items, b.used, b.extra = b.items[:0], 0, 0
}

// end gives folders their attributes, which also a broken archive's get, and
// closes what is open. A folder that was made for nothing goes again.
func (x *extractor) end(ok bool) {
	x.fsys.cleanUp(x.ctx, x.acc, "unpacked folders", func() error {
		x.settle("")
		if !ok && x.made.remove() {
			x.result.Entries, x.result.Bytes = 0, 0 // of entries for the folder itself
		}
		return nil
	})
	for _, fd := range []int{x.root, x.parent} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	x.made.close()
}
