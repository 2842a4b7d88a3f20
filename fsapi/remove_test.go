package fsapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRemove(t *testing.T) {
	f := newFixture(t)
	f.tree("file", "empty/", "full/", "full/x", "link->full", "broken->nowhere")
	remove := func(path string, opts RemoveOptions) error { return f.remove(f.user, path, opts) }
	wantErr(t, "full folder", remove("full", RemoveOptions{}), ErrNotEmpty)
	wantErr(t, "missing", remove("missing", RemoveOptions{}), fs.ErrNotExist)
	wantErr(t, "missing, recursive", remove("missing", RemoveOptions{Recursive: true}), fs.ErrNotExist)
	wantErr(t, "file with a slash", remove("file/", RemoveOptions{}), ErrNotDirectory)
	wantErr(t, "link with a slash", remove("link/", RemoveOptions{Recursive: true}), ErrNotDirectory)
	must(t, remove("missing", RemoveOptions{IgnoreMissing: true}))
	must(t, remove("no/such/folder", RemoveOptions{IgnoreMissing: true}))
	for _, path := range []string{"file", "empty/", "broken"} {
		must(t, remove(path, RemoveOptions{}))
	}
	must(t, remove("link", RemoveOptions{Recursive: true}))
	f.wantContent(f.path("full/x"), "full/x")
	must(t, remove("full", RemoveOptions{Recursive: true}))
	f.wantNames(f.home)
	for _, path := range []string{"", "/", "//", ".", "..", "/..", "dir/.", "dir/..", "/tmp/../"} {
		wantInvalid(t, path, remove(path, RemoveOptions{Recursive: true}), "path")
	}
}

func TestRemoveCounts(t *testing.T) {
	f := newFixture(t)
	f.tree("file", "empty/", "tree/", "tree/a/", "tree/a/x", "tree/a/y", "tree/link->a", "tree/closed/", "tree/closed/kept")
	must(t, os.Chmod(f.path("tree/closed"), 0o555))
	for _, c := range []struct {
		path string
		opts RemoveOptions
		want uint64
		err  error
	}{
		{"file", RemoveOptions{}, 1, nil},
		{"empty", RemoveOptions{}, 1, nil},
		{"nothing", RemoveOptions{IgnoreMissing: true}, 0, nil},
		{"tree", RemoveOptions{}, 0, ErrNotEmpty},
		{"tree/a", RemoveOptions{Recursive: true}, 3, nil},
		{"tree", RemoveOptions{Recursive: true}, 1, fs.ErrPermission}, // the link
	} {
		got, err := f.Remove(f.ctx, f.user, c.path, c.opts)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %d removed, %v; want %d, %v", c.path, got, err, c.want, c.err)
		}
	}
	must(t, os.Chmod(f.path("tree/closed"), 0o755))
	if got, err := f.Remove(f.ctx, f.user, "tree", RemoveOptions{Recursive: true}); got != 3 || err != nil {
		t.Errorf("%d removed, %v", got, err)
	}
}

func TestRemoveTreeNeverFollowsLinks(t *testing.T) {
	f := newFixture(t)
	f.tree("keep/", "keep/file", "tree/", "tree/a/", "tree/a/up->../..", "tree/keep->../keep", "tree/file->../keep/file", "tree/a/.hidden")
	must(t, f.remove(f.user, "tree", RemoveOptions{Recursive: true}))
	f.wantNames(f.home, "keep")
	f.wantContent(f.path("keep/file"), "keep/file")
}

