// Package gitignore says which paths a .gitignore file leaves out, by the rules
// of gitignore(5).
//
// It knows nothing of file systems and of several such files: whoever walks a
// tree asks the file in the deepest folder first, and does not go into a folder
// that is left out. It knows neither .git/info/exclude nor git's configuration
// and index. It starts no goroutine and owns nothing.
package gitignore

import (
	"bytes"

	"guestd.internal/fsapi/internal/glob"
)

// MaxBytes is how much of a file counts: each entry of a tree may be matched
// with all of it.
const MaxBytes = 256 << 10

// Verdict is what a file says about a path.
type Verdict int

// The verdicts.
const (
	Undecided Verdict = iota // nothing: a file further up decides
	Ignored
	Included // not left out, by a pattern with "!" in front
)

// File is a parsed .gitignore file. It is safe for concurrent use. A nil File
// says nothing.
type File struct {
	rules []rule // the last that matches decides
}

type rule struct {
	pattern *glob.Pattern
	verdict Verdict
}

// Parse reads a file's contents, up to MaxBytes. Lines that make no sense match
// nothing, as in git.
func Parse(text []byte) *File {
	text = text[:min(len(text), MaxBytes)]
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	f := &File{}
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		if r, ok := parseLine(string(bytes.TrimSuffix(line, []byte("\r")))); ok {
			f.rules = append(f.rules, r)
		}
	}
	return f
}

func parseLine(line string) (rule, bool) {
	if line == "" || line[0] == '#' {
		return rule{}, false
	}
	verdict := Ignored
	if line[0] == '!' {
		verdict, line = Included, line[1:]
	}
	pattern, err := glob.Compile(trimBlanks(line))
	return rule{pattern, verdict}, err == nil
}

// trimBlanks cuts blanks off the end, but for one that a backslash protects.
func trimBlanks(line string) string {
	end := 0 // behind the last that stays
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '\\' && i+1 < len(line):
			i++
			end = i + 1
		case line[i] != ' ':
			end = i + 1
		}
	}
	return line[:end]
}

// Match says what the file says about a path below its own folder, which has no
// slash at its ends.
func (f *File) Match(path string, folder bool) Verdict {
	if f == nil {
		return Undecided
	}
	for i := len(f.rules) - 1; i >= 0; i-- {
		if f.rules[i].pattern.Match(path, folder) {
			return f.rules[i].verdict
		}
	}
	return Undecided
}
