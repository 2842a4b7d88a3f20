package fsapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func asError[T error](err error, target *T) bool { return errors.As(err, target) }

// list lists a folder of the user's.
func (f *fixture) list(name string, opts ListOptions) []Entry {
	f.t.Helper()
	var entries []Entry
	err := f.List(f.ctx, f.user, f.path(name), opts, func(e Entry) error {
		entries = append(entries, e)
		return nil
	})
	must(f.t, err)
	return entries
}

// paths are the entries' paths from the user's folder, sorted.
func (f *fixture) paths(entries []Entry) string {
	var paths []string
	for _, entry := range entries {
		path := strings.TrimPrefix(entry.Info.Path, f.home+"/")
		if entry.Err != nil {
			path += "!"
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return strings.Join(paths, " ")
}

// tree makes a small tree: names that end in a slash are folders, those with an
// arrow links.
func (f *fixture) tree(names ...string) {
	f.t.Helper()
	for _, name := range names {
		if link, target, ok := strings.Cut(name, "->"); ok {
			f.symlink(target, link)
		} else if dir, ok := strings.CutSuffix(name, "/"); ok {
			f.mkdir(dir)
		} else {
			f.put(name, name)
		}
	}
}

func TestListDepthHiddenFilter(t *testing.T) {
	f := newFixture(t)
	f.tree("a/", "a/b/", "a/b/c/", "a/b/c/deep.txt", "a/one.txt", ".hidden", "a/.git/", "a/.git/config", "two.txt", "link->a", "a/b/up->..", "broken->nowhere")
	for _, c := range []struct {
		opts ListOptions
		want string
	}{
		{ListOptions{}, "a broken link two.txt"},
		{ListOptions{Depth: 1, Hidden: true}, ".hidden a broken link two.txt"},
		{ListOptions{Depth: 2}, "a a/b a/one.txt broken link two.txt"},
		{ListOptions{Depth: MaxListDepth}, "a a/b a/b/c a/b/c/deep.txt a/b/up a/one.txt broken link two.txt"},
		{ListOptions{Depth: 9, Hidden: true, Include: []string{"*.txt", "config"}}, "a/.git/config a/b/c/deep.txt a/one.txt two.txt"},
		{ListOptions{Depth: 9, Include: []string{"a/*.txt"}}, "a/one.txt"},
		{ListOptions{Depth: 9, Include: []string{"nothing"}}, ""},
		{ListOptions{Depth: 9, Hidden: true, Include: []string{"**/*.txt", "a/**/config"}}, "a/.git/config a/b/c/deep.txt a/one.txt two.txt"},
		{ListOptions{Depth: 9, Include: []string{"b/"}}, "a/b"},
		{ListOptions{Depth: 9, Hidden: true, Exclude: []string{".git", "b"}}, ".hidden a a/one.txt broken link two.txt"},
		{ListOptions{Depth: 9, Exclude: []string{"a/**", "link/"}}, "a broken link two.txt"},
		{ListOptions{Depth: 9, Include: []string{"*.txt"}, Exclude: []string{"a/b"}}, "a/one.txt two.txt"},
	} {
		if got := f.paths(f.list("", c.opts)); got != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.opts, got, c.want)
		}
	}
	for _, entry := range f.list("", ListOptions{Depth: 3}) {
		switch entry.Info.Name {
		case "link":
			if entry.Info.LinkTarget != "a" || entry.Info.TargetType != TypeDirectory || entry.Info.Broken {
				t.Errorf("%+v", entry)
			}
		case "broken":
			if entry.Info.LinkTarget != "nowhere" || !entry.Info.Broken {
				t.Errorf("%+v", entry)
			}
		case "one.txt":
			if entry.Depth != 2 || entry.Info.Size != 9 || f.user != "" && entry.Info.Owner != testUser {
				t.Errorf("%+v", entry)
			}
		}
	}
}

