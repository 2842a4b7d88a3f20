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
	// literal is in every line that matches: looking for it is much faster than
	// matching.
	literal literal
}

func compilePattern(text string, ignoreCase bool) (*linePattern, error) {
	if len(text) > maxPattern {
		return nil, &InvalidError{Field: "pattern", Problem: "has more than 4096 bytes"}
	}
	flags := syntax.Perl
	if ignoreCase {
		flags |= syntax.FoldCase
	}
	parsed, err := syntax.Parse(text, flags)
	if err != nil {
		return nil, &InvalidError{Field: "pattern", Problem: "is no regular expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")}
	}
	if ignoreCase {
		text = "(?i)" + text
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, &InvalidError{Field: "pattern", Problem: "is no regular expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")}
	}
	return &linePattern{re: re, literal: required(parsed)}, nil
}

func (p *linePattern) match(line []byte) bool {
	return p.literal.in(line) && p.re.Match(line)
}

// literal is text to look for. Empty, it is in everything.
type literal struct {
	text  []byte
	fold  bool // text is ASCII without capitals, and matches capitals too
	whole bool // whatever has it matches
}

// required is the longest text that is in everything that re matches, as far as
// that is easy to say.
func required(re *syntax.Regexp) literal {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return foldedLiteral(re.Rune)
		}
		if text := string(re.Rune); !strings.ContainsRune(text, utf8.RuneError) {
			return literal{text: []byte(text), whole: true}
		}
		// U+FFFD also stands for any byte that is no UTF-8.
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0]).part(re.Min > 1)
		}
	case syntax.OpConcat:
		var longest literal
		for _, sub := range re.Sub {
			if l := required(sub); len(l.text) > len(longest.text) {
				longest = l
			}
		}
		return longest.part(len(re.Sub) > 1)
	}
	return literal{}
}

// part is the literal as no more than a part of what has to match, if it is one.
func (l literal) part(is bool) literal {
	l.whole = l.whole && !is
	return l
}

// foldedLiteral is the longest part of a literal without regard to case in which
// each character has at most two forms, both of them ASCII. That leaves out k
// and s, which are also U+212A and U+017F.
func foldedLiteral(text []rune) literal {
	longest, run := []byte(nil), []byte(nil)
	for _, c := range text {
		if c >= utf8.RuneSelf || strings.ContainsRune("kKsS", c) {
			run = nil
			continue
		}
		if run = append(run, lowerCase(byte(c))); len(run) > len(longest) {
			longest = run
		}
	}
	return literal{text: longest, fold: true, whole: len(longest) == len(text)}
}

func lowerCase(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func (l literal) in(line []byte) bool {
	if !l.fold || len(l.text) == 0 {
		return bytes.Contains(line, l.text)
	}
	first := l.text[0]
	for i := 0; i+len(l.text) <= len(line); i++ {
		if lowerCase(line[i]) == first && l.isAt(line[i:]) {
			return true
		}
	}
	return false
}

func (l literal) isAt(line []byte) bool {
	for i, c := range l.text {
		if lowerCase(line[i]) != c {
			return false
		}
	}
	return true
}

// ranges are the parts of a line, or of what is in memory of it, that match, as far
// as they are in its first limit bytes.
func (p *linePattern) ranges(line []byte, limit int) []SearchRange {
	var ranges []SearchRange
	for _, at := range p.re.FindAllIndex(line, maxRanges) {
		if start, end := at[0], min(at[1], limit); start < end {
			ranges = append(ranges, SearchRange{Start: start, End: end})
		}
	}
	return ranges
}
