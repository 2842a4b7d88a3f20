package fsapi

import (
	"context"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// MaxContextLines is how many lines of context a search tells before and after
// a match at most.
const MaxContextLines = 100

// maxSearchFailures is how many failures a search tells one by one.
const maxSearchFailures = 100

// SearchOptions says what is searched for.
type SearchOptions struct {
	// Include and Exclude are globs as in ListOptions. They do not apply to the
	// search's root itself.
	Include, Exclude []string
	// Pattern is a regular expression (RE2) that lines must match. nil searches
	// for names alone.
	Pattern *string
	// IgnoreCase makes the pattern match without regard to case.
	IgnoreCase bool
	// Invert looks for the lines that the pattern does not match.
	Invert bool
	// Before and After are how many lines of context are told, 0 to
	// MaxContextLines. A line is told once, with the first match that it
	// belongs to; a line that matches itself is no context.
	Before, After int
	// SkipHidden leaves out names that begin with a dot, and what is below them.
	SkipHidden bool
	// Gitignore leaves out what .gitignore files say: those in the tree, and,
	// if the root is within a git work tree, those above it up to the work tree's
	// own root. ".git" itself is left out too.
	Gitignore bool
	// Binary searches binary files too, which have a NUL byte in their first
	// 8 KiB. Their match is told once and without the line.
	Binary bool
	// MaxMatches ends the search after so many, MaxMatchesPerFile the search of
	// one file; 0 is no limit. The context behind the last is still told.
	MaxMatches, MaxMatchesPerFile uint64
	// MaxFileBytes leaves out larger files; nil is no limit.
	MaxFileBytes *uint64
}

// SearchMatch is a file or a line that was searched for.
type SearchMatch struct {
	Path string
	Type Type
	// Line is what was looked for; nil if names alone are searched for, or the file
	// is binary.
	Line *SearchLine
	// Ranges are the parts of Line.Text that match, the first 1,000. They are
	// not empty and do not overlap. Of a line with more than 1 MiB they are what
	// they would be if it ended there.
	Ranges []SearchRange
	// Before and After are the lines around it.
	Before, After []SearchLine
	// Binary says that the file is binary and matches somewhere.
	Binary bool
}

// SearchLine is one line of a file.
type SearchLine struct {
	Number uint64 // from 1
	// Text is the line without its end (LF or CRLF), cut after 64 KiB; context
	// is cut earlier if there is much of it, so that a match with all its
	// context has less than 1 MiB.
	Text []byte
	// Truncated says that it was cut.
	Truncated bool
}

// SearchRange is a part of a line, in bytes, without the end.
type SearchRange struct{ Start, End int }

// SearchFailure tells of a file that could not be searched.
type SearchFailure struct {
	Path string
	Err  error
}

// SearchSummary says what a search has come to.
type SearchSummary struct {
	Files        uint64 // entries whose names, or files whose contents were looked at
	Matches      uint64
	LimitReached bool // MaxMatches ended it
	// Failures are the first 100; FailureCount counts all.
	Failures     []SearchFailure
	FailureCount uint64
}

// Search looks for files by name, or for lines in regular files, below the
// folder at path or in the one file that is there. A link at path is followed,
// others are never: they are found by name, and not read. It calls fn for each
// match, on the calling goroutine, and ends with fn's first error as it is; what
// fn is given it may keep.
//
// Folders are gone through in the order of their names' bytes (those with more
// than 4,096 entries in pieces of so many), so that a limit always leaves the
// same matches. What cannot be read is told in the summary, and the search goes
// on. Folders are entered as far as 256 levels down. Memory does not depend on
// the size of files, lines or folders: of the .gitignore files that a folder is
// under 256 KiB each and 1 MiB together count (ErrIgnoreLimit). When ctx ends so does the search, before
// the next 64 KiB.
//
// A line is matched as a whole, however long it is. Bytes that are no UTF-8 match
// like U+FFFD, one each.
func (fsys *FS) Search(ctx context.Context, user, path string, opts SearchOptions, fn func(SearchMatch) error) (SearchSummary, error) {
	acc, err := fsys.account(user)
	if err != nil {
		return SearchSummary{}, err
	}
	full, err := absolute("path", path, acc.Home)
	if err != nil {
		return SearchSummary{}, err
	}
	s := &searcher{ctx: ctx, acc: acc, opts: opts, fn: fn, root: full, shown: tidy(full)}
	if err := s.prepare(); err != nil {
		return SearchSummary{}, err
	}
	defer s.close()
	if err := fsys.as(ctx, acc, s.open); err != nil {
		return SearchSummary{}, pathError("search", path, err)
	}
	for !s.done && (len(s.stack) > 0 || len(s.batch) > 0) {
		if len(s.batch) == 0 {
			if err := fsys.as(ctx, acc, s.fill); err != nil {
				return s.summary, pathError("search", path, err)
			}
		}
		if err := s.searchBatch(); err != nil {
			return s.summary, err
		}
	}
	return s.summary, nil
}

// searcher is a search on its way.
type searcher struct {
	ctx     context.Context
	acc     account.Account
	opts    SearchOptions
	fn      func(SearchMatch) error
	filter  *filter
	pattern *linePattern // nil for names alone
	root    string
	shown   string // root as the paths of matches begin

	stack   []*searchLevel // the folders that are open, outermost first
	batch   []found        // what has been found in them and not been searched yet
	lines   lineReader     // for one file after the other
	head    []byte         // the beginning of a long line
	long    longLine       // all of it
	summary SearchSummary
	done    bool // MaxMatches is reached
}

// found is an entry that is wanted. fd is a file to be searched, owned, or -1.
type found struct {
	path string
	kind Type
	fd   int
}

// prepare checks the options and compiles what is in them.
func (s *searcher) prepare() (err error) {
	if n := s.opts.Before; n < 0 || n > MaxContextLines {
		return &InvalidError{Field: "before_lines", Problem: "is not between 0 and " + strconv.Itoa(MaxContextLines)}
	}
	if n := s.opts.After; n < 0 || n > MaxContextLines {
		return &InvalidError{Field: "after_lines", Problem: "is not between 0 and " + strconv.Itoa(MaxContextLines)}
	}
	if s.filter, err = newFilter(s.opts.Include, s.opts.Exclude); err != nil {
		return err
	}
	if s.opts.Pattern != nil {
		s.pattern, err = compilePattern(*s.opts.Pattern, s.opts.IgnoreCase)
	}
	return err
}

func (s *searcher) close() {
	for _, level := range s.stack {
		level.dir.close()
	}
	s.closeBatch()
}

// closeBatch closes the files that have not been searched.
func (s *searcher) closeBatch() {
	for _, f := range s.batch {
		if f.fd >= 0 {
			unix.Close(f.fd)
		}
	}
	s.batch = s.batch[:0]
}

func (s *searcher) fail(path, op string, err error) {
	s.summary.FailureCount++
	if len(s.summary.Failures) < maxSearchFailures {
		s.summary.Failures = append(s.summary.Failures, SearchFailure{Path: path, Err: pathError(op, path, err)})
	}
}

// searchBatch tells what has been found or is found in it; not on a worker,
// since fn may take its time.
func (s *searcher) searchBatch() error {
	defer s.closeBatch()
	for i := range s.batch {
		if s.done {
			return nil
		}
		if err := context.Cause(s.ctx); err != nil {
			return err
		}
		f := &s.batch[i]
		s.summary.Files++
		if f.fd < 0 {
			s.count()
			if err := s.fn(SearchMatch{Path: f.path, Type: f.kind}); err != nil {
				return err
			}
			continue
		}
		err := s.searchFile(*f)
		unix.Close(f.fd)
		f.fd = -1
		if read, ok := errors.AsType[*readError](err); ok {
			s.fail(f.path, "read", read.err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// count counts a match.
func (s *searcher) count() {
	s.summary.Matches++
	if s.opts.MaxMatches > 0 && s.summary.Matches >= s.opts.MaxMatches {
		s.done, s.summary.LimitReached = true, true
	}
}
