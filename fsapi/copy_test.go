package fsapi

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func (f *fixture) copy(src, dst string, opts CopyOptions) (CopyResult, error) {
	return f.Copy(f.ctx, f.user, src, dst, opts)
}

// copyErr is copy for tests of failures.
func (f *fixture) copyErr(src, dst string, opts CopyOptions) error {
	_, err := f.copy(src, dst, opts)
	return err
}

func TestCopyFile(t *testing.T) {
	f := newFixture(t)
	f.tree("file", "other", "dir/", "link->file")
	must(t, os.Chmod(f.path("file"), 0o750|fs.ModeSetuid|fs.ModeSetgid))
	for _, named := range []bool{false, true} {
		f.namedTemp = named
		result, err := f.copy("file", "new", CopyOptions{})
		must(t, err)
		if result.Entries != 1 || result.Bytes != 4 || result.Info.Path != f.path("new") || result.Info.Size != 4 {
			t.Errorf("%+v", result)
		}
		f.wantContent(f.path("new"), "file")
		if uid, _, mode := f.owner(f.path("new")); mode != 0o750 || f.user != "" && uid != testUID {
			t.Errorf("uid %d, mode %v", uid, mode)
		}
		wantErr(t, "taken", f.copyErr("file", "other", CopyOptions{NoReplace: true}), fs.ErrExist)
		f.wantContent(f.path("other"), "other")
		_, err = f.copy("file", "other", CopyOptions{})
		must(t, err)
		f.wantContent(f.path("other"), "file")
		// The link is replaced and not written through.
		must(t, f.copyErr("other", "link", CopyOptions{}))
		if _, err := os.Readlink(f.path("link")); err == nil {
			t.Error("the link is still there")
		}
		f.wantNames(f.home, "dir", "file", "link", "new", "other")
		must(t, os.Remove(f.path("new")))
		must(t, os.WriteFile(f.path("other"), []byte("other"), 0o644))
	}
}

func TestCopyRefusals(t *testing.T) {
	f := newFixture(t)
	f.tree("file", "dir/", "dir/sub/", "dir/x", "link->dir", "broken->nowhere")
	must(t, os.Link(f.path("file"), f.path("hard")))
	must(t, syscall.Mkfifo(f.path("fifo"), 0o666))
	all := CopyOptions{Recursive: true}
	wantErr(t, "missing", f.copyErr("missing", "x", all), fs.ErrNotExist)
	wantErr(t, "no such folder", f.copyErr("file", "no/such", all), fs.ErrNotExist)
	wantErr(t, "a folder without Recursive", f.copyErr("dir", "x", CopyOptions{}), ErrIsDirectory)
	wantErr(t, "a link to one, followed", f.copyErr("link", "x", CopyOptions{FollowLinks: true}), ErrIsDirectory)
	wantErr(t, "a link to one, with a slash", f.copyErr("link/", "x", CopyOptions{}), ErrIsDirectory)
	wantErr(t, "a broken link, followed", f.copyErr("broken", "x", CopyOptions{FollowLinks: true}), fs.ErrNotExist)
	wantErr(t, "file onto folder", f.copyErr("file", "dir", all), ErrIsDirectory)
	wantErr(t, "folder onto file", f.copyErr("dir", "file", all), ErrNotDirectory)
	wantErr(t, "folder onto link", f.copyErr("dir", "link", all), ErrNotDirectory)
	wantErr(t, "file onto FIFO", f.copyErr("file", "fifo", all), ErrNotSupportedType)
	wantErr(t, "file with a slash", f.copyErr("file/", "x", all), ErrNotDirectory)
	wantErr(t, "file to a slash", f.copyErr("file", "x/", all), ErrNotDirectory)
	wantErr(t, "taken", f.copyErr("dir", "link", CopyOptions{Recursive: true, NoReplace: true}), fs.ErrExist)
	for _, c := range [][2]string{{"file", "file"}, {"file", "hard"}, {"dir", "dir"}, {"dir", "dir/new"}, {"dir", "dir/sub/new"}, {"dir", "link/new"}, {"/", "x"}, {".", "x"}, {"dir/..", "dir/y"}} {
		wantInvalid(t, c[0]+" into "+c[1], f.copyErr(c[0], c[1], all), "destination")
	}
	wantInvalid(t, "to nothing", f.copyErr("file", "", all), "destination")
	wantInvalid(t, "from nothing", f.copyErr("", "x", all), "source")
	wantInvalid(t, "dots", f.copyErr("file", "dir/..", all), "destination")
	f.wantNames(f.home, "broken", "dir", "fifo", "file", "hard", "link")
	f.wantNames(f.path("dir"), "sub", "x")
	f.wantNames(f.path("dir/sub"))
}

