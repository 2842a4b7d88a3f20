package fsapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestReadRanges(t *testing.T) {
	f := newFixture(t)
	path := f.put("file", "0123456789")
	for _, c := range []struct {
		offset, length uint64
		want           string
	}{{0, 0, "0123456789"}, {3, 0, "3456789"}, {3, 4, "3456"}, {8, 100, "89"}, {10, 0, ""}, {10, 5, ""}} {
		got, err := f.read(f.user, path, c.offset, c.length)
		if err != nil || got != c.want {
			t.Errorf("[%d, +%d) = %q, %v; want %q", c.offset, c.length, got, err, c.want)
		}
	}
	none, err := f.OpenRead(f.ctx, f.user, path, 3, ptr[uint64](0))
	must(t, err)
	defer none.Close()
	if n, err := none.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) || none.Info.Size != 10 {
		t.Errorf("a length of 0: %d bytes, %v, %+v", n, err, none.Info)
	}
	_, err = f.read(f.user, path, 11, 0)
	wantErr(t, "past the end", err, ErrOffsetPastEnd)
	_, err = f.read(f.user, path, 1<<63, 0)
	wantInvalid(t, "huge offset", err, "offset")
	_, err = f.read(f.user, path, 0, 1<<63)
	wantInvalid(t, "huge length", err, "length")
	if got, err := f.read(f.user, "file", 0, 0); err != nil || got != "0123456789" {
		t.Errorf("relative to the home: %q, %v", got, err)
	}
}

func TestReadHandleDescribesTheFile(t *testing.T) {
	f := newFixture(t)
	path := f.put("file", "abc")
	when := time.Unix(1_000_000_000, 123456789)
	must(t, os.Chtimes(path, when, when))
	must(t, os.Chmod(path, 0o640|fs.ModeSetuid))
	h, err := f.OpenRead(f.ctx, f.user, f.symlink("file", "link"), 0, nil)
	must(t, err)
	defer h.Close()
	if h.Info.Size != 3 || h.Info.Mode != 0o4640 || !h.Info.ModTime.Equal(when) || h.Info.Type != TypeRegular {
		t.Errorf("%+v", h.Info)
	}
}

func TestReadErrors(t *testing.T) {
	f := newFixture(t)
	f.put("file", "x")
	f.symlink("circle", "circle")
	f.symlink("nowhere", "broken")
	for path, want := range map[string]error{
		"missing": fs.ErrNotExist, "broken": fs.ErrNotExist, ".": ErrIsDirectory, "/": ErrIsDirectory,
		"file/": ErrNotDirectory, "file/x": ErrNotDirectory, "circle": ErrLoop,
		strings.Repeat("n", 300): ErrNameTooLong,
	} {
		_, err := f.read(f.user, path, 0, 0)
		wantErr(t, path, err, want)
	}
	_, err := f.read(f.user, "", 0, 0)
	wantInvalid(t, "empty path", err, "path")
	_, err = f.read(f.user, "a\x00b", 0, 0)
	wantInvalid(t, "NUL", err, "path")
}

func TestReadSpecialFilesNeverHangs(t *testing.T) {
	f := newFixture(t)
	must(t, syscall.Mkfifo(f.path("fifo"), 0o666))
	f.symlink("fifo", "link")
	listener, err := net.Listen("unix", f.path("socket"))
	must(t, err)
	defer listener.Close()
	for _, path := range []string{"fifo", "link", "socket"} {
		_, err := f.read(f.user, path, 0, 0)
		wantErr(t, path, err, ErrNotSupportedType)
	}
	_, err = f.read(f.user, "/dev/zero", 0, 0)
	wantInvalid(t, "/dev/zero without a length", err, "length")
	if got, err := f.read(f.user, "/dev/zero", 0, 70000); err != nil || got != strings.Repeat("\x00", 70000) {
		t.Errorf("/dev/zero: %d bytes, %v", len(got), err)
	}
	if got, err := f.read(f.user, "/dev/null", 0, 10); err != nil || got != "" {
		t.Errorf("/dev/null: %q, %v", got, err)
	}
}

func TestReadProcAndSys(t *testing.T) {
	f := newFixture(t)
	for _, path := range []string{"/proc/cpuinfo", "/proc/version", "/proc/sys/kernel/ostype", "/sys/kernel/mm/transparent_hugepage/enabled"} {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Logf("not on this kernel: %v", err)
			continue
		}
		got, err := f.read(f.user, path, 0, 0)
		if err != nil || len(got) == 0 || path != "/proc/cpuinfo" && got != string(want) {
			t.Errorf("%s: %.60q, %v", path, got, err)
		}
	}
	if got, err := f.read(f.user, "/proc/sys/kernel/ostype", 2, 3); err != nil || got != "nux" {
		t.Errorf("part of a /proc file: %q, %v", got, err)
	}
	_, err := f.read(f.user, "/proc/sys/kernel/ostype", 100, 0)
	wantErr(t, "past the end of a /proc file", err, ErrOffsetPastEnd)
}

func TestReadMagicLinksAreRefused(t *testing.T) {
	f := newFixture(t)
	path := f.put("file", "x")
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	for _, user := range []string{f.user, ""} {
		for _, path := range []string{"/proc/self/fd/0", "/proc/self/root/etc/passwd", "/proc/self/cwd/main_test.go", "/proc/thread-self/exe", "/dev/stdin"} {
			_, err := f.read(user, path, 0, 1)
			if !errors.Is(err, ErrLoop) && !errors.Is(err, fs.ErrPermission) {
				t.Errorf("user %q, %s: %v, want ErrLoop", user, path, err)
			}
		}
	}
}

