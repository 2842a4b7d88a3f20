package fsapi

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func (f *fixture) move(src, dst string, opts MoveOptions) error {
	_, err := f.Move(f.ctx, f.user, src, dst, opts)
	return err
}

func TestMove(t *testing.T) {
	f := newFixture(t)
	f.tree("file", "other", "dir/", "dir/x", "empty/", "full/", "full/y", "link->nowhere")
	wantErr(t, "missing", f.move("missing", "x", MoveOptions{}), fs.ErrNotExist)
	wantErr(t, "no such folder", f.move("file", "no/such", MoveOptions{}), fs.ErrNotExist)
	wantErr(t, "taken", f.move("file", "other", MoveOptions{NoReplace: true}), fs.ErrExist)
	wantErr(t, "file onto folder", f.move("file", "dir", MoveOptions{}), ErrIsDirectory)
	wantErr(t, "folder onto file", f.move("dir", "file", MoveOptions{}), ErrNotDirectory)
	wantErr(t, "folder onto a full one", f.move("dir", "full", MoveOptions{}), ErrNotEmpty)
	wantErr(t, "file with a slash", f.move("file/", "x", MoveOptions{}), ErrNotDirectory)
	wantErr(t, "file to a slash", f.move("file", "x/", MoveOptions{}), ErrNotDirectory)
	wantInvalid(t, "into itself", f.move("dir", "dir/sub", MoveOptions{}), "destination")
	wantInvalid(t, "root", f.move("/", "x", MoveOptions{}), "source")
	wantInvalid(t, "to nothing", f.move("file", "", MoveOptions{}), "destination")
	wantInvalid(t, "dots", f.move("file", "dir/..", MoveOptions{}), "destination")

	must(t, f.move("file", "other", MoveOptions{}))
	f.wantContent(f.path("other"), "file")
	must(t, f.move("dir/", "empty", MoveOptions{}))
	must(t, f.move("empty", "renamed/", MoveOptions{NoReplace: true}))
	must(t, f.move("link", "renamed/link", MoveOptions{NoReplace: true}))
	f.wantNames(f.home, "full", "other", "renamed")
	f.wantNames(f.path("renamed"), "link", "x")
}

