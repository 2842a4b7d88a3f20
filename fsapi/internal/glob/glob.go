// Package glob matches paths against globs.
//
// It knows nothing of file systems: a path is text whose names are separated by
// single slashes. It starts no goroutine and owns nothing.
//
// # Syntax
//
//   - "*" is any text within a name, also none;
//   - "?" is one character of a name;
//   - "[a-z]" is one character of a set, "[!a-z]" or "[^a-z]" one that is not in
//     it; "[[:alpha:]]" and its like are the classes of POSIX, for ASCII;
//   - "\" takes the next character literally;
//   - "**" as a whole name is any number of levels: "**/x" is x at any depth,
//     "a/**/b" includes a/b, and "a/**" is all that is below a, but not a. In
//     other places "**" is "*".
//
// A glob without a slash is matched with a path's last name, one with a slash
// with the whole path; a slash in front says no more than that. A slash at the
// end restricts the glob to folders, and counts for nothing else. These are the
// rules of gitignore(5). A name that begins with a dot is like any other.
//
// A character is a UTF-8 sequence, or a byte that is part of none.
//
// Matching takes at most time in proportion to the glob's length times the
// path's: no glob makes it hang.
package glob

import (
	"errors"
	"strings"
)

// MaxLength is how many bytes a glob has at most.
const MaxLength = 4096

// What is wrong with a glob.
var (
	ErrEmpty   = errors.New("is empty")
	ErrTooLong = errors.New("is longer than 4096 bytes")
	ErrNUL     = errors.New("contains a NUL byte")
	ErrName    = errors.New(`has an empty name, "." or ".." in it`)
	ErrSyntax  = errors.New("has a syntax error")
)

// Pattern is a compiled glob. It is safe for concurrent use.
type Pattern struct {
	names      []name // for a glob without a slash, the one
	wholePath  bool
	folderOnly bool
}

// name matches one name of a path; nil is "**", any number of them.
type name []token

// Compile compiles a glob. Its error is one of this package's.
func Compile(text string) (*Pattern, error) {
	switch {
	case text == "":
		return nil, ErrEmpty
	case len(text) > MaxLength:
		return nil, ErrTooLong
	case strings.IndexByte(text, 0) >= 0:
		return nil, ErrNUL
	}
	p := &Pattern{}
	if rest, ok := strings.CutSuffix(text, "/"); ok && !escaped(rest) {
		text, p.folderOnly = rest, true
	}
	p.wholePath = strings.Contains(text, "/")
	text = strings.TrimPrefix(text, "/")
	for part := range strings.SplitSeq(text, "/") {
		if part == "" || part == "." || part == ".." {
			return nil, ErrName
		}
		if part == "**" && p.wholePath {
			p.names = append(p.names, nil)
			continue
		}
		tokens, err := parse(part)
		if err != nil {
			return nil, err
		}
		p.names = append(p.names, tokens)
	}
	if p.names[len(p.names)-1] == nil {
		p.names = append(p.names, name{{kind: anyText}}) // at least one level
	}
	return p, nil
}

// escaped says whether what follows text is taken literally.
func escaped(text string) bool {
	backslashes := len(text) - len(strings.TrimRight(text, `\`))
	return backslashes%2 == 1
}

// Match says whether the glob matches the path, which has no slash at its ends,
// of a folder or something else.
func (p *Pattern) Match(path string, folder bool) bool {
	if p.folderOnly && !folder {
		return false
	}
	if !p.wholePath {
		return p.names[0].match(path[strings.LastIndexByte(path, '/')+1:])
	}
	return p.matchPath(path)
}

// matchPath matches name by name. When it goes wrong the last "**" takes one
// name more; an earlier one never has to, since whatever it could take the last
// one can.
func (p *Pattern) matchPath(path string) bool {
	at, rest, more := 0, path, true // the next of p.names, and of the path
	retryAt, retryRest := -1, ""
	for {
		if at < len(p.names) && p.names[at] == nil {
			at++
			retryAt, retryRest = at, rest
			continue
		}
		if more && at < len(p.names) {
			part, after, hasMore := strings.Cut(rest, "/")
			if p.names[at].match(part) {
				at, rest, more = at+1, after, hasMore
				continue
			}
		}
		if !more && at == len(p.names) {
			return true
		}
		if retryAt < 0 {
			return false
		}
		_, after, hasMore := strings.Cut(retryRest, "/")
		if !hasMore {
			return false
		}
		at, rest, more, retryRest = retryAt, after, true, after
	}
}
