package hosttree

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// dirPath is the directories that are open on the way to the last entry.
type dirPath struct {
	root  *directory
	names []string
	dirs  []*directory // each in the one before
	// made are the directories made by this call, as long as they are few; in them is nothing that
	// must not be replaced but directories, which nothing replaces anyway.
	made map[string]bool
}

// fresh tells whether a directory was made by this call.
func (p *dirPath) fresh(name string) bool { return p.made[name] }

// maxMade bounds the directories that are remembered.
const maxMade = 10_000

// remember takes note of a directory that was made just now.
func (p *dirPath) remember(name string) {
	if len(p.made) >= maxMade {
		clear(p.made)
	}
	p.made[name] = true
}

func (p *dirPath) close() { p.cut(0) }

func (p *dirPath) cut(depth int) {
	for i := depth; i < len(p.dirs); i++ {
		p.dirs[i].close()
	}
	p.names, p.dirs = p.names[:depth], p.dirs[:depth]
}

func (p *dirPath) last() *directory {
	if len(p.dirs) == 0 {
		return p.root
	}
	return p.dirs[len(p.dirs)-1]
}

// open opens a directory by its clean name, through no link, and makes what is missing if told so.
func (p *dirPath) open(name string, make bool) (*directory, error) {
	if name == "." {
		return p.root, nil
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		if depth < len(p.names) && p.names[depth] == part {
			depth++
			continue
		}
		p.cut(depth)
		root, err := openDir(p.last().root, part, make)
		if err != nil {
			return nil, err
		}
		next, err := openDirectory(root)
		if err != nil {
			return nil, err
		}
		p.names, p.dirs = append(p.names, part), append(p.dirs, next)
		depth++
	}
	if depth == 0 {
		return p.root, nil
	}
	return p.dirs[depth-1], nil
}

func openDir(parent *os.Root, name string, make bool) (*os.Root, error) {
	info, err := parent.Lstat(name)
	if make && errors.Is(err, fs.ErrNotExist) {
		if err = parent.Mkdir(name, 0o755); err == nil {
			return parent.OpenRoot(name)
		}
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, ErrThroughLink
	}
	next, err := parent.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	// It may have been swapped since; then it is still inside, but not what was looked at.
	opened, err := next.Lstat(".")
	if err != nil || !os.SameFile(info, opened) {
		next.Close()
		return nil, errors.Join(err, ErrThroughLink)
	}
	return next, nil
}

// tempNames are names for what is not complete yet.
type tempNames struct {
	prefix string
	count  int
}

// tempPrefix begins them all.
const tempPrefix = ".guestctl-"

func newTemp() tempNames {
	return tempNames{prefix: tempPrefix + strings.ToLower(rand.Text()[:10]) + "-"}
}

func (t *tempNames) next() string {
	t.count++
	return t.prefix + strconv.Itoa(t.count)
}

// putFile writes a file under another name and then gives it its own.
func (u *unpacker) putFile(parent *directory, base string, h *tar.Header, contents io.Reader) (err error) {
	if err := replaceable(parent.root, base); err != nil {
		return err
	}
	temp := u.temp.next()
	if err := u.writeFile(parent, temp, h, contents); err != nil {
		return err
	}
	if err := parent.rename(temp, base); err != nil {
		return errors.Join(err, parent.root.Remove(temp))
	}
	return nil
}

// putSmallFile makes a file in a directory that this call has made. Its contents are there
// before, so that it is not worth another name, which costs as much as the file itself.
func (u *unpacker) putSmallFile(parent *directory, base string, h *tar.Header, contents io.Reader) error {
	piece := u.small[:h.Size]
	if _, err := io.ReadFull(contents, piece); err != nil {
		return fatal{err}
	}
	err := u.writeFile(parent, base, h, bytes.NewReader(piece))
	if errors.Is(err, fs.ErrExist) { // its name has come before
		return u.putFile(parent, base, h, bytes.NewReader(piece))
	}
	return err
}

// writeFile makes a file with contents, mode and time, or none at all.
func (u *unpacker) writeFile(parent *directory, name string, h *tar.Header, contents io.Reader) error {
	file, err := parent.create(name)
	if err != nil {
		return err
	}
	err = errors.Join(u.fill(file, h.Size, contents), file.Chmod(u.permissions(h)), file.Close())
	if err == nil {
		err = parent.setTime(name, h.ModTime)
	}
	if err != nil {
		err = errors.Join(err, parent.root.Remove(name))
	}
	return err
}

// permissions are what is taken over of a mode.
func (u *unpacker) permissions(h *tar.Header) fs.FileMode {
	return fs.FileMode(h.Mode) & fs.ModePerm &^ u.options.Umask
}