func TestMoveResult(t *testing.T) {
	f := newFixture(t)
	f.tree("file", "dir/", "link->file", "broken->nowhere")
	for _, c := range []struct {
		from, to string
		want     Type
	}{{"file", "b", TypeRegular}, {"dir/", "moved/", TypeDirectory}, {"link", "l", TypeSymlink}, {"broken", "moved/x", TypeSymlink}} {
		result, err := f.Move(f.ctx, f.user, c.from, c.to, MoveOptions{})
		must(t, err)
		info := result.Info
		if result.Copied || info.Type != c.want || info.Path != f.path(c.to) || info.Name != filepath.Base(c.to) || info.Broken != (c.want == TypeSymlink) {
			t.Errorf("%s: %+v", c.from, result)
		}
	}
	if os.Geteuid() != 0 {
		return // a second file system takes root to mount
	}
	there := f.tmpfs("1m")
	result, err := f.Move(f.ctx, f.user, "b", there+"/c", MoveOptions{})
	if err != nil || !result.Copied || result.Info.Path != there+"/c" || result.Info.Size != 4 || result.Info.Owner != testUser {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestMoveOntoItsOwnHardLink(t *testing.T) {
	f := newFixture(t)
	f.put("a", "content")
	must(t, os.Link(f.path("a"), f.path("b")))
	must(t, f.move("a", "a", MoveOptions{}))
	f.wantNames(f.home, "a", "b")
	must(t, f.move("a", "b", MoveOptions{}))
	f.wantNames(f.home, "b")
}

func TestMoveAcrossFileSystems(t *testing.T) {
	f := newFixture(t)
	there := f.tmpfs("64m")
	f.tree("tree/", "tree/sub/", "tree/sub/file", "tree/link->sub/file", "tree/empty/", "tree/readonly/")
	must(t, os.WriteFile(f.path("tree/holes"), nil, 0o640))
	must(t, os.Truncate(f.path("tree/holes"), 32<<20))
	holes, err := os.OpenFile(f.path("tree/holes"), os.O_WRONLY, 0)
	must(t, err)
	_, err = holes.WriteAt([]byte("data"), 20<<20)
	must(t, err)
	must(t, holes.Close())
	must(t, os.Link(f.path("tree/sub/file"), f.path("tree/second")))
	must(t, syscall.Mkfifo(f.path("tree/fifo"), 0o611))
	must(t, os.Chown(f.path("tree/sub/file"), testUID, shareGID))
	must(t, os.Chmod(f.path("tree/sub/file"), 0o750|fs.ModeSetgid))
	must(t, unix.Setxattr(f.path("tree/sub/file"), "user.note", []byte("kept"), 0))
	f.give(f.path("tree/holes"), f.path("tree/fifo"))
	must(t, os.Chmod(f.path("tree/readonly"), 0o555))
	when := time.Unix(1_200_000_000, 5)
	for _, name := range []string{"tree/sub/file", "tree/empty", "tree/sub", "tree/fifo"} {
		must(t, os.Chtimes(f.path(name), when, when))
	}

	dst := filepath.Join(there, "moved")
	must(t, f.move("tree", dst, MoveOptions{}))
	f.wantNames(f.home)
	f.wantNames(there, "moved")
	f.wantNames(dst, "empty", "fifo", "holes", "link", "readonly", "second", "sub")
	f.wantContent(dst+"/second", "tree/sub/file")
	uid, gid, mode := f.owner(dst + "/sub/file")
	if uid != testUID || gid != shareGID || mode != 0o750|fs.ModeSetgid {
		t.Errorf("%d:%d %v", uid, gid, mode)
	}
	for _, name := range []string{"/sub/file", "/empty", "/sub", "/fifo"} {
		if info, err := os.Lstat(dst + name); err != nil || !info.ModTime().Equal(when) {
			t.Errorf("%s: %v, %v", name, info.ModTime(), err)
		}
	}
	var a, b, sparse unix.Stat_t
	must(t, unix.Stat(dst+"/second", &a))
	must(t, unix.Stat(dst+"/sub/file", &b))
	must(t, unix.Stat(dst+"/holes", &sparse))
	if a.Ino != b.Ino || a.Nlink != 2 {
		t.Errorf("the hard link is lost: %+v, %+v", a, b)
	}
	if sparse.Size != 32<<20 || sparse.Blocks > 2048 {
		t.Errorf("size %d, %d blocks", sparse.Size, sparse.Blocks)
	}
	data := make([]byte, 6)
	file, err := os.Open(dst + "/holes")
	must(t, err)
	defer file.Close()
	if _, err := file.ReadAt(data, 20<<20-1); err != nil || !bytes.Equal(data, []byte("\x00data\x00")) {
		t.Errorf("%q, %v", data, err)
	}
	if link, err := os.Readlink(dst + "/link"); err != nil || link != "sub/file" {
		t.Errorf("%q, %v", link, err)
	}
}

func TestMoveAcrossFileSystemsErrors(t *testing.T) {
	f := newFixture(t)
	there := f.tmpfs("1m")
	f.tree("tree/", "tree/x", "file")
	must(t, os.WriteFile(f.path("tree/big"), pattern(3<<20), 0o644))
	f.give(f.path("tree/big"))
	must(t, os.Mkdir(there+"/full", 0o777))
	must(t, os.WriteFile(there+"/full/y", nil, 0o666))
	must(t, os.WriteFile(there+"/file", []byte("old"), 0o666))
	f.give(there+"/full", there+"/file")

	err := f.move("tree", there+"/tree", MoveOptions{})
	wantErr(t, "too big", err, ErrNoSpace)
	if !strings.Contains(err.Error(), "tree/big") {
		t.Errorf("the error does not say where: %v", err)
	}
	wantErr(t, "taken", f.move("file", there+"/file", MoveOptions{NoReplace: true}), fs.ErrExist)
	wantErr(t, "onto a full folder", f.move("tree", there+"/full", MoveOptions{}), ErrNoSpace)
	must(t, os.Remove(f.path("tree/big")))
	wantErr(t, "onto a full folder", f.move("tree", there+"/full", MoveOptions{}), ErrNotEmpty)
	wantErr(t, "onto a file", f.move("tree", there+"/file", MoveOptions{}), ErrNotDirectory)
	wantErr(t, "file onto a folder", f.move("file", there+"/full", MoveOptions{}), ErrIsDirectory)
	gone := errors.New("the client went away")
	ctx, cancel := context.WithCancelCause(f.ctx)
	cancel(gone)
	_, err = f.Move(ctx, f.user, "tree", there+"/x", MoveOptions{})
	wantErr(t, "cancelled", err, gone)

	// What the user may read but not remove is not copied either.
	must(t, os.Chown(f.home, 0, 0))
	wantErr(t, "source not removable", f.move("file", there+"/new", MoveOptions{}), fs.ErrPermission)
	must(t, os.Chown(f.home, testUID, testUID))
	f.wantNames(there, "file", "full")
	f.wantContent(there+"/file", "old")
	must(t, f.move("file", there+"/file", MoveOptions{}))
	f.wantContent(there+"/file", "file")
	f.wantNames(there, "file", "full")
	f.wantNames(f.home, "tree")
	readOnly := f.mkdir("readonly")
	must(t, os.Chmod(readOnly, 0o555))
	must(t, f.move("readonly", there+"/readonly", MoveOptions{NoReplace: true}))
	if _, _, mode := f.owner(there + "/readonly"); mode.Perm() != 0o555 {
		t.Errorf("mode %v", mode)
	}
}

func TestMoveAcrossFileSystemsDropsSetuidWithTheOwner(t *testing.T) {
	f := newFixture(t)
	there := f.tmpfs("1m")
	path := f.path("suid")
	must(t, os.WriteFile(path, []byte("x"), 0o755))
	must(t, os.Chown(path, otherUID, otherUID))
	must(t, os.Chmod(path, 0o755|fs.ModeSetuid|fs.ModeSetgid))
	must(t, f.move("suid", there+"/suid", MoveOptions{}))
	if uid, _, mode := f.owner(there + "/suid"); uid != testUID || mode != 0o755 {
		t.Errorf("uid %d, mode %v", uid, mode)
	}
}