func TestListTellsWhatIsTooDeep(t *testing.T) {
	f := newFixture(t)
	f.deepTree("deep", MaxListDepth+5)
	for depth, want := range map[int]int{MaxListDepth: 1, MaxListDepth - 1: 0} {
		entries, told := f.list("deep", ListOptions{Depth: depth}), 0
		for _, entry := range entries {
			if entry.Err != nil {
				wantErr(t, "the deepest", entry.Err, ErrTooDeep)
				told++
			}
		}
		if len(entries) != depth || told != want {
			t.Errorf("depth %d: %d entries, %d of them too deep, want %d", depth, len(entries), told, want)
		}
	}
	// What is wanted may lie there, whether the folder is wanted itself or not.
	if entries := f.list("deep", ListOptions{Depth: MaxListDepth, Include: []string{"*.txt"}}); len(entries) != 1 || entries[0].Err == nil {
		t.Errorf("with a glob: %v", entries)
	}
}

func TestListFoldersComeRightBeforeTheirEntries(t *testing.T) {
	f := newFixture(t)
	f.tree("a/", "a/1", "a/2", "b/", "b/c/", "b/c/3", "b/4", "5")
	seen := []string{}
	for _, entry := range f.list("", ListOptions{Depth: 9}) {
		parent := filepath.Dir(entry.Info.Path)
		if parent != f.home {
			for len(seen) > 0 && filepath.Dir(seen[len(seen)-1]) == parent || !strings.HasPrefix(parent+"/", seen[len(seen)-1]+"/") {
				seen = seen[:len(seen)-1]
			}
			if seen[len(seen)-1] != parent {
				t.Errorf("%s does not follow its folder", entry.Info.Path)
			}
		}
		seen = append(seen, entry.Info.Path)
	}
}

func TestListRoot(t *testing.T) {
	f := newFixture(t)
	f.tree("dir/", "dir/x", "link->dir", "file")
	if got := f.paths(f.list("link", ListOptions{})); got != "link/x" {
		t.Errorf("through a link: %s", got)
	}
	none := func(Entry) error { t.Error("an entry"); return nil }
	err := f.List(f.ctx, f.user, "link", ListOptions{NoFollowRoot: true}, none)
	wantErr(t, "link not to be followed", err, ErrNotDirectory)
	wantErr(t, "file", f.List(f.ctx, f.user, "file", ListOptions{}, none), ErrNotDirectory)
	wantErr(t, "missing", f.List(f.ctx, f.user, "missing", ListOptions{}, none), fs.ErrNotExist)
	wantInvalid(t, "depth", f.List(f.ctx, f.user, ".", ListOptions{Depth: MaxListDepth + 1}, none), "depth")
	wantInvalid(t, "depth", f.List(f.ctx, f.user, ".", ListOptions{Depth: -1}, none), "depth")
	wantInvalid(t, "glob", f.List(f.ctx, f.user, ".", ListOptions{Include: []string{"*", "[a"}}, none), "include")
	wantInvalid(t, "glob", f.List(f.ctx, f.user, ".", ListOptions{Exclude: []string{"a/../b"}}, none), "exclude")
	wantInvalid(t, "globs", f.List(f.ctx, f.user, ".", ListOptions{Exclude: make([]string, maxGlobs+1)}, none), "exclude")
	wantInvalid(t, "globs", f.List(f.ctx, f.user, ".", ListOptions{Include: slices.Repeat([]string{strings.Repeat("*a", 2000)}, 17)}, none), "include")
}

func TestListUnreadableFoldersAreEntries(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	f.tree("closed/", "closed/secret", "blind/", "blind/known", "open/", "open/x")
	must(t, os.Chown(f.path("closed"), 0, 0))
	must(t, os.Chmod(f.path("closed"), 0o700))
	must(t, os.Chmod(f.path("blind"), 0o444)) // may be read, not entered
	entries := f.list("", ListOptions{Depth: 5})
	if got, want := f.paths(entries), "blind blind/known! closed! open open/x"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, entry := range entries {
		if entry.Err != nil && !errors.Is(entry.Err, fs.ErrPermission) {
			t.Errorf("%s: %v", entry.Info.Path, entry.Err)
		}
		if entry.Info.Name == "known" && entry.Info.Type != TypeRegular {
			t.Errorf("%+v", entry)
		}
	}
	err := f.List(f.ctx, f.user, "closed", ListOptions{}, func(Entry) error { return nil })
	wantErr(t, "closed itself", err, fs.ErrPermission)
	var asRoot []Entry
	must(t, f.List(f.ctx, "root", f.path("closed"), ListOptions{}, func(e Entry) error { asRoot = append(asRoot, e); return nil }))
	if f.paths(asRoot) != "closed/secret" {
		t.Errorf("root: %s", f.paths(asRoot))
	}
}

