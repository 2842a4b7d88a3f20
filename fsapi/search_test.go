package fsapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"guestd.internal/fsapi/internal/gitignore"

	"guestd.internal/internal/account"
)

// search searches below the user's folder.
func (f *fixture) search(name string, opts SearchOptions) ([]SearchMatch, SearchSummary) {
	f.t.Helper()
	var matches []SearchMatch
	summary, err := f.Search(f.ctx, f.user, f.home+"/"+name, opts, func(m SearchMatch) error {
		matches = append(matches, m)
		return nil
	})
	must(f.t, err)
	if summary.Matches != uint64(len(matches)) {
		f.t.Errorf("%d matches, the summary says %+v", len(matches), summary)
	}
	return matches, summary
}

// show is one line of text for each match, as grep -n shows it.
func (f *fixture) show(matches []SearchMatch) string {
	var b strings.Builder
	for _, m := range matches {
		path := strings.TrimPrefix(m.Path, f.home+"/")
		for _, line := range m.Before {
			fmt.Fprintf(&b, "%s-%d-%s\n", path, line.Number, line.Text)
		}
		switch {
		case m.Line != nil:
			fmt.Fprintf(&b, "%s:%d:%s\n", path, m.Line.Number, m.Line.Text)
		case m.Binary:
			fmt.Fprintf(&b, "%s binary\n", path)
		default:
			fmt.Fprintf(&b, "%s %v\n", path, m.Type)
		}
		for _, line := range m.After {
			fmt.Fprintf(&b, "%s-%d-%s\n", path, line.Number, line.Text)
		}
	}
	return b.String()
}

func (f *fixture) wantSearch(what string, opts SearchOptions, want string) SearchSummary {
	f.t.Helper()
	matches, summary := f.search("", opts)
	if got := f.show(matches); got != want {
		f.t.Errorf("%s:\n%swant\n%s", what, got, want)
	}
	return summary
}

func TestSearchNames(t *testing.T) {
	f := newFixture(t)
	f.tree("b.go", "a.txt", "sub/", "sub/c.go", "sub/deep/", "sub/deep/d.go", ".hidden/", ".hidden/e.go", "link->sub")
	summary := f.wantSearch("all", SearchOptions{}, ".hidden directory\n.hidden/e.go regular\na.txt regular\nb.go regular\nlink symlink\nsub directory\nsub/c.go regular\nsub/deep directory\nsub/deep/d.go regular\n")
	if summary.Files != 9 || summary.LimitReached || summary.FailureCount != 0 {
		t.Errorf("%+v", summary)
	}
	f.wantSearch("globs", SearchOptions{Include: []string{"*.go"}, Exclude: []string{"sub/deep"}, SkipHidden: true}, "b.go regular\nsub/c.go regular\n")
	f.wantSearch("levels", SearchOptions{Include: []string{"**/deep/**"}}, "sub/deep/d.go regular\n")
	summary = f.wantSearch("a limit", SearchOptions{Include: []string{"*.go"}, MaxMatches: 2}, ".hidden/e.go regular\nb.go regular\n")
	if !summary.LimitReached {
		t.Errorf("%+v", summary)
	}
	matches, _ := f.search("a.txt", SearchOptions{Include: []string{"other"}})
	if got := f.show(matches); got != "a.txt regular\n" {
		t.Errorf("one file: %s", got)
	}
	matches, _ = f.search("sub//./", SearchOptions{Include: []string{"c.go"}})
	if got := f.show(matches); got != "sub/c.go regular\n" {
		t.Errorf("an untidy path: %s", got)
	}
}

