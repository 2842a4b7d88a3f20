package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// SearchOptions says what is searched for; nil means every name.
type SearchOptions struct {
	// User is as in FileOptions.
	User string
	// Include keeps only what matches one of these globs, Exclude leaves out what does, and what is
	// below it. Neither applies to the path that the search starts at.
	Include, Exclude []string
	// Pattern is a regular expression (RE2) that lines must match, each without its end and as a whole,
	// however long it is; nil searches for names alone.
	Pattern *string
	// IgnoreCase makes the pattern match without regard to case.
	IgnoreCase bool
	// Invert searches for lines that the pattern does not match.
	Invert bool
	// Before and After are how many lines of context each match gets, 0 to 100.
	Before, After int
	// SkipHidden leaves out names that begin with a dot, and what is below them.
	SkipHidden bool
	// Gitignore leaves out what .gitignore files say, and .git itself.
	Gitignore bool
	// Binary searches binary files too; of such a file a match is told once, and without the line.
	Binary bool
	// MaxMatches ends the search after so many matches, MaxMatchesPerFile that of one file. 0 is no limit.
	MaxMatches, MaxMatchesPerFile uint64
	// MaxFileBytes leaves out larger files; nil is no limit.
	MaxFileBytes *uint64
}

// SearchMatch is a file that was found by its name, or a line that matches.
type SearchMatch struct {
	// Path is the file's, absolute and cleaned.
	Path string
	// Type is the file's type, without permissions.
	Type fs.FileMode
	// Line matches; nil where names alone were searched for, or the file is binary.
	Line *SearchLine
	// Ranges are the parts of Line.Text that match, the first 1,000, in order and without overlap. Of
	// a line with more than 1 MiB they are what they would be if it ended there.
	Ranges []SearchRange
	// Before and After are lines around it. Each line of a file is told once: what was behind one
	// match is not again in front of the next.
	Before, After []SearchLine
	// Binary: the file is binary, and matches somewhere.
	Binary bool
}

// SearchLine is a line of a file.
type SearchLine struct {
	// Number counts from 1.
	Number uint64
	// Text is the line without its end.
	Text []byte
	// Truncated: it was too long, and Text is its beginning.
	Truncated bool
}

// SearchRange is a part of a line: its first byte, and the first behind it.
type SearchRange struct{ Start, End int }

// SearchSummary is what a search has come to.
type SearchSummary struct {
	// Files were looked at, and Matches found.
	Files, Matches uint64
	// LimitReached: MaxMatches ended it.
	LimitReached bool
	// Failures are the first 100 files and directories that could not be read, each an *Error with
	// its Path. FailureCount is how many there were.
	Failures     []error
	FailureCount uint64
}

// Search is a search in the guest. It is for one goroutine.
type Search struct {
	client  *Client
	ctx     context.Context
	path    string
	options SearchOptions
	root    *FileInfo
	summary *SearchSummary
}

// errNoSearchSummary: a search's stream ended before guestd had said what it came to.
var errNoSearchSummary = errors.New("guestd ended the search without its summary")

// Search prepares a search for files below a directory, or for lines in them or in the one file.
// Matches does it.
func (c *Client) Search(ctx context.Context, path string, options *SearchOptions) *Search {
	s := &Search{client: c, ctx: ctx, path: path}
	if options != nil {
		s.options = *options
	}
	return s
}

// Root describes where the search starts. It is nil until guestd has begun.
func (s *Search) Root() *FileInfo { return s.root }

// Summary tells what the search has come to. It is nil unless Matches came to its end without an error.
func (s *Search) Summary() *SearchSummary { return s.summary }

