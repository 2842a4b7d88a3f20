package fsapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWriteNewFile(t *testing.T) {
	f := newFixture(t)
	result, err := f.write(f.user, "new", "hello", WriteOptions{SumSHA256: true})
	must(t, err)
	sum := sha256.Sum256([]byte("hello"))
	if !result.Created || result.InPlace || result.BytesWritten != 5 || !bytes.Equal(result.SHA256, sum[:]) {
		t.Errorf("%+v", result)
	}
	if info := result.Info; info.Path != f.path("new") || info.Name != "new" || info.Size != 5 || info.Mode != 0o644 || info.Links != 1 {
		t.Errorf("%+v", info)
	}
	f.wantContent(f.path("new"), "hello")
	f.wantNames(f.home, "new")
	if uid, gid, _ := f.owner(f.path("new")); f.user != "" && (uid != testUID || gid != testUID || result.Info.Owner != testUser) {
		t.Errorf("belongs to %d:%d, %q", uid, gid, result.Info.Owner)
	}
}

func TestWriteReplacesAndKeepsModeOwnerAndAttributes(t *testing.T) {
	f := newFixture(t)
	path := f.put("file", "a much longer old content")
	must(t, os.Chmod(path, 0o640|fs.ModeSetgid))
	must(t, unix.Setxattr(path, "user.note", []byte("kept"), 0))
	if os.Geteuid() == 0 {
		must(t, os.Chown(path, testUID, shareGID))
		must(t, os.Chmod(path, 0o640|fs.ModeSetgid))
	}
	uid, gid, mode := f.owner(path)
	result, err := f.write(f.user, path, "new", WriteOptions{})
	must(t, err)
	if result.Created || result.InPlace {
		t.Errorf("%+v", result)
	}
	f.wantContent(path, "new")
	if u, g, m := f.owner(path); u != uid || g != gid || m != mode {
		t.Errorf("was %d:%d %v, is %d:%d %v", uid, gid, mode, u, g, m)
	}
	value := make([]byte, 10)
	if n, err := unix.Getxattr(path, "user.note", value); err != nil || string(value[:n]) != "kept" {
		t.Errorf("attribute: %q, %v", value[:max(n, 0)], err)
	}
}

func TestWriteAsRootKeepsTheOwner(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	path := f.put("file", "old")
	result, err := f.write("root", path, "new", WriteOptions{})
	must(t, err)
	if uid, gid, _ := f.owner(path); uid != testUID || gid != testUID || result.InPlace {
		t.Errorf("belongs to %d:%d, %+v", uid, gid, result)
	}
}

func TestWriteMode(t *testing.T) {
	f := newFixture(t)
	for _, mode := range []uint32{0o600, 0o4755, 0, 0o7777} {
		for range 2 { // new, then existing
			_, err := f.write("root", f.path(fmt.Sprintf("%o", mode)), "x", WriteOptions{Mode: ptr(mode)})
			if os.Geteuid() != 0 {
				t.Skip("mode 0 cannot be written again without root")
			}
			must(t, err)
			info, err := f.Stat(f.ctx, "root", f.path(fmt.Sprintf("%o", mode)), false)
			if err != nil || info.Mode != mode {
				t.Errorf("mode %o became %o, %v", mode, info.Mode, err)
			}
		}
	}
	_, err := f.write(f.user, "x", "x", WriteOptions{Mode: ptr[uint32](0o10000)})
	wantInvalid(t, "mode", err, "mode")
}