func TestCopyTreePreserving(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	f.copySource()
	result, err := f.copy("tree/", "copy/", CopyOptions{Recursive: true, Preserve: true})
	must(t, err)
	if result.Entries != 9 || result.Bytes != 32<<20+uint64(len("tree/sub/file")) {
		t.Errorf("%+v", result)
	}
	dst := f.path("copy")
	uid, gid, mode := f.owner(dst + "/sub/file")
	if uid != testUID || gid != shareGID || mode != 0o750|fs.ModeSetgid {
		t.Errorf("%d:%d %v", uid, gid, mode)
	}
	for _, name := range []string{"", "/sub/file", "/empty", "/sub", "/fifo", "/link"} {
		if info, err := os.Lstat(dst + name); err != nil || !info.ModTime().Equal(copyTime) {
			t.Errorf("%s: %v, %v", name, info.ModTime(), err)
		}
	}
	value := make([]byte, 16)
	if n, err := unix.Getxattr(dst+"/sub/file", "user.note", value); err != nil || string(value[:n]) != "kept" {
		t.Errorf("attribute %q, %v", value[:max(n, 0)], err)
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
	want, err := os.ReadFile(f.path("tree/holes"))
	must(t, err)
	got, err := os.ReadFile(dst + "/holes")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the sparse file differs, %v", err)
	}
	f.wantNames(dst, "empty", "fifo", "holes", "link", "readonly", "second", "sub")
	f.wantNames(f.path("tree"), "empty", "fifo", "holes", "link", "readonly", "second", "sub")
}

var copyTime = time.Unix(1_200_000_000, 5)

// copySource makes a tree with one of everything.
func (f *fixture) copySource() {
	t := f.t
	f.tree("tree/", "tree/sub/", "tree/sub/file", "tree/link->sub/file", "tree/empty/", "tree/readonly/", "tree/readonly/x")
	holes, err := os.Create(f.path("tree/holes"))
	must(t, err)
	_, err = holes.WriteAt([]byte("data"), 20<<20)
	must(t, err)
	must(t, holes.Truncate(32<<20))
	must(t, holes.Close())
	must(t, os.Link(f.path("tree/sub/file"), f.path("tree/second")))
	must(t, syscall.Mkfifo(f.path("tree/fifo"), 0o611))
	f.give(f.path("tree/holes"), f.path("tree/fifo"))
	if f.user != "" {
		must(t, os.Chown(f.path("tree/sub/file"), testUID, shareGID))
	}
	must(t, os.Remove(f.path("tree/readonly/x")))
	must(t, os.Chmod(f.path("tree/readonly"), 0o555))
	must(t, os.Chmod(f.path("tree/sub/file"), 0o750|fs.ModeSetgid))
	must(t, unix.Setxattr(f.path("tree/sub/file"), "user.note", []byte("kept"), 0))
	for _, name := range []string{"tree/sub/file", "tree/empty", "tree/sub", "tree/fifo", "tree/link", "tree"} {
		when, err := unix.TimeToTimespec(copyTime)
		must(t, err)
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, f.path(name), []unix.Timespec{when, when}, unix.AT_SYMLINK_NOFOLLOW))
	}
}

