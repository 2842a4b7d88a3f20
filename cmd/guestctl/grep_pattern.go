package main

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// oneOf is the regular expression that matches where any of the patterns does; a pattern of several
// lines is several patterns, as for grep(1).
func (f *grepFlags) oneOf(patterns []string) (string, error) {
	var all []string
	for _, lines := range patterns {
		for pattern := range strings.SplitSeq(lines, "\n") {
			if f.fixed {
				all = append(all, regexp.QuoteMeta(pattern))
				continue
			}
			closed, err := closedPattern(pattern)
			if err != nil {
				return "", fmt.Errorf("the pattern %s: %w", quoted(pattern), err)
			}
			all = append(all, closed)
		}
	}
	one := all[0]
	if len(all) > 1 {
		one = "(?:" + strings.Join(all, ")|(?:") + ")"
	}
	switch {
	case f.lines:
		one = `^(?:` + one + `)$`
	case f.words:
		one = `\b(?:` + one + `)\b`
	}
	return one, nil
}

// closedPattern is a pattern that means the same within others, as one with a \Q does not that nothing
// ends. It refuses what is no regular expression: within others it might become one.
func closedPattern(pattern string) (string, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if bad, is := errors.AsType[*syntax.Error](err); is {
		if bad.Expr == "" || bad.Expr == pattern {
			return "", errors.New(bad.Code.String())
		}
		return "", fmt.Errorf("%s in %s", bad.Code, quoted(bad.Expr))
	}
	if err != nil {
		return "", err
	}
	if wantsLineEnd(parsed) {
		return "", errors.New("no line has a line end in it")
	}
	if strings.Contains(pattern, `\Q`) {
		pattern = parsed.String()
	}
	return pattern, nil
}

// wantsLineEnd tells whether part of a regular expression matches nothing but text with a line end.
func wantsLineEnd(re *syntax.Regexp) bool {
	if re.Op == syntax.OpLiteral {
		return slices.Contains(re.Rune, '\n')
	}
	return slices.ContainsFunc(re.Sub, wantsLineEnd)
}