func TestSearchContents(t *testing.T) {
	f := newFixture(t)
	f.tree("sub/", "link->a.txt")
	f.put("a.txt", "one\ntwo two\r\nthree\n\nlast two")
	f.put("sub/b.txt", "TWO\n\xfftwo\xff\n")
	f.put("empty", "")
	must(t, syscall.Mkfifo(f.path("fifo"), 0o666))
	f.wantSearch("plain", SearchOptions{Pattern: ptr("two")}, "a.txt:2:two two\na.txt:5:last two\nsub/b.txt:2:\xfftwo\xff\n")
	f.wantSearch("any case, literally", SearchOptions{Pattern: ptr("tHREe"), IgnoreCase: true}, "a.txt:3:three\n")
	f.wantSearch("any case", SearchOptions{Pattern: ptr("TW[OP]"), IgnoreCase: true}, "a.txt:2:two two\na.txt:5:last two\nsub/b.txt:1:TWO\nsub/b.txt:2:\xfftwo\xff\n")
	f.wantSearch("line ends", SearchOptions{Pattern: ptr("^t.*(two|ree)$")}, "a.txt:2:two two\na.txt:3:three\n")
	f.wantSearch("text ends", SearchOptions{Pattern: ptr(`\Aone\z|^$`)}, "a.txt:1:one\na.txt:4:\n")
	f.wantSearch("nothing", SearchOptions{Pattern: ptr("tw+p")}, "")
	f.wantSearch("globs", SearchOptions{Pattern: ptr("two"), Include: []string{"b.*"}}, "sub/b.txt:2:\xfftwo\xff\n")
	f.wantSearch("large files", SearchOptions{Pattern: ptr("two"), MaxFileBytes: ptr[uint64](10)}, "sub/b.txt:2:\xfftwo\xff\n")
	summary := f.wantSearch("per file", SearchOptions{Pattern: ptr("."), MaxMatchesPerFile: 1}, "a.txt:1:one\nsub/b.txt:1:TWO\n")
	if summary.Files != 3 || summary.LimitReached {
		t.Errorf("%+v", summary)
	}
	summary = f.wantSearch("in all", SearchOptions{Pattern: ptr("."), MaxMatches: 5}, "a.txt:1:one\na.txt:2:two two\na.txt:3:three\na.txt:5:last two\nsub/b.txt:1:TWO\n")
	if !summary.LimitReached {
		t.Errorf("%+v", summary)
	}
	matches, _ := f.search("link", SearchOptions{Pattern: ptr("(t)(wo)")})
	if len(matches) != 2 || fmt.Sprint(matches[0].Ranges) != "[{0 3} {4 7}]" {
		t.Errorf("%+v", matches)
	}
	if matches, _ := f.search("a.txt", SearchOptions{Pattern: ptr("x*")}); len(matches) != 5 || len(matches[0].Ranges) != 0 {
		t.Errorf("empty matches: %+v", matches)
	}
}

func TestSearchContext(t *testing.T) {
	f := newFixture(t)
	f.put("f", "1\n2\n3 x\n4\n5\n6 x\n7 x\n8\n9\n10\n11\n12 x")
	for _, c := range []struct {
		before, after int
		want          string
	}{
		{1, 0, "f-2-2\nf:3:3 x\nf-5-5\nf:6:6 x\nf:7:7 x\nf-11-11\nf:12:12 x\n"},
		{0, 1, "f:3:3 x\nf-4-4\nf:6:6 x\nf:7:7 x\nf-8-8\nf:12:12 x\n"},
		{2, 2, "f-1-1\nf-2-2\nf:3:3 x\nf-4-4\nf-5-5\nf:6:6 x\nf:7:7 x\nf-8-8\nf-9-9\nf-10-10\nf-11-11\nf:12:12 x\n"},
		{100, 100, "f-1-1\nf-2-2\nf:3:3 x\nf-4-4\nf-5-5\nf:6:6 x\nf:7:7 x\nf-8-8\nf-9-9\nf-10-10\nf-11-11\nf:12:12 x\n"},
	} {
		f.wantSearch(fmt.Sprint(c.before, c.after), SearchOptions{Pattern: ptr("x"), Before: c.before, After: c.after}, c.want)
	}
	f.wantSearch("a limit", SearchOptions{Pattern: ptr("x"), Before: 1, After: 2, MaxMatches: 2}, "f-2-2\nf:3:3 x\nf-4-4\nf-5-5\nf:6:6 x\nf-7-7 x\nf-8-8\n")
}

func TestSearchBinaryFiles(t *testing.T) {
	f := newFixture(t)
	f.put("binary", "needle\nneedle\x00")
	f.put("late", strings.Repeat("x", binaryProbe)+"\x00\nneedle\n")
	f.put("text", "needle")
	f.wantSearch("without", SearchOptions{Pattern: ptr("needle")}, "late:2:needle\ntext:1:needle\n")
	f.wantSearch("with", SearchOptions{Pattern: ptr("needle"), Binary: true, After: 1}, "binary binary\nlate:2:needle\ntext:1:needle\n")
	f.wantSearch("no match", SearchOptions{Pattern: ptr("thread"), Binary: true}, "")
}