func TestCopyTreeAsOnesOwn(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	f.copySource()
	must(t, os.Lchown(f.path("tree/holes"), otherUID, otherUID))
	must(t, os.Lchown(f.path("tree/link"), otherUID, otherUID))
	result, err := f.copy("tree", "copy", CopyOptions{Recursive: true})
	must(t, err)
	if result.Entries != 9 {
		t.Errorf("%+v", result)
	}
	for name, want := range map[string]fs.FileMode{"": 0o755, "/holes": 0o644, "/link": 0o777, "/sub/file": 0o750, "/fifo": 0o611, "/readonly": 0o555} {
		uid, gid, mode := f.owner(f.path("copy") + name)
		if uid != testUID || gid != testUID || mode.Perm() != want || mode&(fs.ModeSetgid|fs.ModeSetuid) != 0 {
			t.Errorf("%s: %d:%d %v", name, uid, gid, mode)
		}
		if info, err := os.Lstat(f.path("copy") + name); err != nil || info.ModTime().Equal(copyTime) {
			t.Errorf("%s has the original's time, %v", name, err)
		}
	}
	var a, b unix.Stat_t
	must(t, unix.Stat(f.path("copy/second"), &a))
	must(t, unix.Stat(f.path("copy/sub/file"), &b))
	if a.Ino == b.Ino {
		t.Error("a hard link was kept")
	}
}

func TestCopyIntoAnExistingFolder(t *testing.T) {
	f := newFixture(t)
	f.tree("src/", "src/a", "src/link->a", "src/sub/", "src/sub/new", "src/clash", "src/trap/", "src/trap/x",
		"dst/", "dst/a", "dst/kept", "dst/link->kept", "dst/sub/", "dst/sub/old", "dst/clash/", "victim/", "dst/trap->../victim")
	err := f.copyErr("src", "dst", CopyOptions{Recursive: true})
	var where *PathError
	if !errors.As(err, &where) || where.Path != "dst/clash" && where.Path != "dst/trap" {
		t.Errorf("%v", err)
	}
	f.wantContent(f.path("dst/a"), "src/a")
	f.wantContent(f.path("dst/kept"), "dst/kept")
	if target, _ := os.Readlink(f.path("dst/link")); target != "a" {
		t.Errorf("the link says %q", target)
	}
	f.wantNames(f.path("dst"), "a", "clash", "kept", "link", "sub", "trap")
	f.wantNames(f.path("dst/sub"), "new", "old")
	f.wantNames(f.path("victim"))
}