func TestWriteCreatesParents(t *testing.T) {
	f := newFixture(t)
	f.mkdir("there")
	must(t, os.Chmod(f.path("there"), 0o711))
	_, err := f.write(f.user, "there/a/b/file", "x", WriteOptions{})
	wantErr(t, "without the option", err, fs.ErrNotExist)
	_, err = f.write(f.user, "there/a/b/file", "x", WriteOptions{CreateParents: true})
	must(t, err)
	for _, dir := range []string{"there/a", "there/a/b"} {
		uid, _, mode := f.owner(f.path(dir))
		if mode.Perm() != 0o755 || f.user != "" && uid != testUID {
			t.Errorf("%s: uid %d, mode %v", dir, uid, mode)
		}
	}
	if _, _, mode := f.owner(f.path("there")); mode.Perm() != 0o711 {
		t.Errorf("the folder that was there has mode %v now", mode)
	}
	f.put("plain", "")
	_, err = f.write(f.user, "plain/a/file", "x", WriteOptions{CreateParents: true})
	wantErr(t, "a file on the way", err, ErrNotDirectory)
}

func TestWriteAbortLeavesNothing(t *testing.T) {
	f := newFixture(t)
	path := f.put("file", "old and whole")
	for _, name := range []string{"file", "new", "a/b/new"} {
		h, err := f.OpenWrite(f.ctx, f.user, name, WriteOptions{CreateParents: true})
		must(t, err)
		_, err = h.Write(pattern(1 << 20))
		must(t, err)
		f.wantContent(path, "old and whole")
		h.Abort()
		h.Abort()
		_, err = h.Write([]byte("x"))
		wantErr(t, "write after abort", err, ErrClosed)
		_, err = h.Commit()
		wantErr(t, "commit after abort", err, ErrClosed)
		f.wantNames(f.home, "file")
	}
	f.wantContent(path, "old and whole")
}

func TestWriteAbortKeepsFoldersInUse(t *testing.T) {
	f := newFixture(t)
	h, err := f.OpenWrite(f.ctx, f.user, "a/b/new", WriteOptions{CreateParents: true})
	must(t, err)
	f.put("a/other", "x")
	h.Abort()
	f.wantNames(f.path("a"), "other")
}

func TestWriteAbortDoesNotTakeFoldersFromOthers(t *testing.T) {
	f := newFixture(t)
	opts := WriteOptions{CreateParents: true}
	first, err := f.OpenWrite(f.ctx, f.user, "a/b/first", opts)
	must(t, err)
	second, err := f.OpenWrite(f.ctx, f.user, "a/b/second", opts)
	must(t, err)
	defer second.Abort()
	_, err = second.Write([]byte("content"))
	must(t, err)
	first.Abort()
	_, err = second.Commit()
	must(t, err)
	f.wantContent(f.path("a/b/second"), "content")
	f.wantNames(f.path("a/b"), "second")
}

func TestWriteEndsWithItsContext(t *testing.T) {
	f := newFixture(t)
	path := f.put("file", "old")
	gone := errors.New("the client went away")
	ctx, cancel := context.WithCancelCause(f.ctx)
	h, err := f.OpenWrite(ctx, f.user, "dir/file", WriteOptions{CreateParents: true})
	must(t, err)
	other, err := f.OpenWrite(ctx, f.user, path, WriteOptions{})
	must(t, err)
	_, err = other.Write([]byte("new"))
	must(t, err)
	cancel(gone)
	_, err = h.Write([]byte("x"))
	wantErr(t, "write", err, gone)
	_, err = other.Commit()
	wantErr(t, "commit", err, gone)
	h.Abort()
	f.wantContent(path, "old")
	f.wantNames(f.home, "file")
}

func TestWriteExpectations(t *testing.T) {
	f := newFixture(t)
	path := f.put("file", "old")
	sum := sha256.Sum256([]byte("content"))
	_, err := f.write(f.user, path, "content", WriteOptions{ExpectedSize: ptr[uint64](7), ExpectedSHA256: sum[:]})
	must(t, err)
	f.wantContent(path, "content")
	for what, c := range map[string]struct {
		opts WriteOptions
		want error
	}{
		"too long":  {WriteOptions{ExpectedSize: ptr[uint64](4)}, ErrSizeMismatch},
		"too short": {WriteOptions{ExpectedSize: ptr[uint64](400)}, ErrSizeMismatch},
		"checksum":  {WriteOptions{ExpectedSHA256: make([]byte, 32)}, ErrChecksumMismatch},
	} {
		_, err := f.write(f.user, path, "other", c.opts)
		wantErr(t, what, err, c.want)
		_, err = f.write(f.user, "dir/new", "other", WriteOptions{CreateParents: true, ExpectedSHA256: c.opts.ExpectedSHA256, ExpectedSize: c.opts.ExpectedSize})
		wantErr(t, what, err, c.want)
	}
	f.wantContent(path, "content")
	f.wantNames(f.home, "file")
	_, err = f.write(f.user, path, "x", WriteOptions{ExpectedSHA256: make([]byte, 5)})
	wantInvalid(t, "short sum", err, "expected_sha256")
}

