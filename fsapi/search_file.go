package fsapi

import (
	"cmp"
	"errors"
	"io"
)

const (
	// maxLineText is how much of a line is told.
	maxLineText = 64 << 10
	// maxContextText is how much of all context lines of a match is told.
	maxContextText = 768 << 10
)

// searchFile tells which lines of an open file match.
func (s *searcher) searchFile(f found) error {
	s.lines.reset(maxMatchedLine, readDescriptor(s.ctx, s.acc, f.fd))
	binary, err := s.lines.binary()
	if err != nil || binary && !s.opts.Binary {
		return err
	}
	out := newMatchContext(f, s.opts.Before, s.opts.After, s.fn)
	matches := uint64(0)
	for ended := false; !ended || out.wantsMore(); {
		line, truncated, err := s.lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return readFailure(out, err)
		}
		matching := false
		if !ended {
			line, matching, err = s.matchLine(line, truncated)
		}
		if err != nil {
			return readFailure(out, err)
		}
		if !matching {
			if err := out.other(s.lines.number, line, truncated); err != nil {
				return err
			}
			continue
		}
		s.count()
		if binary {
			return s.fn(SearchMatch{Path: f.path, Type: f.kind, Binary: true})
		}
		if err := out.match(s.lines.number, line, truncated, s.ranges(line)); err != nil {
			return err
		}
		matches++
		if limit := s.opts.MaxMatchesPerFile; limit > 0 && matches >= limit {
			ended = true
		}
		ended = ended || s.done
	}
	return out.flush()
}

// readFailure is how a file's search ends with a failure to read: what was read is
// told.
func readFailure(out *matchContext, err error) error {
	if _, isRead := errors.AsType[*readError](err); isRead {
		return cmp.Or(out.flush(), err)
	}
	return err
}

// matchLine says whether a line is wanted. The line is what is to be told of it,
// since the rest of a long one comes into the reader's buffer.
func (s *searcher) matchLine(line []byte, truncated bool) (told []byte, wanted bool, err error) {
	if !truncated {
		return line, s.pattern.match(line) != s.opts.Invert, nil
	}
	s.head = append(s.head[:0], line...)
	s.long.begin(s.head, &s.lines)
	matches, err := s.pattern.matchLong(&s.long)
	return s.head, matches != s.opts.Invert, err
}

// ranges are what matches in the part of a wanted line that is told.
func (s *searcher) ranges(line []byte) []SearchRange {
	if s.opts.Invert {
		return nil // of a long line, its beginning alone may match
	}
	return s.pattern.ranges(line, maxLineText)
}

// matchContext gathers the lines around a file's matches. Each line is told once:
// what one match has told as what is behind it is not in front of the next.
type matchContext struct {
	file  found
	after int
	cut   int // how much of a context line is told
	fn    func(SearchMatch) error

	pending *SearchMatch // the last match, while lines behind it are still wanted
	// ring are the last lines that nobody was told, count of them, the oldest at
	// first; their memory is used again.
	ring         []SearchLine
	first, count int
}

func newMatchContext(f found, before, after int, fn func(SearchMatch) error) *matchContext {
	return &matchContext{
		file: f, after: after, fn: fn, ring: make([]SearchLine, before),
		cut: min(maxLineText, maxContextText/max(before+after, 1)),
	}
}

// wantsMore says that the last match's context is not complete.
func (c *matchContext) wantsMore() bool { return c.pending != nil }

// match takes a line that is wanted.
func (c *matchContext) match(number uint64, line []byte, truncated bool, ranges []SearchRange) error {
	if err := c.flush(); err != nil {
		return err
	}
	told := newSearchLine(nil, number, line, truncated, maxLineText)
	c.pending = &SearchMatch{
		Path: c.file.path, Type: c.file.kind, Line: &told,
		Ranges: ranges, Before: c.takeRing(),
	}
	if c.after == 0 {
		return c.flush()
	}
	return nil
}

// other takes a line that is at most context.
func (c *matchContext) other(number uint64, line []byte, truncated bool) error {
	if c.pending != nil {
		c.pending.After = append(c.pending.After, newSearchLine(nil, number, line, truncated, c.cut))
		if len(c.pending.After) == c.after {
			return c.flush()
		}
		return nil
	}
	if len(c.ring) == 0 {
		return nil
	}
	at := &c.ring[(c.first+c.count)%len(c.ring)]
	*at = newSearchLine(at.Text[:0], number, line, truncated, c.cut)
	if c.count < len(c.ring) {
		c.count++
	} else {
		c.first = (c.first + 1) % len(c.ring)
	}
	return nil
}

// takeRing empties the ring into lines of their own.
func (c *matchContext) takeRing() []SearchLine {
	var lines []SearchLine
	for i := range c.count {
		line := c.ring[(c.first+i)%len(c.ring)]
		line.Text = append([]byte(nil), line.Text...)
		lines = append(lines, line)
	}
	c.first, c.count = 0, 0
	return lines
}

// flush tells the last match.
func (c *matchContext) flush() error {
	if c.pending == nil {
		return nil
	}
	match := *c.pending
	c.pending = nil
	return c.fn(match)
}

// newSearchLine copies a line, as far as it is told, to the end of buf.
func newSearchLine(buf []byte, number uint64, line []byte, truncated bool, limit int) SearchLine {
	text := line[:min(len(line), limit)]
	return SearchLine{Number: number, Text: append(buf, text...), Truncated: truncated || len(line) > limit}
}