func TestCopyFollowingLinks(t *testing.T) {
	f := newFixture(t)
	f.tree("out/", "out/x", "src/", "src/file->../out/x", "src/dir->../out", "src/a/", "src/a/up->..", "src/a/here->.", "src/z->../dst", "src/broken->nowhere")
	result, err := f.copy("src", "dst", CopyOptions{Recursive: true, FollowLinks: true})
	var where *PathError
	if err == nil || result.Entries != 0 {
		t.Errorf("%+v, %v", result, err)
	}
	var invalid *InvalidError
	if !errors.As(err, &where) && !errors.As(err, &invalid) {
		t.Errorf("%v", err)
	}
	f.wantContent(f.path("dst/file"), "out/x")
	f.wantContent(f.path("dst/dir/x"), "out/x")
	f.wantNames(f.path("dst"), "a", "dir", "file")
	f.wantNames(f.path("dst/a"))
	for _, name := range []string{"file", "dir"} {
		if info, err := os.Lstat(f.path("dst/" + name)); err != nil || info.Mode()&fs.ModeSymlink != 0 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	must(t, f.copyErr("src/dir", "followed", CopyOptions{Recursive: true, FollowLinks: true}))
	f.wantContent(f.path("followed/x"), "out/x")
	must(t, f.copyErr("src/dir", "link", CopyOptions{Recursive: true}))
	if target, err := os.Readlink(f.path("link")); err != nil || target != "../out" {
		t.Errorf("%q, %v", target, err)
	}
}

func TestCopyGoesOnAfterAFailure(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	f.tree("src/", "src/a", "src/closed/", "src/closed/x", "src/secret", "src/z")
	must(t, os.Chmod(f.path("src/closed"), 0))
	must(t, os.Chmod(f.path("src/secret"), 0))
	err := f.copyErr("src/", "dst", CopyOptions{Recursive: true})
	wantErr(t, "an unreadable file", err, fs.ErrPermission)
	var where *PathError
	if !errors.As(err, &where) || where.Path != "src/closed" && where.Path != "src/secret" {
		t.Errorf("%v", err)
	}
	f.wantNames(f.path("dst"), "a", "z")
}

// TestCopySharesContents copies 64 MiB on a file system that has room for them
// once.
func TestCopySharesContents(t *testing.T) {
	f := newFixture(t)
	dir := f.disk(320<<20, "mkfs.xfs", "-q", "-m", "reflink=1")
	var free [2]unix.Statfs_t
	must(t, os.WriteFile(dir+"/big", pattern(64<<20), 0o644))
	must(t, unix.Statfs(dir, &free[0]))
	result, err := f.copy(dir+"/big", dir+"/copy", CopyOptions{})
	if err != nil || result.Bytes != 64<<20 {
		t.Errorf("%+v, %v", result, err)
	}
	must(t, unix.Statfs(dir, &free[1]))
	if used := int64(free[0].Bfree-free[1].Bfree) * free[0].Bsize; used > 8<<20 {
		t.Errorf("the copy takes %d bytes", used)
	}
	f.wantContent(dir+"/copy", string(pattern(64<<20)))
}

func TestCopyOntoAFullDisk(t *testing.T) {
	f := newFixture(t)
	there := f.tmpfs("2m")
	must(t, os.WriteFile(f.path("big"), pattern(4<<20), 0o644))
	f.give(f.path("big"))
	must(t, os.WriteFile(there+"/file", []byte("old and whole"), 0o666))
	f.give(there + "/file")
	for _, named := range []bool{false, true} {
		f.namedTemp = named
		for _, dst := range []string{"/file", "/new"} {
			err := f.copyErr("big", there+dst, CopyOptions{})
			wantErr(t, dst, err, ErrNoSpace)
			var where *PathError
			if !errors.As(err, &where) || where.Path != there+dst {
				t.Errorf("%v, want it to name %s", err, there+dst)
			}
			f.wantContent(there+"/file", "old and whole")
			f.wantNames(there, "file")
		}
	}
	f.tree("tree/", "tree/a", "tree/z")
	must(t, os.Rename(f.path("big"), f.path("tree/m")))
	wantErr(t, "a tree", f.copyErr("tree", there+"/tree", CopyOptions{Recursive: true}), ErrNoSpace)
	if _, err := os.Lstat(there + "/tree/m"); err == nil {
		t.Error("half a file is left")
	}
}

func TestCopySpecialFilesNeverHangs(t *testing.T) {
	f := newFixture(t)
	must(t, syscall.Mkfifo(f.path("fifo"), 0o640))
	f.give(f.path("fifo"))
	must(t, f.copyErr("fifo", "copy", CopyOptions{}))
	if info, err := os.Lstat(f.path("copy")); err != nil || info.Mode() != fs.ModeNamedPipe|0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if f.user != "" {
		wantErr(t, "a device", f.copyErr("/dev/zero", "zero", CopyOptions{}), fs.ErrPermission)
		f.put("file", "x")
		_, err := f.Copy(f.ctx, "root", f.path("file"), "/dev/null", CopyOptions{})
		wantErr(t, "onto /dev/null", err, ErrNotSupportedType)
	}
	must(t, f.copyErr("/proc/version", "version", CopyOptions{}))
	version, err := os.ReadFile("/proc/version")
	must(t, err)
	f.wantContent(f.path("version"), string(version))
	wantErr(t, "a magic link, followed", f.copyErr("/proc/self/root", "x", CopyOptions{FollowLinks: true, Recursive: true}), ErrLoop)
	if f.user != "" {
		wantErr(t, "guestd's own", f.copyErr("/proc/self/environ", "x", CopyOptions{}), fs.ErrPermission)
		wantErr(t, "guestd's own", f.copyErr("/proc/self/fd", "x", CopyOptions{Recursive: true}), fs.ErrPermission)
		wantErr(t, "guestd's own link", f.copyErr("/proc/self/fd/0", "x", CopyOptions{}), fs.ErrPermission)
	}
}

func TestCopyEndsWithItsContext(t *testing.T) {
	f := newFixture(t)
	f.tree("tree/", "tree/x", "file")
	gone := errors.New("the client went away")
	ctx, cancel := context.WithCancelCause(f.ctx)
	cancel(gone)
	_, err := f.Copy(ctx, f.user, "tree", "x", CopyOptions{Recursive: true})
	wantErr(t, "cancelled", err, gone)
	f.wantNames(f.home, "file", "tree")

	// Half way: the copier looks between two chunks.
	in, err := os.Open(f.path("file"))
	must(t, err)
	defer in.Close()
	out, err := os.Create(f.path("out"))
	must(t, err)
	defer out.Close()
	wantErr(t, "contents", copySparse(ctx, int(in.Fd()), int(out.Fd())), gone)
}

func TestCopyDepthIsBounded(t *testing.T) {
	f := newFixture(t)
	f.deepTree("deep", maxCopyDepth+5)
	wantErr(t, "a deep tree", f.copyErr("deep", "copy", CopyOptions{Recursive: true}), ErrTooDeep)
}

// TestCopyOfManyOntoOne has many copies replace one file: it is always whole.
func TestCopyOfManyOntoOne(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"a", "b", "c"} {
		f.put(name, strings.Repeat(name, 300_000))
	}
	var copies sync.WaitGroup
	for i := range 30 {
		copies.Go(func() {
			if err := f.copyErr(string("abc"[i%3]), "shared", CopyOptions{}); err != nil {
				t.Error(err)
			}
			got, err := os.ReadFile(f.path("shared"))
			if err != nil || len(got) != 300_000 || strings.Trim(string(got), string(got[0])) != "" {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	copies.Wait()
	f.wantNames(f.home, "a", "b", "c", "shared")
}

func TestCopyNeedsTheUsersRights(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir, file := secret(t)
	f.symlink(file, "to-file")
	f.symlink(filepath.Join(dir, "closed"), "to-closed")
	must(t, os.Link(file, f.path("hard")))
	f.put("mine", "mine")
	for _, opts := range []CopyOptions{{}, {Recursive: true}, {Recursive: true, FollowLinks: true, Preserve: true}} {
		for _, c := range [][2]string{{file, "x"}, {"hard", "x"}, {"mine", dir + "/x"}, {"mine", file}, {"mine", "to-closed/x"}, {filepath.Join(dir, "closed/inner"), "x"}} {
			wantErr(t, c[0]+" to "+c[1], f.copyErr(c[0], c[1], opts), fs.ErrPermission)
		}
	}
	wantErr(t, "through a link", f.copyErr("to-file", "x", CopyOptions{FollowLinks: true}), fs.ErrPermission)
	must(t, f.copyErr("mine", "to-file", CopyOptions{}))
	f.wantContent(file, "secret")
	f.wantNames(dir, "closed", "secret")
	// What root copies for root is root's.
	_, err := f.Copy(f.ctx, "root", file, f.path("of-root"), CopyOptions{})
	must(t, err)
	if uid, _, mode := f.owner(f.path("of-root")); uid != 0 || mode != 0o600 {
		t.Errorf("uid %d, mode %v", uid, mode)
	}
}