func TestSearchLongLines(t *testing.T) {
	f := newFixture(t)
	f.put("f", strings.Repeat("a", maxLineText-3)+"needle\n"+ // across the cut
		strings.Repeat("b", 500_000)+"needle\n"+ // behind it
		strings.Repeat("c", 3*maxMatchedLine)+"needle\n"+ // behind what is in memory
		strings.Repeat("d", maxMatchedLine-6)+"needle\n"+
		"needle\n")
	matches, _ := f.search("f", SearchOptions{Pattern: ptr("needle"), Before: 2, After: 2})
	var got []string
	for _, m := range matches {
		got = append(got, fmt.Sprint(m.Line.Number, len(m.Line.Text), m.Line.Truncated, m.Ranges))
		for _, line := range append(m.Before, m.After...) {
			if len(line.Text) > maxLineText || !line.Truncated {
				t.Errorf("context: %d bytes, truncated %v", len(line.Text), line.Truncated)
			}
		}
	}
	want := "1 65536 true [{65533 65536}], 2 65536 true [], 3 65536 true [], 4 65536 true [], 5 6 false [{0 6}]"
	if strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
	// Much context is cut more, so that a match stays below 1 MiB.
	f.put("g", strings.Repeat(strings.Repeat("y", maxLineText)+"\n", 100)+"needle\n"+strings.Repeat(strings.Repeat("y", maxLineText)+"\n", 100))
	matches, _ = f.search("g", SearchOptions{Pattern: ptr("needle"), Before: 100, After: 100})
	total := 0
	for _, line := range append(matches[0].Before, matches[0].After...) {
		total += len(line.Text)
	}
	if len(matches) != 1 || len(matches[0].Before) != 100 || len(matches[0].After) != 100 || total > maxContextText || total < maxContextText*9/10 {
		t.Errorf("%d matches, %d bytes of context", len(matches), total)
	}
}

func TestSearchGitignore(t *testing.T) {
	f := newFixture(t)
	f.tree("repo/", "repo/.git/", "repo/.git/HEAD", "repo/a.log", "repo/keep.log", "repo/build/", "repo/build/x", "repo/src/", "repo/src/a.log",
		"repo/src/only", "repo/src/more/", "repo/src/more/only", "repo/src/more/b.log", "repo/src/gen/", "repo/src/gen/y")
	f.put("repo/.gitignore", "*.log\n!keep.log\n/build\n/src/gen/\n")
	f.put("repo/src/.gitignore", "/only\n!a.log\n")
	f.put(".gitignore", "*\n") // above the work tree
	all := SearchOptions{Gitignore: true, Include: []string{"[!.]*"}}
	want := "repo/keep.log regular\nrepo/src directory\nrepo/src/a.log regular\nrepo/src/more directory\nrepo/src/more/only regular\n"
	for _, c := range []struct{ root, want string }{
		{"repo", want},
		{"repo/src", "repo/src/a.log regular\nrepo/src/more directory\nrepo/src/more/only regular\n"},
		{"repo/src/more", "repo/src/more/only regular\n"},
		{"repo/build", "repo/build/x regular\n"}, // what is named is searched
	} {
		matches, summary := f.search(c.root, all)
		if got := f.show(matches); got != c.want || summary.FailureCount != 0 {
			t.Errorf("%s: %+v\n%swant\n%s", c.root, summary, got, c.want)
		}
	}
	// Without a work tree, folders above do not count.
	must(t, os.RemoveAll(f.path("repo/.git")))
	if matches, _ := f.search("repo/src", all); len(matches) != 6 {
		t.Errorf("%s", f.show(matches))
	}
	// A link, FIFO or folder of that name says nothing, and hangs nobody.
	must(t, os.Remove(f.path("repo/src/.gitignore")))
	f.symlink("../.gitignore", "repo/src/.gitignore")
	must(t, syscall.Mkfifo(f.path("repo/src/more/.gitignore"), 0o666))
	f.mkdir("repo/src/gen/.gitignore")
	if matches, summary := f.search("repo/src", all); len(matches) != 7 || summary.FailureCount != 0 {
		t.Errorf("%+v\n%s", summary, f.show(matches))
	}
}