func TestReadGuestdsOwnProcFilesIsDenied(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	for _, path := range []string{"/proc/self/maps", "/proc/self/environ", "/proc/thread-self/maps", "/proc/self/smaps", "/proc/self/mem"} {
		_, err := f.read(f.user, path, 0, 0)
		wantErr(t, path, err, fs.ErrPermission)
	}
	if got, err := f.read("root", "/proc/self/maps", 0, 0); err != nil || got == "" {
		t.Errorf("root: %q, %v", got, err)
	}
}

func TestReadSparseAndGrowing(t *testing.T) {
	f := newFixture(t)
	path := f.put("sparse", "")
	must(t, os.Truncate(path, 3<<30))
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	defer file.Close()
	_, err = file.WriteAt([]byte("here"), 2<<30)
	must(t, err)
	if got, err := f.read(f.user, path, 2<<30-2, 8); err != nil || got != "\x00\x00here\x00\x00" {
		t.Errorf("%q, %v", got, err)
	}
	grows := f.put("grows", "one ")
	h, err := f.OpenRead(f.ctx, f.user, grows, 0, nil)
	must(t, err)
	defer h.Close()
	buf := make([]byte, 4)
	_, err = io.ReadFull(h, buf)
	must(t, err)
	more, err := os.OpenFile(grows, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer more.Close()
	_, err = more.WriteString("two")
	must(t, err)
	if rest, err := io.ReadAll(h); err != nil || string(rest) != "two" {
		t.Errorf("what was added: %q, %v", rest, err)
	}
}

func TestReadEndsWithItsContextAndHandle(t *testing.T) {
	f := newFixture(t)
	path := f.put("file", strings.Repeat("x", 100))
	gone := errors.New("the client went away")
	ctx, cancel := context.WithCancelCause(f.ctx)
	h, err := f.OpenRead(ctx, f.user, path, 0, nil)
	must(t, err)
	_, err = h.Read(make([]byte, 10))
	must(t, err)
	cancel(gone)
	_, err = h.Read(make([]byte, 10))
	wantErr(t, "after the cancel", err, gone)
	must(t, h.Close())
	must(t, h.Close())
	_, err = f.OpenRead(ctx, f.user, path, 0, nil)
	wantErr(t, "opening with an ended context", err, gone)

	h, err = f.OpenRead(f.ctx, f.user, path, 0, nil)
	must(t, err)
	must(t, h.Close())
	_, err = h.Read(make([]byte, 10))
	wantErr(t, "after Close", err, ErrClosed)
}

func TestReadHundredsOfMegabytesInFlatMemory(t *testing.T) {
	f := newFixture(t)
	const size = 300 << 20
	path := f.put("big", "")
	must(t, os.Truncate(path, size))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	h, err := f.OpenRead(f.ctx, f.user, path, 0, nil)
	must(t, err)
	defer h.Close()
	buf := make([]byte, 256<<10)
	zero := make([]byte, len(buf))
	total := 0
	for {
		n, err := h.Read(buf)
		if !bytes.Equal(buf[:n], zero[:n]) {
			t.Fatal("wrong bytes")
		}
		if total += n; err == io.EOF {
			break
		}
		must(t, err)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; total != size || grown > 8<<20 {
		t.Errorf("%d bytes read, %d allocated", total, grown)
	}
}

func TestReadWithoutOpenat2(t *testing.T) {
	f := newFixture(t)
	openat2Missing.Store(true)
	t.Cleanup(func() { openat2Missing.Store(false) })
	f.mkdir("dir")
	f.put("dir/file", "content")
	f.symlink("dir", "link")
	f.symlink("link/../dir//file", "relative")
	f.symlink(f.path("dir/file"), "absolute")
	f.symlink("circle", "circle")
	f.symlink("nowhere", "broken")
	for _, path := range []string{"dir/file", "link/file", "relative", "absolute", "./dir/./file", "link/../dir/file", "/proc/../" + f.path("relative")} {
		if got, err := f.read(f.user, path, 0, 0); err != nil || got != "content" {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if got, err := f.read(f.user, "/proc/self/../version", 0, 0); err != nil || got == "" {
		t.Errorf("an ordinary link of /proc: %q, %v", got, err)
	}
	for path, want := range map[string]error{
		"circle": ErrLoop, "broken": fs.ErrNotExist, "dir/file/": ErrNotDirectory, "dir": ErrIsDirectory, "link/": ErrIsDirectory,
		"relative/": ErrNotDirectory, "/proc/self/root/etc/passwd": ErrLoop, "/proc/self/fd/0": ErrLoop,
	} {
		_, err := f.read("", path, 0, 0)
		if os.Geteuid() == 0 {
			_, err = f.read("root", strings.Replace(f.path("x"), "x", "", 1)+path, 0, 0)
			if path[0] == '/' {
				_, err = f.read("root", path, 0, 0)
			}
		}
		wantErr(t, path, err, want)
	}
	_, err := f.write(f.user, "new/sub/file", "written", WriteOptions{CreateParents: true})
	must(t, err)
	_, err = f.write(f.user, "relative", "replaced", WriteOptions{})
	must(t, err)
	f.wantContent(f.path("new/sub/file"), "written")
	f.wantContent(f.path("dir/file"), "replaced")
	_, err = openNoLinks(unix.AT_FDCWD, f.path("link/file"), unix.O_RDONLY, 0)
	wantErr(t, "no links", err, unix.ELOOP)
}
