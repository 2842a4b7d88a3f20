package fsapi

import (
	"bytes"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// maxPattern is how many bytes a pattern has at most: matching takes time in
// proportion to it.
const maxPattern = 4096

// maxRanges is how many matching parts of a line are told.
const maxRanges = 1000

// linePattern matches lines.
type linePattern struct {
	re *regexp.Regexp
	// literal is in every line that matches; looking for it is much faster than
	// matching. Empty is none.
	literal []byte
}

func compilePattern(text string, ignoreCase bool) (*linePattern, error) {
	if len(text) > maxPattern {
		return nil, &InvalidError{Field: "pattern", Problem: "has more than 4096 bytes"}
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, &InvalidError{Field: "pattern", Problem: "is no regular expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")}
	}
	p := &linePattern{literal: []byte(required(parsed))}
	if ignoreCase {
		p.literal = nil
		text = "(?i)" + text
	}
	if p.re, err = regexp.Compile(text); err != nil {
		return nil, &InvalidError{Field: "pattern", Problem: "is no regular expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")}
	}
	return p, nil
}

// required is the longest text that is in everything that re matches, as far as
// that is easy to say.
func required(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		text := string(re.Rune)
		if re.Flags&syntax.FoldCase != 0 || strings.ContainsRune(text, utf8.RuneError) {
			return "" // U+FFFD also stands for any byte that is no UTF-8
		}
		return text
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		longest := ""
		for _, sub := range re.Sub {
			if text := required(sub); len(text) > len(longest) {
				longest = text
			}
		}
		return longest
	}
	return ""
}

func (p *linePattern) match(line []byte) bool {
	return bytes.Contains(line, p.literal) && p.re.Match(line)
}

// ranges are the parts of a line that match, as far as they are in its first
// limit bytes.
func (p *linePattern) ranges(line []byte, limit int) []SearchRange {
	var ranges []SearchRange
	for _, at := range p.re.FindAllIndex(line, maxRanges) {
		if start, end := at[0], min(at[1], limit); start < end {
			ranges = append(ranges, SearchRange{Start: start, End: end})
		}
	}
	return ranges
}