func TestSearchTellsFailuresAndGoesOn(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	f.tree("closed/", "closed/x", "secret", "z")
	must(t, os.Chmod(f.path("closed"), 0))
	must(t, os.Chmod(f.path("secret"), 0))
	summary := f.wantSearch("contents", SearchOptions{Pattern: ptr("z")}, "z:1:z\n")
	if summary.FailureCount != 2 || len(summary.Failures) != 2 || summary.Failures[0].Path != f.path("closed") || summary.Failures[1].Path != f.path("secret") {
		t.Errorf("%+v", summary)
	}
	for _, failure := range summary.Failures {
		wantErr(t, failure.Path, failure.Err, fs.ErrPermission)
	}
	must(t, os.Remove(f.path("secret")))
	for i := range 120 {
		f.put(fmt.Sprint("s", i), "")
		must(t, os.Chmod(f.path(fmt.Sprint("s", i)), 0))
	}
	if summary := f.wantSearch("many", SearchOptions{Pattern: ptr("z")}, "z:1:z\n"); summary.FailureCount != 121 || len(summary.Failures) != maxSearchFailures {
		t.Errorf("%d, %d", summary.FailureCount, len(summary.Failures))
	}
}

func TestSearchNeedsTheUsersRights(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir, file := secret(t)
	f.symlink(file, "to-file")
	f.symlink(dir, "to-dir")
	must(t, os.Link(file, f.path("hard")))
	f.wantSearch("links", SearchOptions{Pattern: ptr("secret")}, "")
	for _, path := range []string{file, filepath.Join(dir, "closed"), f.path("to-file")} {
		_, err := f.Search(f.ctx, f.user, path, SearchOptions{Pattern: ptr("secret")}, func(SearchMatch) error { return nil })
		wantErr(t, path, err, fs.ErrPermission)
	}
	_, err := f.Search(f.ctx, f.user, "/proc/self/environ", SearchOptions{Pattern: ptr("PATH")}, func(SearchMatch) error { return nil })
	wantErr(t, "guestd's own", err, fs.ErrPermission)
	_, err = f.Search(f.ctx, f.user, "/proc/self/cwd", SearchOptions{}, func(SearchMatch) error { return nil })
	wantErr(t, "a magic link", err, ErrLoop)
	summary, err := f.Search(f.ctx, "root", dir, SearchOptions{Pattern: ptr("secret")}, func(SearchMatch) error { return nil })
	if err != nil || summary.Matches != 2 {
		t.Errorf("as root: %+v, %v", summary, err)
	}
}

func TestSearchRefusals(t *testing.T) {
	f := newFixture(t)
	f.tree("file")
	must(t, syscall.Mkfifo(f.path("fifo"), 0o666))
	search := func(path string, opts SearchOptions) error {
		_, err := f.Search(f.ctx, f.user, path, opts, func(SearchMatch) error { return nil })
		return err
	}
	wantErr(t, "missing", search("missing", SearchOptions{}), fs.ErrNotExist)
	wantErr(t, "a FIFO", search("fifo", SearchOptions{Pattern: ptr("x")}), ErrNotSupportedType)
	wantErr(t, "below a file", search("file/x", SearchOptions{}), ErrNotDirectory)
	wantInvalid(t, "before", search(".", SearchOptions{Before: 101}), "before_lines")
	wantInvalid(t, "after", search(".", SearchOptions{After: -1}), "after_lines")
	wantInvalid(t, "glob", search(".", SearchOptions{Include: []string{"["}}), "include")
	for _, pattern := range []string{"(", "a)|(b", "a{1001}", `\8`, strings.Repeat("a", maxPattern+1)} {
		wantInvalid(t, pattern, search(".", SearchOptions{Pattern: ptr(pattern), IgnoreCase: true}), "pattern")
	}
}