func TestWriteExclusive(t *testing.T) {
	f := newFixture(t)
	path := f.put("file", "old")
	f.symlink("nowhere", "broken")
	for _, name := range []string{"file", "broken", "."} {
		_, err := f.write(f.user, name, "x", WriteOptions{Exclusive: true})
		if !errors.Is(err, fs.ErrExist) && name != "." || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	h, err := f.OpenWrite(f.ctx, f.user, "late", WriteOptions{Exclusive: true})
	must(t, err)
	f.put("late", "somebody was faster")
	_, err = h.Commit()
	wantErr(t, "made meanwhile", err, fs.ErrExist)
	f.wantContent(f.path("late"), "somebody was faster")
	f.wantContent(path, "old")
	_, err = f.write(f.user, "fine", "x", WriteOptions{Exclusive: true})
	must(t, err)
	f.wantNames(f.home, "broken", "file", "fine", "late")
}

func TestWriteAppendAndOffset(t *testing.T) {
	f := newFixture(t)
	path := f.put("file", "0123456789")
	result, err := f.write(f.user, path, "ab", WriteOptions{Append: true})
	if err != nil || !result.InPlace || result.Created {
		t.Errorf("append: %+v, %v", result, err)
	}
	f.wantContent(path, "0123456789ab")
	result, err = f.write(f.user, path, "XY", WriteOptions{Offset: ptr[uint64](3)})
	if err != nil || !result.InPlace {
		t.Errorf("offset: %+v, %v", result, err)
	}
	f.wantContent(path, "012XY56789ab")
	_, err = f.write(f.user, path, "!", WriteOptions{Offset: ptr[uint64](14)})
	must(t, err)
	f.wantContent(path, "012XY56789ab\x00\x00!")
	for _, opts := range []WriteOptions{{Append: true}, {Offset: ptr[uint64](2)}} {
		name := fmt.Sprintf("new-%v", opts.Append)
		if result, err = f.write(f.user, name, "ab", opts); err != nil || !result.Created {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
	}
	f.wantContent(f.path("new-true"), "ab")
	f.wantContent(f.path("new-false"), "\x00\x00ab")
	_, err = f.write(f.user, path, "x", WriteOptions{Append: true, Offset: ptr[uint64](1)})
	wantInvalid(t, "both", err, "offset")
}

func TestWriteAppendToFileMadeMeanwhileLosesNothing(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		opts WriteOptions
		want string
	}{{WriteOptions{Append: true}, "firstSECOND"}, {WriteOptions{Offset: ptr[uint64](2)}, "fiSECOND"}} {
		h, err := f.OpenWrite(f.ctx, f.user, "log", c.opts)
		must(t, err)
		_, err = h.Write([]byte("SECOND"))
		must(t, err)
		f.put("log", "first")
		result, err := h.Commit()
		if err != nil || !result.InPlace {
			t.Errorf("%+v, %v", result, err)
		}
		f.wantContent(f.path("log"), c.want)
		f.wantNames(f.home, "log")
		must(t, os.Remove(f.path("log")))
	}
}

func TestWriteThroughLinks(t *testing.T) {
	f := newFixture(t)
	f.mkdir("dir")
	path := f.put("dir/file", "old")
	f.symlink("dir", "way")
	f.symlink("way/file", "link")
	f.symlink(f.path("link"), "again")
	result, err := f.write(f.user, "again", "new", WriteOptions{})
	must(t, err)
	if result.InPlace || result.Created {
		t.Errorf("%+v", result)
	}
	f.wantContent(path, "new")
	f.symlink("dir/fresh", "dangling")
	result, err = f.write(f.user, "dangling", "made", WriteOptions{})
	if err != nil || !result.Created {
		t.Errorf("dangling: %+v, %v", result, err)
	}
	f.wantContent(f.path("dir/fresh"), "made")
	for _, name := range []string{"again", "link", "way", "dangling"} {
		if _, _, mode := f.owner(f.path(name)); mode&fs.ModeSymlink == 0 {
			t.Errorf("%s is no link any more", name)
		}
	}
	f.wantNames(f.path("dir"), "file", "fresh")
	f.symlink("circle", "circle")
	_, err = f.write(f.user, "circle", "x", WriteOptions{})
	wantErr(t, "circle", err, ErrLoop)
	for _, path := range []string{"dir", "way", "dir/", "dir/.", "new/", "/", "..", "way/.."} {
		_, err = f.write(f.user, path, "x", WriteOptions{})
		wantErr(t, path, err, ErrIsDirectory)
	}
	_, err = f.write(f.user, "dir/file/", "x", WriteOptions{})
	wantErr(t, "file with a slash", err, ErrNotDirectory)
	_, err = f.write(f.user, "/proc/self/fd/1", "x", WriteOptions{})
	if !errors.Is(err, ErrLoop) && !errors.Is(err, fs.ErrPermission) {
		t.Errorf("magic link: %v", err)
	}
}

func TestWriteHardLinkKeepsTheOtherName(t *testing.T) {
	f := newFixture(t)
	path := f.put("file", "old")
	must(t, os.Link(path, f.path("other")))
	result, err := f.write(f.user, path, "new", WriteOptions{})
	must(t, err)
	f.wantContent(path, "new")
	f.wantContent(f.path("other"), "old")
	if result.Info.Links != 1 {
		t.Errorf("%+v", result.Info)
	}
}

func TestWriteReplacesARunningProgram(t *testing.T) {
	f := newFixture(t)
	data, err := os.ReadFile("/bin/sleep")
	must(t, err)
	must(t, os.WriteFile(f.path("prog"), data, 0o755))
	f.give(f.path("prog"))
	proc, err := os.StartProcess(f.path("prog"), []string{"sleep", "60"}, &os.ProcAttr{})
	must(t, err)
	defer proc.Wait()
	defer proc.Kill()
	_, err = f.write(f.user, "prog", "new", WriteOptions{})
	must(t, err)
	f.wantContent(f.path("prog"), "new")
}

func TestWriteFIFO(t *testing.T) {
	f := newFixture(t)
	must(t, syscall.Mkfifo(f.path("fifo"), 0o666))
	f.give(f.path("fifo"))
	_, err := f.write(f.user, "fifo", "x", WriteOptions{})
	wantErr(t, "nobody reads", err, ErrNoReader)

	reader, err := os.OpenFile(f.path("fifo"), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	must(t, err)
	defer reader.Close()
	result, err := f.write(f.user, "fifo", "through", WriteOptions{})
	if err != nil || !result.InPlace {
		t.Errorf("%+v, %v", result, err)
	}
	got := make([]byte, 7)
	_, err = io.ReadFull(reader, got)
	if err != nil || string(got) != "through" {
		t.Errorf("%q, %v", got, err)
	}

	// A reader that does not read holds the writer until its context ends.
	ctx, cancel := context.WithCancelCause(f.ctx)
	gone := errors.New("the client went away")
	h, err := f.OpenWrite(ctx, f.user, "fifo", WriteOptions{})
	must(t, err)
	defer h.Abort()
	time.AfterFunc(50*time.Millisecond, func() { cancel(gone) })
	_, err = h.Write(make([]byte, 1<<20))
	wantErr(t, "full FIFO", err, gone)
}

func TestWriteSpecialFiles(t *testing.T) {
	f := newFixture(t)
	result, err := f.write(f.user, "/dev/null", "gone", WriteOptions{Fsync: true})
	if err != nil || !result.InPlace || result.Info.Type != TypeCharDevice {
		t.Errorf("/dev/null: %+v, %v", result, err)
	}
	must(t, unix.Mknod(f.path("socket"), unix.S_IFSOCK|0o666, 0))
	f.give(f.path("socket"))
	_, err = f.write(f.user, "socket", "x", WriteOptions{})
	wantErr(t, "socket", err, ErrNotSupportedType)
	needRoot(t)
	const path = "/proc/sys/kernel/domainname"
	old, err := os.ReadFile(path)
	must(t, err)
	result, err = f.write("root", path, string(old), WriteOptions{})
	if err != nil || !result.InPlace {
		t.Errorf("%s: %+v, %v", path, result, err)
	}
	_, err = f.write(f.user, path, "evil", WriteOptions{})
	wantErr(t, "as the user", err, fs.ErrPermission)
}

func TestWriteInPlaceWhereAFileCannotBeReplaced(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir := scratch(t, "")
	// A folder that the user may not write, with a file that it may.
	path := dir + "/file"
	must(t, os.WriteFile(path, []byte("a long old content"), 0o666))
	must(t, os.Chmod(path, 0o666))
	result, err := f.write(f.user, path, "new", WriteOptions{})
	if err != nil || !result.InPlace {
		t.Errorf("folder not writable: %+v, %v", result, err)
	}
	f.wantContent(path, "new")
	// Another user's file in a sticky folder, and in one of the user's own.
	must(t, os.Chmod(dir, 0o777|fs.ModeSticky))
	must(t, os.Chown(path, otherUID, otherUID))
	result, err = f.write(f.user, path, "newer", WriteOptions{})
	if err != nil || !result.InPlace {
		t.Errorf("sticky: %+v, %v", result, err)
	}
	f.wantContent(path, "newer")
	if uid, _, _ := f.owner(path); uid != otherUID {
		t.Errorf("owner is %d now", uid)
	}
	f.wantNames(dir, "file")
	// A file that something is mounted on (as container runtimes do it).
	target := f.put("resolv.conf", "under")
	must(t, os.WriteFile(dir+"/over", []byte("over"), 0o666))
	must(t, os.Chown(dir+"/over", testUID, testUID))
	must(t, unix.Mount(dir+"/over", target, "", unix.MS_BIND, ""))
	defer func() { must(t, unix.Unmount(target, 0)) }()
	result, err = f.write(f.user, target, "mounted", WriteOptions{Fsync: true, Mode: ptr[uint32](0o640)})
	if err != nil || !result.InPlace || result.Info.Mode != 0o640 {
		t.Errorf("mounted: %+v, %v", result, err)
	}
	f.wantContent(dir+"/over", "mounted")
	f.wantNames(f.home, "resolv.conf")
}

func TestWriteReadersSeeOldOrNewWhole(t *testing.T) {
	f := newFixture(t)
	contents := []string{strings.Repeat("a", 300_000), strings.Repeat("b", 200_000), strings.Repeat("c", 400_000)}
	path := f.put("file", contents[0])
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			got, err := os.ReadFile(path)
			if err != nil || !slices.Contains(contents, string(got)) {
				t.Errorf("a reader saw %d bytes, %v", len(got), err)
				return
			}
		}
	})
	var writers sync.WaitGroup
	for i := range 8 { // many writers of one path
		writers.Go(func() {
			for n := range 10 {
				if _, err := f.write(f.user, path, contents[(i+n)%3], WriteOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	wg.Wait()
	f.wantNames(f.home, "file")
}

func TestWriteManyWritersOfANewPath(t *testing.T) {
	f := newFixture(t)
	for round := range 10 {
		var wins, exclusive sync.WaitGroup
		made := make(chan int, 8)
		for i := range 8 {
			wins.Go(func() {
				if _, err := f.write(f.user, fmt.Sprintf("dir%d/any", round), strings.Repeat(fmt.Sprint(i), 1000), WriteOptions{CreateParents: true}); err != nil {
					t.Error(err)
				}
			})
			exclusive.Go(func() {
				_, err := f.write(f.user, fmt.Sprintf("one%d", round), fmt.Sprint(i), WriteOptions{Exclusive: true})
				if err == nil {
					made <- i
				} else if !errors.Is(err, fs.ErrExist) {
					t.Error(err)
				}
			})
		}
		wins.Wait()
		exclusive.Wait()
		got, err := os.ReadFile(f.path(fmt.Sprintf("dir%d/any", round)))
		if err != nil || len(got) != 1000 || strings.Trim(string(got), string(got[:1])) != "" {
			t.Errorf("%.20q, %v", got, err)
		}
		if len(made) != 1 {
			t.Fatalf("%d exclusive writers succeeded", len(made))
		}
		f.wantContent(f.path(fmt.Sprintf("one%d", round)), fmt.Sprint(<-made))
	}
}

func TestWriteHundredsOfMegabytesInFlatMemory(t *testing.T) {
	f := newFixture(t)
	chunk := pattern(256 << 10)
	h, err := f.OpenWrite(f.ctx, f.user, "big", WriteOptions{SumSHA256: true})
	must(t, err)
	defer h.Abort()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const chunks = 1000
	for range chunks {
		_, err := h.Write(chunk)
		must(t, err)
	}
	result, err := h.Commit()
	must(t, err)
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; result.Info.Size != chunks*int64(len(chunk)) || grown > 8<<20 {
		t.Errorf("%d bytes, %d allocated", result.Info.Size, grown)
	}
}

func TestWriteKeepsTheAccessList(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	// user::rw- user:other:r-- group::--- mask::r-- other::---, as setfacl(1)
	// writes it (acl(5), linux/posix_acl_xattr.h).
	acl := []byte{2, 0, 0, 0,
		1, 0, 6, 0, 255, 255, 255, 255,
		2, 0, 4, 0, byte(otherUID & 255), byte(otherUID >> 8), 0, 0,
		4, 0, 0, 0, 255, 255, 255, 255,
		16, 0, 4, 0, 255, 255, 255, 255,
		32, 0, 0, 0, 255, 255, 255, 255}
	for _, named := range []bool{false, true} {
		f.namedTemp = named
		path := f.put(fmt.Sprintf("file-%v", named), "old")
		if err := unix.Setxattr(path, aclAttribute, acl, 0); errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("the temporary folder's file system has no access lists")
		} else {
			must(t, err)
		}
		_, err := f.write(f.user, path, "new", WriteOptions{})
		must(t, err)
		if got, err := f.read(otherUser, path, 0, 0); err != nil || got != "new" {
			t.Errorf("who is on the list: %q, %v", got, err)
		}
		_, err = f.read("31999", path, 0, 0)
		wantErr(t, "who is not", err, fs.ErrPermission)

		// A file without a list gets none from the folder's default.
		plain := f.put(fmt.Sprintf("plain-%v", named), "old")
		must(t, os.Chmod(plain, 0o600))
		must(t, unix.Setxattr(f.home, "system.posix_acl_default", acl, 0))
		_, err = f.write(f.user, plain, "new", WriteOptions{})
		must(t, err)
		must(t, unix.Removexattr(f.home, "system.posix_acl_default"))
		_, err = f.read(otherUser, plain, 0, 0)
		wantErr(t, "the default list was taken on", err, fs.ErrPermission)
		if _, err := unix.Getxattr(plain, aclAttribute, nil); !errors.Is(err, unix.ENODATA) {
			t.Errorf("access list: %v", err)
		}
	}
}
