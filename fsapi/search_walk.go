package fsapi

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// searchNames is how many names of a folder are sorted at once, searchBatch
	// how many names are found, and searchOpen how many files opened, in one
	// stay on a worker thread.
	searchNames = 4096
	searchBatch = 256
	searchOpen  = 32
)

// searchLevel is one open folder.
type searchLevel struct {
	dir    *dirReader
	below  string // path from the search's root; "" for that itself
	names  []dirEntry
	err    error // what ended the reading, after names
	ignore []ignoreFile
}

// next returns the folder's next entry.
func (l *searchLevel) next() (entry dirEntry, more bool, err error) {
	if len(l.names) == 0 && l.err == nil {
		l.read()
	}
	if len(l.names) == 0 {
		if errors.Is(l.err, io.EOF) {
			return dirEntry{}, false, nil
		}
		return dirEntry{}, false, l.err
	}
	entry, l.names = l.names[0], l.names[1:]
	return entry, true, nil
}

// read reads and sorts the next names.
func (l *searchLevel) read() {
	l.names = nil
	for len(l.names) < searchNames {
		entry, more, err := l.dir.next()
		if l.err = err; !more {
			if err == nil {
				l.err = io.EOF
			}
			break
		}
		l.names = append(l.names, entry)
	}
	slices.SortFunc(l.names, func(a, b dirEntry) int { return strings.Compare(a.name, b.name) })
}

// open opens the search's root; on a worker.
func (s *searcher) open() error {
	look, err := openAt(unix.AT_FDCWD, s.root, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	info, err := statAt(look, "")
	unix.Close(look)
	if err != nil {
		return err
	}
	if info.Type != TypeDirectory {
		return s.openFile(info)
	}
	fd, err := openAt(unix.AT_FDCWD, s.root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	if err := refuseOwnProc(fd, s.acc); err != nil {
		unix.Close(fd)
		return err
	}
	level := &searchLevel{dir: newDirReader(fd)}
	s.stack = append(s.stack, level)
	if s.opts.Gitignore {
		s.addIgnored(level, s.ignoredFromAbove(fd))
	}
	return nil
}

// openFile makes a root that is no folder all that is searched.
func (s *searcher) openFile(info Info) error {
	f := found{path: s.shown, kind: info.Type, fd: -1}
	if s.pattern != nil {
		if info.Type != TypeRegular {
			return ErrNotSupportedType
		}
		fd, err := openAt(unix.AT_FDCWD, s.root, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err != nil {
			return err
		}
		wanted, err := s.searchable(fd)
		if err != nil || !wanted {
			unix.Close(fd)
			return err
		}
		f.fd = fd
	}
	s.batch = append(s.batch, f)
	return nil
}

// fill goes on through the folders until enough has been found; on a worker.
func (s *searcher) fill() error {
	opened := 0
	for len(s.stack) > 0 && len(s.batch) < searchBatch && opened < searchOpen {
		if err := context.Cause(s.ctx); err != nil {
			return err
		}
		top := s.stack[len(s.stack)-1]
		entry, more, err := top.next()
		if err != nil {
			if len(s.stack) == 1 {
				return err
			}
			s.fail(join(s.shown, top.below), "list", err)
		}
		if !more {
			top.dir.close()
			s.stack = s.stack[:len(s.stack)-1]
			continue
		}
		before := len(s.batch)
		s.visit(top, entry)
		if len(s.batch) > before && s.pattern != nil {
			opened++
		}
	}
	return nil
}

// visit decides on one entry: it is found, opened, entered or left out.
func (s *searcher) visit(at *searchLevel, entry dirEntry) {
	if s.opts.SkipHidden && entry.name[0] == '.' || s.opts.Gitignore && entry.name == ".git" {
		return
	}
	below := entry.name
	if at.below != "" {
		below = at.below + "/" + entry.name
	}
	full := join(s.shown, below)
	if entry.kind == TypeUnknown {
		info, err := statAt(at.dir.fd, entry.name)
		if err != nil {
			if !errors.Is(err, unix.ENOENT) {
				s.fail(full, "stat", err)
			}
			return
		}
		entry.kind = info.Type
	}
	take, enter := s.filter.Match(below, entry.kind == TypeDirectory)
	if !take && !enter || at.ignored(below, entry.kind == TypeDirectory) {
		return
	}
	switch {
	case take && s.pattern == nil:
		s.batch = append(s.batch, found{path: full, kind: entry.kind, fd: -1})
	case take && entry.kind == TypeRegular:
		s.openFound(at, entry, full)
	}
	if enter {
		s.enter(at, entry, below)
	}
}

// openFound opens a file whose contents are to be searched.
func (s *searcher) openFound(at *searchLevel, entry dirEntry, full string) {
	fd, err := openNoLinks(at.dir.fd, entry.name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		return // gone since, or replaced by a link
	}
	wanted := false
	if err == nil {
		wanted, err = s.searchable(fd)
	}
	if err != nil {
		s.fail(full, "open", err)
	}
	if wanted {
		s.batch = append(s.batch, found{path: full, kind: entry.kind, fd: fd})
	} else if fd >= 0 {
		unix.Close(fd)
	}
}

// searchable says whether an open file is one whose contents are wanted.
func (s *searcher) searchable(fd int) (bool, error) {
	info, err := statAt(fd, "")
	if err == nil {
		err = refuseOwnProc(fd, s.acc)
	}
	if err != nil || info.Type != TypeRegular {
		return false, err
	}
	limit := s.opts.MaxFileBytes
	return limit == nil || info.Size < 0 || uint64(info.Size) <= *limit, nil
}

// enter goes down into a folder.
func (s *searcher) enter(at *searchLevel, entry dirEntry, below string) {
	full := join(s.shown, below)
	if len(s.stack) >= MaxListDepth {
		s.fail(full, "open", ErrTooDeep)
		return
	}
	fd, err := openListed(at.dir.fd, entry.name, s.acc)
	if err != nil {
		if !errors.Is(err, unix.ENOENT) {
			s.fail(full, "open", err)
		}
		return
	}
	level := &searchLevel{dir: newDirReader(fd), below: below}
	if s.opts.Gitignore {
		s.addIgnored(level, at.ignore)
	}
	s.stack = append(s.stack, level)
}
