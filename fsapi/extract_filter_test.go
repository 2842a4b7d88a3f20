package fsapi

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// files lists the files below a folder.
func (f *fixture) files(root string) string {
	f.t.Helper()
	var list []string
	must(f.t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			list = append(list, strings.TrimPrefix(path, root+"/"))
		}
		return err
	}))
	return strings.Join(list, " ")
}

// TestExtractFilters holds Extract to leaving out what Archive does, folders on the
// way and all.
func TestExtractFilters(t *testing.T) {
	for _, c := range []struct {
		include, exclude string
		want             string
	}{
		{"", "", "a/b/y.txt a/y.go skip/deep/z.txt skip/z.txt x.go x.txt"},
		{"*.txt", "", "a/b/y.txt skip/deep/z.txt skip/z.txt x.txt"},
		{"*.txt", "skip", "a/b/y.txt x.txt"},
		{"", "skip", "a/b/y.txt a/y.go x.go x.txt"},
		{"", "skip/deep/", "a/b/y.txt a/y.go skip/z.txt x.go x.txt"},
		{"", "*.txt a", "x.go"},
		{"a/**/*.txt", "", "a/b/y.txt"},
		{"a/b", "", ""},
		{"x.*", "x.go", "x.txt"},
	} {
		f := newFixture(t)
		root := f.mkdir("tree")
		for _, dir := range []string{"a", "a/b", "skip", "skip/deep", "bare"} {
			f.mkdir("tree/" + dir)
		}
		for _, file := range []string{"x.txt", "x.go", "a/b/y.txt", "a/y.go", "skip/z.txt", "skip/deep/z.txt"} {
			f.put("tree/"+file, "x")
		}
		include, exclude := strings.Fields(c.include), strings.Fields(c.exclude)
		whole, _ := f.archive(root, ArchiveOptions{})
		result, err := f.extract(whole, ExtractOptions{Include: include, Exclude: exclude})
		if err != nil || result.FailureCount != 0 {
			t.Errorf("%+v: %+v, %v", c, result, err)
		}
		if got := f.files(f.path("out")); got != c.want {
			t.Errorf("%+v: there is %q", c, got)
		}
		chosen, _ := f.archive(root, ArchiveOptions{Include: include, Exclude: exclude})
		_, err = f.Extract(f.ctx, f.user, "again", ExtractOptions{}, strings.NewReader(string(chosen)))
		must(t, err)
		if got := f.files(f.path("again")); got != c.want {
			t.Errorf("%+v: Archive chooses %q", c, got)
		}
	}
}

func TestExtractCountsWhatItLeavesOut(t *testing.T) {
	f := newFixture(t)
	stream := craft(t, tarFile("out", strings.Repeat("x", 100_000)), tarFile("in", "x"))
	result, err := f.extract(stream, ExtractOptions{Exclude: []string{"out"}})
	if err != nil || result.Entries != 1 || result.Bytes != 1 {
		t.Errorf("%+v, %v", result, err)
	}
	_, err = f.extract(stream, ExtractOptions{Exclude: []string{"out"}, MaxBytes: ptr(uint64(1000))})
	wantErr(t, "bytes", err, ErrArchiveLimit)
	_, err = f.extract(stream, ExtractOptions{Exclude: []string{"*"}, MaxEntries: ptr(uint64(1))})
	wantErr(t, "entries", err, ErrArchiveLimit)
	_, err = f.extract(stream, ExtractOptions{Include: []string{"["}})
	wantInvalid(t, "a bad glob", err, "include")
	f.wantNames(f.path("out"), "in")
}