func TestSearchEndsAtOnce(t *testing.T) {
	f := newFixture(t)
	for i := range 300 {
		f.put(fmt.Sprint(i), "x\n")
	}
	gone := errors.New("the client went away")
	ctx, cancel := context.WithCancelCause(f.ctx)
	calls := 0
	_, err := f.Search(ctx, f.user, ".", SearchOptions{Pattern: ptr("x")}, func(SearchMatch) error {
		if calls++; calls == 5 {
			cancel(gone)
		}
		return nil
	})
	wantErr(t, "cancelled", err, gone)
	if calls != 5 {
		t.Errorf("%d calls", calls)
	}
	calls = 0
	for _, opts := range []SearchOptions{{Pattern: ptr("x"), After: 3}, {}} {
		_, err = f.Search(f.ctx, f.user, ".", opts, func(SearchMatch) error { calls++; return gone })
		if !errors.Is(err, gone) {
			t.Errorf("fn's error: %v", err)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls after an error", calls)
	}
	// In the middle of a file without lines.
	file, err := os.Create(f.path("big"))
	must(t, err)
	must(t, file.Truncate(1<<40))
	defer file.Close()
	ctx, cancel = context.WithCancelCause(f.ctx)
	var lines lineReader
	reads := 0
	read := readDescriptor(ctx, account.Account{UID: uint32(os.Geteuid())}, int(file.Fd()))
	lines.reset(100, func(p []byte) (int, error) {
		if reads++; reads == 3 {
			cancel(gone)
		}
		return read(p)
	})
	_, _, err = lines.next()
	must(t, err)
	_, _, err = lines.next()
	wantErr(t, "in a file", err, gone)
}

func TestSearchDepthIsBounded(t *testing.T) {
	f := newFixture(t)
	f.deepTree("deep", MaxListDepth+5)
	_, summary := f.search("deep", SearchOptions{})
	if summary.FailureCount != 1 || !errors.Is(summary.Failures[0].Err, ErrTooDeep) {
		t.Errorf("%+v", summary)
	}
}

// deepTree makes folders in each other, whatever their path's length.
func (f *fixture) deepTree(name string, levels int) {
	f.t.Helper()
	at, err := unix.Open(f.mkdir(name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(f.t, err)
	for range levels {
		must(f.t, unix.Mkdirat(at, "d", 0o777))
		next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(f.t, err)
		unix.Close(at)
		at = next
	}
	unix.Close(at)
}

func TestSearchManyEntriesInFlatMemory(t *testing.T) {
	f := newFixture(t)
	for i := range 10_000 {
		must(t, os.WriteFile(f.path(fmt.Sprintf("%05d", i)), []byte("x\n"), 0o644))
	}
	big, err := os.Create(f.path("big"))
	must(t, err)
	must(t, big.Truncate(300<<20)) // one line of NULs
	must(t, big.Close())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	summary, err := f.Search(f.ctx, f.user, ".", SearchOptions{Pattern: ptr("x|y"), Binary: true}, func(SearchMatch) error { return nil })
	runtime.ReadMemStats(&after)
	if err != nil || summary.Matches != 10_000 || summary.Files != 10_001 {
		t.Errorf("%+v, %v", summary, err)
	}
	if after.HeapSys > before.HeapSys+32<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before.HeapSys, after.HeapSys)
	}
}

func TestRequiredLiteral(t *testing.T) {
	for pattern, want := range map[string]string{
		"abc": "abc", "a.*bcd": "bcd", "(abc)+x": "abc", "(?:ab){2,}": "ab", "a|b": "", "abc?": "ab", "x*": "", "^foo$": "foo",
		"foo(bar|baz)": "foo", "\uFFFD": "", "[a]bc": "abc", "": "", "(?:ab)?": "", "(?:ab){0,5}": "",
		"(?i)ABc": "abc", "(?i)okay": "ay", "(?i)sk": "", "(?i)éabÉ": "ab", "a(?i)bcd": "bcd",
	} {
		p, err := compilePattern(pattern, false)
		must(t, err)
		if got := string(p.literal.text); got != want {
			t.Errorf("%q requires %q, want %q", pattern, got, want)
		}
	}
}

// Whoever plants .gitignore files chooses how many, and how large.
func TestSearchGitignoreInBoundedMemory(t *testing.T) {
	f := newFixture(t)
	const levels = 30
	text := strings.Repeat("x\n", gitignore.MaxBytes/2)
	dir := "tree"
	for range levels {
		f.mkdir(dir)
		f.put(dir+"/.gitignore", text)
		dir += "/d"
	}
	deepest := strings.TrimSuffix(dir, "/d")
	f.put(deepest+"/file", "")
	held := func() int {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int(stats.HeapAlloc)
	}
	before, grown := held(), 0
	summary, err := f.Search(f.ctx, f.user, f.path("tree"), SearchOptions{Gitignore: true, Include: []string{"file"}}, func(SearchMatch) error {
		grown = held() - before
		return nil
	})
	must(t, err)
	if summary.Matches != 1 || grown > 64<<20 {
		t.Errorf("%d matches, and %d MiB held in the deepest folder", summary.Matches, grown>>20)
	}
	const count = maxIgnoreBytes / gitignore.MaxBytes
	if summary.FailureCount != levels-count {
		t.Fatalf("%d failures, want one for each file but the %d first", summary.FailureCount, count)
	}
	wantErr(t, "what is too much", summary.Failures[0].Err, ErrIgnoreLimit)
}
