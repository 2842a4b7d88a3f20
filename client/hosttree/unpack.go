package hosttree

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Unpack unpacks the tar stream r, to its end, below the directory dir, which is made if its parent
// is there; a link at dir itself is followed.
//
// A file appears once it is complete and replaces an existing file, or a link itself, at once; only
// small ones in directories that are new are written in their place, when all of them has come.
// Directories that are there stay as they are; nothing else replaces them, and they replace
// nothing. Files and new directories get the stream's modes, less Options.Umask and without set-uid,
// set-gid and sticky bits. These and symbolic links get its modification times.
//
// What cannot be unpacked is told in the summary, and the rest goes on. An error is r's, ctx's,
// the stream's own, ErrLimit, or dir's; what was unpacked before stays.
func Unpack(ctx context.Context, r io.Reader, dir string, options Options) (Summary, error) {
	if options.MaxBytes == 0 {
		options.MaxBytes = DefaultMaxBytes
	}
	if options.MaxEntries == 0 {
		options.MaxEntries = DefaultMaxEntries
	}
	err := os.Mkdir(dir, 0o755)
	made := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return Summary{}, err
	}
	opened, err := os.OpenRoot(dir)
	if err != nil {
		return Summary{}, err
	}
	root, err := openDirectory(opened)
	if err != nil {
		return Summary{}, err
	}
	u := &unpacker{
		ctx: ctx, dir: dir, options: options, made: made, temp: newTemp(),
		path: dirPath{root: root, made: map[string]bool{}}, buf: make([]byte, holeBytes), small: make([]byte, holeBytes),
	}
	defer root.close()
	defer u.path.close()
	err = u.run(bufio.NewReaderSize(r, pieceBytes))
	u.settle("")
	options.tick(&u.summary)
	return u.summary, err
}

// holeBytes is how much of a file is written at once, or left as a hole if it is nothing but zeros.
const holeBytes = 64 << 10

type unpacker struct {
	ctx     context.Context
	dir     string
	options Options
	made    bool // dir was made by this call
	temp    tempNames
	path    dirPath
	buf     []byte
	small   []byte       // a whole file
	pending []pendingDir // directories that get their attributes when all is in them
	names   int          // bytes of their names
	summary Summary
	taken   uint64 // entries read, those left out included
}

func (u *unpacker) run(r io.Reader) error {
	stream := tar.NewReader(r)
	for {
		if err := context.Cause(u.ctx); err != nil {
			return err
		}
		h, err := stream.Next()
		if errors.Is(err, io.EOF) {
			_, err := io.Copy(io.Discard, r) // padding, and the sender's own end
			return err
		}
		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := u.check(h); err != nil {
			return err
		}
		if err := u.entry(h, stream); err != nil {
			return err
		}
		u.options.tick(&u.summary)
	}
}

// check holds an entry against the limits.
func (u *unpacker) check(h *tar.Header) error {
	if u.taken++; u.taken > u.options.MaxEntries {
		return fmt.Errorf("the archive has over %d entries: %w", u.options.MaxEntries, ErrLimit)
	}
	if h.Size < 0 || uint64(h.Size) > u.options.MaxBytes-u.summary.Bytes {
		return fmt.Errorf("the archive has over %d bytes: %w", u.options.MaxBytes, ErrLimit)
	}
	return nil
}

// fatal is a failure that ends the call: of the stream, or of the context.
type fatal struct{ err error }

func (f fatal) Error() string { return f.err.Error() }
func (f fatal) Unwrap() error { return f.err }

// entry unpacks one entry, or takes note that it cannot.
func (u *unpacker) entry(h *tar.Header, contents io.Reader) error {
	name, err := cleanName(h.Name)
	if err == nil {
		err = u.put(name, h, contents)
	}
	if end, is := errors.AsType[fatal](err); is {
		return end.err
	}
	if err != nil {
		if isFull(err) {
			return pathError("unpack", filepath.Join(u.dir, name), err)
		}
		// Not filepath.Join, which would make a name of dots look harmless.
		u.summary.fail("unpack", u.dir+"/"+h.Name, err)
		return nil
	}
	u.summary.Entries++
	return nil
}

func (u *unpacker) put(name string, h *tar.Header, contents io.Reader) error {
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return ErrType
		}
		if u.made {
			u.later(".", h)
		}
		return nil
	}
	folder, base := cutName(name)
	parent, err := u.path.open(folder, true)
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		if h.Size <= holeBytes && u.path.fresh(folder) {
			return u.putSmallFile(parent, base, h, contents)
		}
		return u.putFile(parent, base, h, contents)
	case tar.TypeDir:
		return u.putDir(parent.root, base, name, h)
	case tar.TypeSymlink:
		return u.make(parent.root, base, func(name string) error { return u.putLink(parent, name, h) })
	case tar.TypeLink:
		return u.putHardLink(name, h.Linkname)
	}
	return ErrType
}

// cleanName checks that a name lies below the directory.
func cleanName(raw string) (string, error) {
	switch {
	case raw == "" || strings.ContainsRune(raw, 0):
		return raw, fs.ErrInvalid
	case raw[0] == '/':
		return raw, ErrOutside
	}
	var parts []string
	for part := range strings.SplitSeq(raw, "/") {
		switch part {
		case "", ".":
		case "..":
			return raw, ErrOutside
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) > MaxDepth {
		return raw, ErrTooDeep
	}
	if len(parts) == 0 {
		return ".", nil
	}
	name := strings.Join(parts, "/")
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return raw, ErrOutside
	}
	return name, nil
}

// cutName cuts a clean name into its directory ("." for the root) and its last element.
func cutName(name string) (folder, base string) {
	cut := strings.LastIndexByte(name, '/')
	if cut < 0 {
		return ".", name
	}
	return name[:cut], name[cut+1:]
}