func TestListStopsOnRequest(t *testing.T) {
	f := newFixture(t)
	for i := range 1000 {
		f.put(fmt.Sprint(i), "")
	}
	enough := errors.New("enough")
	count := 0
	err := f.List(f.ctx, f.user, ".", ListOptions{}, func(Entry) error {
		if count++; count == 10 {
			return enough
		}
		return nil
	})
	if err != enough || count != 10 {
		t.Errorf("%d entries, %v", count, err)
	}
	gone := errors.New("the client went away")
	ctx, cancel := context.WithCancelCause(f.ctx)
	count = 0
	err = f.List(ctx, f.user, ".", ListOptions{}, func(Entry) error {
		count++
		cancel(gone)
		return nil
	})
	if !errors.Is(err, gone) || count > listBatch {
		t.Errorf("%d entries, %v", count, err)
	}
}

func TestListManyEntriesInBoundedMemory(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir := f.tmpfs("1g") + "/many"
	must(t, os.Mkdir(dir, 0o755))
	const count = 200_000
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(fd)
	for i := range count {
		must(t, unix.Mknodat(fd, fmt.Sprintf("entry-with-a-longish-name-%d", i), unix.S_IFREG|0o644, 0))
	}
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	seen, peak := map[uint64]struct{}{}, uint64(0)
	live := 0
	must(t, f.List(f.ctx, f.user, dir, ListOptions{}, func(e Entry) error {
		seen[e.Info.Inode] = struct{}{}
		if live++; live%20_000 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapAlloc)
		}
		return nil
	}))
	if live != count || len(seen) != count {
		t.Errorf("%d entries, %d different, want %d", live, len(seen), count)
	}
	// What the test itself remembers is not the listing's.
	if used := int64(peak) - int64(before.HeapAlloc); used > 24<<20 {
		t.Errorf("%d bytes of memory", used)
	}
}

func TestListDeepTrees(t *testing.T) {
	f := newFixture(t)
	path := f.home
	for range 60 {
		path = filepath.Join(path, "sub")
	}
	must(t, os.MkdirAll(path, 0o755))
	if entries := f.list("", ListOptions{Depth: MaxListDepth}); len(entries) != 60 || entries[59].Depth != 60 {
		t.Errorf("%d entries", len(entries))
	}
}

// Names and links below /proc/PID tell of descriptors and mappings, so that listing
// them is reading them.
func TestGuestdsOwnProcFoldersTellNothing(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	own := fmt.Sprintf("/proc/%d", os.Getpid())
	listed := func(path string, opts ListOptions) error {
		return f.List(f.ctx, f.user, path, opts, func(e Entry) error {
			if strings.HasPrefix(e.Info.Path, own+"/") && e.Err == nil {
				t.Errorf("the listing of %s has %s", path, e.Info.Path)
			}
			return nil
		})
	}
	found := func(path string, opts SearchOptions) error {
		_, err := f.Search(f.ctx, f.user, path, opts, func(m SearchMatch) error {
			if strings.HasPrefix(m.Path, own+"/") {
				t.Errorf("the search of %s has %s", path, m.Path)
			}
			return nil
		})
		return err
	}
	f.symlink("/proc/self/fd", "planted")
	for _, path := range []string{own, own + "/fd", "/proc/self/fd", "/proc/thread-self/fdinfo", f.path("planted")} {
		wantErr(t, "list "+path, listed(path, ListOptions{}), fs.ErrPermission)
		wantErr(t, "search "+path, found(path, SearchOptions{}), fs.ErrPermission)
	}
	below := []string{filepath.Base(own), filepath.Base(own) + "/**"}
	must(t, listed("/proc", ListOptions{Depth: 2, Include: below}))
	must(t, found("/proc", SearchOptions{Include: below, Exclude: []string{"task", "net", "sys", "tty"}}))
	for _, link := range []string{"/proc/self/fd/0", own + "/exe", "/proc/thread-self/cwd"} {
		_, err := f.Stat(f.ctx, f.user, link, false)
		wantErr(t, "stat "+link, err, fs.ErrPermission)
	}
	must(t, f.List(f.ctx, "root", own+"/fd", ListOptions{}, func(Entry) error { return nil }))
}