func TestRemoveWideAndDeepTrees(t *testing.T) {
	f := newFixture(t)
	for i := range 30 {
		f.mkdir(fmt.Sprintf("tree%d", i))
	}
	dir := f.mkdir("tree")
	for i := range 3000 {
		if i%10 == 0 {
			f.mkdir(fmt.Sprintf("tree/d%d", i))
			f.put(fmt.Sprintf("tree/d%d/x", i), "")
		}
		f.put(fmt.Sprintf("tree/%d", i), "")
	}
	// Deeper than any path can be long, and than descriptors would last.
	fd, err := unix.Open(dir, unix.O_RDONLY, 0)
	must(t, err)
	for range 3000 {
		must(t, unix.Mkdirat(fd, "deep", 0o777))
		next, err := unix.Openat(fd, "deep", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		unix.Close(fd)
		if fd = next; os.Geteuid() == 0 {
			must(t, unix.Fchown(fd, testUID, testUID))
		}
	}
	unix.Close(fd)
	before := openDescriptors()
	must(t, f.remove(f.user, "tree", RemoveOptions{Recursive: true}))
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the tree is still there: %v", err)
	}
	if after := openDescriptors(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestRemoveGoesOnAfterAFailure(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	f.tree("tree/", "tree/a/", "tree/a/x", "tree/locked/", "tree/locked/kept", "tree/z/", "tree/z/y/", "tree/z/y/w", "tree/unread/")
	must(t, os.Chown(f.path("tree/locked"), 0, 0))
	must(t, os.Chmod(f.path("tree/unread"), 0)) // empty: can go all the same
	err := f.remove(f.user, "tree", RemoveOptions{Recursive: true})
	wantErr(t, "locked", err, fs.ErrPermission)
	var where *PathError
	if !asError(err, &where) || where.Path != "tree/locked/kept" {
		t.Errorf("the error does not say where: %v", err)
	}
	f.wantNames(f.path("tree"), "locked")
	must(t, f.remove("root", f.path("tree"), RemoveOptions{Recursive: true}))
}

func TestRemoveEndsWithItsContext(t *testing.T) {
	f := newFixture(t)
	f.tree("tree/", "tree/x")
	gone := errors.New("the client went away")
	ctx, cancel := context.WithCancelCause(f.ctx)
	cancel(gone)
	_, err := f.Remove(ctx, f.user, "tree", RemoveOptions{Recursive: true})
	wantErr(t, "cancelled", err, gone)
	f.wantContent(f.path("tree/x"), "tree/x")
}

// TestRemoveRace swaps folders of the tree with links to a folder of the
// user's outside of it, and moves them away, while it is being removed.
func TestRemoveRace(t *testing.T) {
	f := newFixture(t)
	f.mkdir("outside")
	for i := range 50 {
		f.put(fmt.Sprintf("outside/%d", i), "kept")
	}
	for range 60 {
		f.tree("tree/", "tree/a/", "tree/a/b/", "tree/a/b/c/", "tree/a/b/c/x", "tree/a/b/y", "tree/a/z")
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			a, b := f.path("tree/a"), f.path("moved")
			for {
				select {
				case <-stop:
					return
				default:
				}
				if os.Rename(a, b) == nil {
					os.Symlink(f.path("outside"), a)
					os.Remove(a)
					os.Rename(b, a)
				}
			}
		})
		// It may fail, since what it removes moves; it must not go outside.
		f.remove(f.user, "tree", RemoveOptions{Recursive: true})
		close(stop)
		wg.Wait()
		if entries, err := os.ReadDir(f.path("outside")); err != nil || len(entries) != 50 {
			t.Fatalf("%d files are left outside, %v", len(entries), err)
		}
		must(t, os.RemoveAll(f.path("tree")))
		must(t, os.RemoveAll(f.path("moved")))
	}
}

func TestMakeDir(t *testing.T) {
	f := newFixture(t)
	for i, want := range []bool{true, false} {
		if _, created, err := f.MakeDir(f.ctx, f.user, "twice", nil, true); created != want || err != nil {
			t.Errorf("call %d: created %v, %v", i, created, err)
		}
	}
	info, err := f.makeDir(f.user, "dir", nil, false)
	if err != nil || info.Mode != 0o755 || info.Type != TypeDirectory || info.Path != f.path("dir") || f.user != "" && info.Owner != testUser {
		t.Errorf("%+v, %v", info, err)
	}
	_, err = f.makeDir(f.user, "dir", nil, false)
	wantErr(t, "again", err, fs.ErrExist)
	_, err = f.makeDir(f.user, "a/b/c", nil, false)
	wantErr(t, "no parents", err, fs.ErrNotExist)
	info, err = f.makeDir(f.user, "a/b/c/", ptr[uint32](0o1700), true)
	if err != nil || info.Mode != 0o1700 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, _, mode := f.owner(f.path("a/b")); mode.Perm() != 0o755 {
		t.Errorf("a parent has mode %v", mode)
	}
	info, err = f.makeDir(f.user, "a/b/c", ptr[uint32](0o755), true)
	if err != nil || info.Mode != 0o1700 {
		t.Errorf("one that was there changed: %+v, %v", info, err)
	}
	info, err = f.makeDir(f.user, "gid", ptr[uint32](0o2775), false)
	if err != nil || info.Mode != 0o2775 {
		t.Errorf("%+v, %v", info, err)
	}
	for _, path := range []string{"/", ".", ".."} {
		_, err = f.makeDir(f.user, path, nil, false)
		wantErr(t, path, err, fs.ErrExist)
		_, err = f.makeDir(f.user, path, nil, true)
		must(t, err)
	}
	f.tree("file", "link->a", "broken->nowhere")
	_, err = f.makeDir(f.user, "file", nil, true)
	wantErr(t, "file", err, ErrNotDirectory)
	_, err = f.makeDir(f.user, "file/sub", nil, true)
	wantErr(t, "below a file", err, ErrNotDirectory)
	_, err = f.makeDir(f.user, "link", nil, true)
	must(t, err)
	_, err = f.makeDir(f.user, "broken/sub", nil, true)
	wantErr(t, "below a broken link", err, fs.ErrNotExist)
	_, err = f.makeDir(f.user, "x", ptr[uint32](0o100000), false)
	wantInvalid(t, "mode", err, "mode")
	_, err = f.makeDir(f.user, strings.Repeat("long", 100), nil, true)
	wantErr(t, "long name", err, ErrNameTooLong)
	if _, err := os.Lstat(filepath.Join(f.home, "x")); err == nil {
		t.Error("a folder was made for a refused request")
	}
}
