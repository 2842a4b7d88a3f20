package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// plantFiles writes files below dir, by name.
func plantFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, contents := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(contents), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// found is what a search gives, a match a line: its path below the root, and the line's number, text
// and context.
func found(t *testing.T, s *Search) string {
	t.Helper()
	var b strings.Builder
	for m, err := range s.Matches() {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(&b, strings.TrimPrefix(m.Path, s.Root().Path+"/"))
		for _, line := range m.Before {
			fmt.Fprintf(&b, " <%d:%s", line.Number, line.Text)
		}
		if m.Line != nil {
			fmt.Fprintf(&b, " %d:%s", m.Line.Number, m.Line.Text)
		}
		for _, r := range m.Ranges {
			fmt.Fprintf(&b, " [%s]", m.Line.Text[r.Start:r.End])
		}
		for _, line := range m.After {
			fmt.Fprintf(&b, " >%d:%s", line.Number, line.Text)
		}
		if m.Binary {
			fmt.Fprint(&b, " binary")
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

func TestSearch(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	dir := t.TempDir()
	plantFiles(t, dir, map[string]string{
		"a.txt":      "one\ntwo\nthree\ntwo and Two\nfive\n",
		"b/c.go":     "package two\n",
		"b/skip/two": "two\n",
		".hidden":    "two\n",
		".gitignore": "c.go\n",
		"bin":        "\x00two\n",
		"odd \xff":   "nothing\n",
	})
	pattern := func(p string) *string { return &p }
	for name, c := range map[string]struct {
		search *Search
		want   string
	}{
		"names": {
			c.Search(t.Context(), dir, &SearchOptions{Include: []string{"**/c.go", "odd*", "skip"}}),
			"b/c.go\nb/skip\nodd \xff\n",
		},
		"lines": {
			c.Search(t.Context(), dir, &SearchOptions{Pattern: pattern("two"), IgnoreCase: true, SkipHidden: true, Exclude: []string{"skip"}}),
			"a.txt 2:two [two]\na.txt 4:two and Two [two] [Two]\nb/c.go 1:package two [two]\n",
		},
		"lines that do not match": {
			c.Search(t.Context(), dir, &SearchOptions{Pattern: pattern("o"), Invert: true, Include: []string{"a.txt"}}),
			"a.txt 3:three\na.txt 5:five\n",
		},
		"context": {
			c.Search(t.Context(), dir, &SearchOptions{Pattern: pattern("^two$"), Before: 1, After: 3, Include: []string{"a.txt"}}),
			"a.txt <1:one 2:two [two] >3:three >4:two and Two >5:five\n",
		},
		"gitignore, binary and a limit a file": {
			c.Search(t.Context(), dir, &SearchOptions{
				Pattern: pattern("two"), Gitignore: true, Binary: true, SkipHidden: true, MaxMatchesPerFile: 1,
			}),
			"a.txt 2:two [two]\nb/skip/two 1:two [two]\nbin binary\n",
		},
		"a limit": {
			c.Search(t.Context(), dir, &SearchOptions{Pattern: pattern("two"), MaxMatches: 1}),
			".hidden 1:two [two]\n",
		},
		"large files": {
			c.Search(t.Context(), dir, &SearchOptions{Pattern: pattern("two"), Include: []string{"*.txt"}, MaxFileBytes: new(uint64)}),
			"",
		},
		"one file": {c.Search(t.Context(), dir+"/a.txt", &SearchOptions{Pattern: pattern("five")}), dir + "/a.txt 5:five [five]\n"},
	} {
		if got := found(t, c.search); got != c.want {
			t.Errorf("%s: found\n%s want\n%s", name, got, c.want)
		}
		if s := c.search.Summary(); s == nil || s.Matches != uint64(strings.Count(c.want, "\n")) || s.LimitReached != (name == "a limit") || s.FailureCount != 0 {
			t.Errorf("%s: it came to %+v", name, s)
		}
	}
	for range c.Search(t.Context(), dir, nil).Matches() {
		break // must not leave a goroutine
	}
}

func TestSearchErrors(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	dir := t.TempDir()
	bad := "("
	cancelled, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	for name, c := range map[string]struct {
		search *Search
		want   error
	}{
		"nothing there":    {c.Search(t.Context(), dir+"/nothing", nil), fs.ErrNotExist},
		"a bad expression": {c.Search(t.Context(), dir, &SearchOptions{Pattern: &bad}), ErrInvalid},
		"a bad glob":       {c.Search(t.Context(), dir, &SearchOptions{Include: []string{"["}}), ErrInvalid},
		"too much context": {c.Search(t.Context(), dir, &SearchOptions{Before: 101}), ErrInvalid},
		"an unknown user":  {c.Search(t.Context(), dir, &SearchOptions{User: "no-such-user"}), ErrUserNotFound},
		"a user no text":   {c.Search(t.Context(), dir, &SearchOptions{User: "\xff"}), ErrInvalid},
		"no time":          {c.Search(cancelled, dir, nil), why},
	} {
		count := 0
		for m, err := range c.search.Matches() {
			if count++; m != nil || !errors.Is(err, c.want) {
				t.Errorf("%s: got %v and %v, want %v", name, m, err, c.want)
			}
		}
		if count != 1 || c.search.Summary() != nil {
			t.Errorf("%s: %d answers, and the summary %v", name, count, c.search.Summary())
		}
	}
}

func TestGuestdThatBreaksASearch(t *testing.T) {
	header := &guestdv1.SearchResponse{Event: &guestdv1.SearchResponse_Header{
		Header: &guestdv1.SearchHeader{Root: &guestdv1.FileInfo{Path: []byte("/x")}},
	}}
	match := &guestdv1.SearchResponse{Event: &guestdv1.SearchResponse_Match{Match: &guestdv1.SearchMatch{
		Path: []byte("/x/y"), Line: &guestdv1.SearchLine{Number: 1, Text: []byte("text")},
		Ranges: []*guestdv1.ByteRange{{Start: 1, End: 2}, {Start: 1, End: 3}, {Start: 3, End: 3}, {Start: 3, End: 9}, {Start: 1 << 31, End: 3}, {Start: 3, End: 4}},
	}}}
	summary := &guestdv1.SearchResponse{Event: &guestdv1.SearchResponse_Summary{Summary: &guestdv1.SearchSummary{
		Matches: 1, FailureCount: 7, Failures: []*guestdv1.FileFailure{{Path: []byte("/x/\xff"), Errno: "EACCES", Message: "no"}},
	}}}
	var events []*guestdv1.SearchResponse
	c, _ := serveFake(t, &fakeGuestd{search: func(_ *guestdv1.SearchRequest, s guestdv1.FileService_SearchServer) error {
		for _, event := range events {
			if err := s.Send(event); err != nil {
				return err
			}
		}
		return nil
	}})
	search := c.Search(t.Context(), "/x", nil)
	run := func(answers ...*guestdv1.SearchResponse) (matches []*SearchMatch, err error) {
		events = answers
		for m, failure := range search.Matches() {
			if failure != nil {
				err = failure
				continue
			}
			matches = append(matches, m)
		}
		return matches, err
	}
	matches, err := run(header, &guestdv1.SearchResponse{}, match, summary)
	if err != nil || len(matches) != 1 || !reflect.DeepEqual(matches[0].Ranges, []SearchRange{{1, 2}, {3, 4}}) {
		t.Errorf("got %+v, %v", matches, err)
	}
	s := search.Summary()
	if s == nil || s.FailureCount != 7 || len(s.Failures) != 1 || !errors.Is(s.Failures[0], fs.ErrPermission) {
		t.Fatalf("it came to %+v", s)
	}
	if e, is := errors.AsType[*Error](s.Failures[0]); !is || e.Path != "/x/\xff" {
		t.Errorf("the failure is %#v", s.Failures[0])
	}
	if matches, err := run(header, match); len(matches) != 1 || !errors.Is(err, errNoSearchSummary) || search.Summary() != nil {
		t.Errorf("without a summary: %v, %v", matches, err)
	}
	if matches, err := run(match); len(matches) != 0 || err == nil || !strings.Contains(err.Error(), "instead of a header") {
		t.Errorf("without a header: %v, %v", matches, err)
	}
}