// Matches searches, and gives the matches as they are found: directories in the order of their
// names' bytes, a file's lines in theirs. After an error it ends. Breaking off the loop ends the
// search in the guest; another loop searches again.
func (s *Search) Matches() iter.Seq2[*SearchMatch, error] {
	return func(yield func(*SearchMatch, error) bool) {
		s.root, s.summary = nil, nil
		ctx, cancel := context.WithCancelCause(s.ctx)
		defer cancel(context.Canceled)
		request, err := s.options.request(s.path)
		if err != nil {
			yield(nil, err)
			return
		}
		stream, err := s.client.files.Search(ctx, request)
		for err == nil {
			var response *guestdv1.SearchResponse
			if response, err = stream.Recv(); err != nil {
				break
			}
			var match *SearchMatch
			if match, err = s.take(response); match != nil && !yield(match, nil) {
				return
			}
		}
		switch {
		case !errors.Is(err, io.EOF):
			s.summary = nil
			yield(nil, fromCall(ctx, err))
		case s.summary == nil:
			yield(nil, errNoSearchSummary)
		}
	}
}

// take keeps the header and the summary, and gives a match. Variants of a later version are passed over.
func (s *Search) take(response *guestdv1.SearchResponse) (*SearchMatch, error) {
	if s.root == nil {
		header := response.GetHeader()
		if header == nil {
			return nil, fmt.Errorf("guestd began with %T instead of a header", response.GetEvent())
		}
		s.root = fileInfoOf(header.GetRoot())
		return nil, nil
	}
	if m := response.GetSummary(); m != nil {
		s.summary = searchSummaryOf(m)
	}
	if m := response.GetMatch(); m != nil {
		return searchMatchOf(m), nil
	}
	return nil, nil
}

func (o *SearchOptions) request(path string) (*guestdv1.SearchRequest, error) {
	if err := checkText("user", o.User); err != nil {
		return nil, err
	}
	if o.Pattern != nil {
		if err := checkText("pattern", *o.Pattern); err != nil {
			return nil, err
		}
	}
	return &guestdv1.SearchRequest{
		User: o.User, Path: []byte(path), Include: byteStrings(o.Include), Exclude: byteStrings(o.Exclude),
		Pattern: o.Pattern, IgnoreCase: o.IgnoreCase, Invert: o.Invert,
		BeforeLines: uint32(max(0, o.Before)), AfterLines: uint32(max(0, o.After)),
		SkipHidden: o.SkipHidden, RespectGitignore: o.Gitignore, Binary: o.Binary,
		MaxMatches: o.MaxMatches, MaxMatchesPerFile: o.MaxMatchesPerFile, MaxFileBytes: o.MaxFileBytes,
	}, nil
}

func searchMatchOf(m *guestdv1.SearchMatch) *SearchMatch {
	match := &SearchMatch{
		Path: string(m.GetPath()), Type: typeMode(m.GetType()), Binary: m.GetBinary(),
		Before: searchLines(m.GetBefore()), After: searchLines(m.GetAfter()),
	}
	if line := m.GetLine(); line != nil {
		match.Line = &SearchLine{Number: line.GetNumber(), Text: line.GetText(), Truncated: line.GetTruncated()}
		match.Ranges = searchRanges(m.GetRanges(), len(line.GetText()))
	}
	return match
}

func searchLines(lines []*guestdv1.SearchLine) []SearchLine {
	out := make([]SearchLine, 0, len(lines))
	for _, line := range lines {
		out = append(out, SearchLine{Number: line.GetNumber(), Text: line.GetText(), Truncated: line.GetTruncated()})
	}
	return out
}

// searchRanges keeps the ranges that are within a line of so many bytes and behind each other, as
// they all are from a guestd that is to be trusted.
func searchRanges(ranges []*guestdv1.ByteRange, length int) []SearchRange {
	out := make([]SearchRange, 0, len(ranges))
	least := 0
	for _, r := range ranges {
		start, end := int(r.GetStart()), int(r.GetEnd())
		if start >= least && start < end && end <= length {
			out = append(out, SearchRange{Start: start, End: end})
			least = end
		}
	}
	return out
}

func searchSummaryOf(m *guestdv1.SearchSummary) *SearchSummary {
	s := &SearchSummary{
		Files: m.GetFiles(), Matches: m.GetMatches(), LimitReached: m.GetLimitReached(), FailureCount: m.GetFailureCount(),
	}
	for _, failure := range m.GetFailures() {
		s.Failures = append(s.Failures, failureError(failure))
	}
	return s
}