// fill copies a file's contents, pieces of zeros as holes.
func (u *unpacker) fill(file *os.File, size int64, contents io.Reader) error {
	holes := false
	for offset := int64(0); offset < size; {
		if err := context.Cause(u.ctx); err != nil {
			return fatal{err}
		}
		piece := u.buf[:min(size-offset, int64(len(u.buf)))]
		if _, err := io.ReadFull(contents, piece); err != nil {
			return fatal{err}
		}
		if len(piece) == len(hole) && bytes.Equal(piece, hole[:]) {
			holes = true
		} else if _, err := file.WriteAt(piece, offset); err != nil {
			return err
		}
		offset += int64(len(piece))
		u.summary.Bytes += uint64(len(piece))
		u.options.tick(&u.summary)
	}
	if !holes {
		return nil
	}
	return file.Truncate(size)
}

// hole is what is not written.
var hole [holeBytes]byte

// replaceable tells why what has a name may not be replaced by a file or link.
func replaceable(parent *os.Root, base string) error {
	info, err := parent.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return syscall.EISDIR
	case !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink:
		return ErrType
	}
	return nil
}

// putLink makes a symbolic link with its time, or none at all.
func (u *unpacker) putLink(parent *directory, name string, h *tar.Header) error {
	if err := parent.root.Symlink(h.Linkname, name); err != nil {
		return err
	}
	err := parent.setTime(name, h.ModTime)
	if err == nil || errors.Is(err, syscall.EOPNOTSUPP) { // some file systems keep no times of links
		return nil
	}
	return errors.Join(err, parent.root.Remove(name))
}

// make makes something without contents, in the place of what may be replaced.
func (u *unpacker) make(parent *os.Root, base string, create func(name string) error) error {
	err := create(base)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := replaceable(parent, base); err != nil {
		return err
	}
	temp := u.temp.next()
	if err := create(temp); err != nil {
		return err
	}
	if err := parent.Rename(temp, base); err != nil {
		return errors.Join(err, parent.Remove(temp))
	}
	return nil
}

// putHardLink makes an entry another name of a file below the directory.
func (u *unpacker) putHardLink(name, rawTarget string) error {
	target, err := cleanName(rawTarget)
	if err != nil {
		return err
	}
	folder, base := cutName(target)
	from, err := u.path.open(folder, false)
	if err != nil {
		return err
	}
	old, err := from.root.Lstat(base)
	if err != nil {
		return err
	}
	if old.IsDir() {
		return syscall.EISDIR
	}
	folder, base = cutName(name)
	parent, err := u.path.open(folder, true)
	if err != nil {
		return err
	}
	if have, err := parent.root.Lstat(base); err == nil && os.SameFile(have, old) {
		return nil
	}
	// Both directories have just been found to be none that a link leads to.
	return u.make(parent.root, base, func(base string) error {
		return u.path.root.root.Link(target, strings.TrimPrefix(folder+"/"+base, "./"))
	})
}

// pendingDir is a directory that gets its attributes once all that goes into it is there.
type pendingDir struct {
	name    string
	mode    fs.FileMode
	modTime time.Time
}

// How many directories wait at most, and how long their names are in all; beyond that those that
// the stream seems to be done with get their attributes early.
const (
	maxPending      = 64 << 10
	maxPendingBytes = 8 << 20
)

func (u *unpacker) putDir(parent *os.Root, base, name string, h *tar.Header) error {
	err := parent.Mkdir(base, 0o700)
	if errors.Is(err, fs.ErrExist) {
		info, err := parent.Lstat(base)
		if err == nil && !info.IsDir() {
			err = syscall.ENOTDIR
		}
		return err
	}
	if err == nil {
		u.path.remember(name)
		u.later(name, h)
	}
	return err
}

// later notes a directory's attributes.
func (u *unpacker) later(name string, h *tar.Header) {
	u.pending = append(u.pending, pendingDir{name, u.permissions(h), h.ModTime})
	u.names += len(name)
	if len(u.pending) >= maxPending || u.names >= maxPendingBytes {
		u.settle(name)
	}
}

// settle gives the directories that wait their attributes, innermost first, except for current and
// those around it; "" excepts none.
func (u *unpacker) settle(current string) {
	waiting := u.pending
	u.pending, u.names = nil, 0
	slices.SortStableFunc(waiting, func(a, b pendingDir) int { return depth(b.name) - depth(a.name) })
	for _, dir := range waiting {
		if current != "" && (dir.name == "." || strings.HasPrefix(current+"/", dir.name+"/")) {
			u.pending = append(u.pending, dir)
			u.names += len(dir.name)
			continue
		}
		at, err := u.path.open(dir.name, false)
		if err == nil {
			// The time first: the mode may forbid it to others than the owner.
			err = errors.Join(at.root.Chtimes(".", dir.modTime, dir.modTime), at.root.Chmod(".", dir.mode))
		}
		if err != nil {
			u.summary.fail("unpack", u.dir+"/"+dir.name, err)
		}
	}
}

func depth(name string) int {
	if name == "." {
		return 0
	}
	return strings.Count(name, "/") + 1
}

// isFull tells whether nothing else could be unpacked either.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
