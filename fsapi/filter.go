package fsapi

import (
	"strconv"

	"guestd.internal/fsapi/internal/glob"
)

// How many globs a filter takes, and of how many bytes in all: each entry of a
// tree is matched with each of them.
const (
	maxGlobs     = 1000
	maxGlobBytes = 64 << 10
)

// filter chooses entries of a tree by globs. Package glob says what a glob is.
// A nil filter takes all. It is safe for concurrent use.
type filter struct {
	include, exclude []*glob.Pattern
}

// newFilter compiles globs; an *InvalidError names "include" or "exclude".
func newFilter(include, exclude []string) (*filter, error) {
	if len(include) == 0 && len(exclude) == 0 {
		return nil, nil
	}
	f := &filter{}
	var err error
	if f.include, err = compileGlobs("include", include); err != nil {
		return nil, err
	}
	f.exclude, err = compileGlobs("exclude", exclude)
	return f, err
}

func compileGlobs(field string, texts []string) ([]*glob.Pattern, error) {
	if len(texts) > maxGlobs {
		return nil, &InvalidError{Field: field, Problem: "has more than " + strconv.Itoa(maxGlobs) + " globs"}
	}
	patterns := make([]*glob.Pattern, 0, len(texts))
	total := 0
	for _, text := range texts {
		if total += len(text); total > maxGlobBytes {
			return nil, &InvalidError{Field: field, Problem: "has more than " + strconv.Itoa(maxGlobBytes) + " bytes"}
		}
		pattern, err := glob.Compile(text)
		if err != nil {
			return nil, &InvalidError{Field: field, Problem: clipQuoted(text) + " " + err.Error()}
		}
		patterns = append(patterns, pattern)
	}
	return patterns, nil
}

// clipQuoted is text of a request as an error shows it.
func clipQuoted(text string) string {
	const limit = 200
	if len(text) <= limit {
		return strconv.QuoteToASCII(text)
	}
	return strconv.QuoteToASCII(text[:limit]) + "…"
}

// Match decides on an entry. rel is its path below the tree's root, without
// slashes at its ends; dir says that it is a folder. take says that the entry is
// wanted, enter that what is below it may be: an excluded folder is not entered,
// any other is, whether it is wanted or not.
func (f *filter) Match(rel string, dir bool) (take, enter bool) {
	if f == nil {
		return true, dir
	}
	for _, pattern := range f.exclude {
		if pattern.Match(rel, dir) {
			return false, false
		}
	}
	for _, pattern := range f.include {
		if pattern.Match(rel, dir) {
			return true, dir
		}
	}
	return len(f.include) == 0, dir
}

// wants decides on an entry that comes without the folders around it, by its path
// below the root, which itself is "." and always wanted.
func (f *filter) wants(rel string, dir bool) bool {
	if f == nil || rel == "." {
		return true
	}
	for i := range len(rel) {
		if rel[i] != '/' {
			continue
		}
		if _, enter := f.Match(rel[:i], true); !enter {
			return false
		}
	}
	take, _ := f.Match(rel, dir)
	return take
}
