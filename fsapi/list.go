package fsapi

import (
	"context"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// MaxListDepth is how many levels of folders a listing goes down at most: whoever
// asks for as many wants all, and is told of each folder below which there may be
// more (ErrTooDeep). Each level holds a descriptor.
const MaxListDepth = 256

// listBatch is how many entries are read in one stay on a worker thread.
const listBatch = 256

// ListOptions says what of a folder is listed.
type ListOptions struct {
	// Depth is how many levels are listed: 1 is the folder's own entries; 0
	// means 1; at most MaxListDepth. A folder below the last level is an entry,
	// but not entered.
	Depth int
	// Hidden includes names that begin with a dot, and enters such folders.
	Hidden bool
	// Include, if there are any, restrict the entries to those that match one of
	// these globs: without a slash the name, with one the path below the listed
	// folder, in which "**" is any number of levels (package fsapi/internal/glob
	// has the whole syntax). Folders are entered all the same.
	Include []string
	// Exclude leaves out entries that match one of these globs, and what is
	// below them.
	Exclude []string
	// NoFollowRoot refuses a link as the listed folder (ErrNotDirectory).
	NoFollowRoot bool
}

// Entry is one file of a listing.
type Entry struct {
	Info  Info
	Depth int // 1 for the listed folder's own entries
	// Err says that the entry cannot be looked at further: a folder whose
	// contents cannot be read (an entry of its own comes before it goes
	// missing) or lie too deep, or a file whose attributes cannot be. The listing
	// goes on.
	Err error
}

// List calls fn for each entry of the folder at path, on the calling goroutine,
// and ends with fn's first error as it is. Entries come in the file system's own
// order, unsorted, each folder's right after itself; "." and ".." are left out.
// Linked folders below the first are never entered. Memory does not depend on
// the number of entries. What appears or goes during the listing may or may not
// be in it.
func (fsys *FS) List(ctx context.Context, user, path string, opts ListOptions, fn func(Entry) error) error {
	acc, err := fsys.account(user)
	if err != nil {
		return err
	}
	full, err := absolute("path", path, acc.Home)
	if err != nil {
		return err
	}
	if err := opts.check(); err != nil {
		return err
	}
	filter, err := newFilter(opts.Include, opts.Exclude)
	if err != nil {
		return err
	}
	l := &lister{acc: acc, opts: opts, filter: filter, root: full, shown: tidy(full), names: newNames(fsys.accounts)}
	defer l.close()
	if err := fsys.as(ctx, acc, l.open); err != nil {
		return pathError("list", path, err)
	}
	for len(l.stack) > 0 {
		if err := fsys.as(ctx, acc, func() error { return l.fill(ctx) }); err != nil {
			return pathError("list", path, err)
		}
		for i := range l.batch {
			l.names.fill(&l.batch[i].Info)
			if err := fn(l.batch[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// check validates the options and fills in the depth.
func (o *ListOptions) check() error {
	if o.Depth == 0 {
		o.Depth = 1
	}
	if o.Depth < 0 || o.Depth > MaxListDepth {
		return &InvalidError{Field: "depth", Problem: "is not between 0 and " + strconv.Itoa(MaxListDepth)}
	}
	return nil
}

// lister is a listing on its way: the folders that are open, outermost first.
type lister struct {
	acc    account.Account
	opts   ListOptions
	filter *filter
	root   string
	shown  string // root as entries' paths begin
	stack  []*level
	batch  []Entry
	names  *names
}

// level is one open folder.
type level struct {
	dir   *dirReader
	below string // path from the listed folder; "" for that itself
}

func (l *lister) close() {
	for _, level := range l.stack {
		level.dir.close()
	}
	l.stack = nil
}

// open opens the listed folder.
func (l *lister) open() error {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK
	if l.opts.NoFollowRoot {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := openAt(unix.AT_FDCWD, l.root, flags, 0)
	if err != nil {
		return err
	}
	if err := refuseOwnProc(fd, l.acc); err != nil {
		unix.Close(fd)
		return err
	}
	l.stack = append(l.stack, &level{dir: newDirReader(fd)})
	return nil
}

// fill reads the next entries into the batch, until it is full or all is read.
func (l *lister) fill(ctx context.Context) error {
	l.batch = l.batch[:0]
	for len(l.stack) > 0 && len(l.batch) < listBatch {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		top := l.stack[len(l.stack)-1]
		entry, more, err := top.dir.next()
		switch {
		case err != nil && len(l.stack) == 1:
			return err
		case err != nil:
			l.fail(top, err)
			l.pop()
		case !more:
			l.pop()
		default:
			l.visit(top, entry)
		}
	}
	return nil
}

func (l *lister) pop() {
	top := len(l.stack) - 1
	l.stack[top].dir.close()
	l.stack = l.stack[:top]
}

// fail reports that the rest of a folder cannot be read.
func (l *lister) fail(at *level, err error) {
	full := join(l.shown, at.below)
	info := Info{Type: TypeDirectory}
	name(&info, full)
	l.batch = append(l.batch, Entry{Info: info, Depth: len(l.stack) - 1, Err: pathError("list", full, err)})
}

// visit looks at one entry, reports it if it is wanted, and opens it if it is a
// folder to be entered.
func (l *lister) visit(at *level, entry dirEntry) {
	if entry.name[0] == '.' && !l.opts.Hidden {
		return
	}
	below := entry.name
	if at.below != "" {
		below = at.below + "/" + entry.name
	}
	full := join(l.shown, below)
	info, err := statAt(at.dir.fd, entry.name)
	if errors.Is(err, unix.ENOENT) {
		return // gone since
	}
	out := Entry{Info: info, Depth: len(l.stack)}
	if err != nil {
		out.Info.Type = entry.kind
		out.Err = pathError("stat", full, err)
	}
	out.Info.Path, out.Info.Name = full, entry.name
	if out.Info.Type == TypeSymlink && err == nil {
		describeLink(&out.Info, at.dir.fd, entry.name)
	}
	take, enter := l.filter.Match(below, out.Info.Type == TypeDirectory)
	var sub *level
	switch {
	case !enter || out.Err != nil:
	case len(l.stack) >= MaxListDepth:
		out.Err = pathError("open", full, ErrTooDeep)
	case len(l.stack) < l.opts.Depth:
		fd, err := openListed(at.dir.fd, entry.name, l.acc)
		if err != nil {
			out.Err = pathError("open", full, err)
		} else {
			sub = &level{dir: newDirReader(fd), below: below}
		}
	}
	if !take {
		// A folder that is not wanted itself is no entry: of one that cannot be
		// read only that is told.
		out.Info = Info{Type: out.Info.Type}
		name(&out.Info, full)
	}
	if take || enter && out.Err != nil {
		l.batch = append(l.batch, out)
	}
	if sub != nil {
		l.stack = append(l.stack, sub)
	}
}
