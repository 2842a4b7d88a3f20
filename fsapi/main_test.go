package fsapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/test/need"
)

// helperMode in the environment makes the test binary one of the helper
// programs below.
const helperMode = "FSAPI_TEST_HELPER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperMode); mode != "" {
		if err := runHelper(mode, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	files := openDescriptors()
	code := m.Run()
	if code == 0 {
		code = leaks(files)
	}
	os.Exit(code)
}

// leaks reports goroutines and descriptors that the tests left.
func leaks(before int) int {
	for range 200 {
		if runtime.NumGoroutine() <= 2 && openDescriptors() <= before {
			return 0
		}
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	fmt.Fprintf(os.Stderr, "left over: %d goroutines, %d descriptors (%d before)\n%s\n",
		runtime.NumGoroutine(), openDescriptors(), before, buf[:runtime.Stack(buf, true)])
	return 1
}

// openDescriptors counts this process's descriptors, but for those that the
// runtime keeps for its poller.
func openDescriptors() int {
	links, _ := filepath.Glob("/proc/self/fd/*")
	count := 0
	for _, link := range links {
		target, err := os.Readlink(link)
		if err == nil && !strings.Contains(target, "eventpoll") && !strings.Contains(target, "eventfd") && !strings.HasSuffix(target, "/fd") {
			count++
		}
	}
	return count
}

const (
	testUser  = "tester" // with a home that is the test's folder
	testUID   = 31001
	otherUser = "other"
	otherUID  = 31002
	shareGID  = 31044 // a group that tester is in
)

// fixture is an FS with users of its own and a folder of the user's.
type fixture struct {
	*FS
	t    *testing.T
	ctx  context.Context
	user string // "tester" as root, else ""
	home string // belongs to the user
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	base := scratch(t, "")
	f := &fixture{t: t, ctx: t.Context(), home: filepath.Join(base, "home")}
	must(t, os.Mkdir(f.home, 0o755))
	root := filepath.Join(base, "root")
	must(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
	passwd := fmt.Sprintf("root:x:0:0::/root:/bin/sh\n%s:x:%d:%d::%s:/bin/sh\n%s:x:%d:%d::/:/bin/sh\nself:x:%d:%d::%s:/bin/sh\n",
		testUser, testUID, testUID, f.home, otherUser, otherUID, otherUID, os.Geteuid(), os.Getegid(), f.home)
	group := fmt.Sprintf("%s:x:%d:\nshare:x:%d:%s\n", testUser, testUID, shareGID, testUser)
	must(t, os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(passwd), 0o644))
	must(t, os.WriteFile(filepath.Join(root, "etc/group"), []byte(group), 0o644))
	if os.Geteuid() == 0 {
		f.user = testUser
		must(t, os.Chown(f.home, testUID, testUID))
	}
	f.FS = New(Config{Accounts: account.Open(root)})
	return f
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Skip(t, "acting as another user needs root: run the tests as root")
	}
}

// scratch is a new folder that everybody can enter; t.TempDir's parents are not.
func scratch(t *testing.T, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "fsapi-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	return dir
}

// tmpfs mounts a new file system of that size, for the user.
func (f *fixture) tmpfs(size string) string {
	f.t.Helper()
	needRoot(f.t)
	dir := scratch(f.t, "")
	must(f.t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+",mode=0777"))
	f.t.Cleanup(func() { must(f.t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// disk makes a file system of that size in a file and mounts it, for the user.
func (f *fixture) disk(size int64, mkfs ...string) string {
	t := f.t
	t.Helper()
	needRoot(t)
	if _, err := exec.LookPath(mkfs[0]); err != nil {
		need.Skip(t, "%v: install the package that has it", err)
	}
	image, dir := filepath.Join(scratch(t, ""), "image"), scratch(t, "")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, size))
	if out, err := exec.Command(mkfs[0], append(mkfs[1:], image)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", mkfs[0], err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		need.Skip(t, "mounting what %s makes needs loop devices and a kernel that knows it: %v: %s", mkfs[0], err, out)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	must(t, os.Chmod(dir, 0o777))
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// path is a path in the user's folder.
func (f *fixture) path(elem ...string) string {
	return filepath.Join(append([]string{f.home}, elem...)...)
}

// put makes a file of the user's and returns its path.
func (f *fixture) put(name, content string) string {
	f.t.Helper()
	path := f.path(name)
	must(f.t, os.WriteFile(path, []byte(content), 0o644))
	f.give(path)
	return path
}

// give makes the user the owner.
func (f *fixture) give(paths ...string) {
	f.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	for _, path := range paths {
		must(f.t, os.Lchown(path, testUID, testUID))
	}
}

// mkdir makes a folder of the user's.
func (f *fixture) mkdir(name string) string {
	f.t.Helper()
	must(f.t, os.Mkdir(f.path(name), 0o755))
	f.give(f.path(name))
	return f.path(name)
}

func (f *fixture) symlink(target, name string) string {
	f.t.Helper()
	must(f.t, os.Symlink(target, f.path(name)))
	f.give(f.path(name))
	return f.path(name)
}

// remove is Remove for tests that do not count.
func (f *fixture) remove(user, path string, opts RemoveOptions) error {
	_, err := f.Remove(f.ctx, user, path, opts)
	return err
}

// makeDir is MakeDir for tests of what is made.
func (f *fixture) makeDir(user, path string, mode *uint32, parents bool) (Info, error) {
	info, _, err := f.MakeDir(f.ctx, user, path, mode, parents)
	return info, err
}

// read reads a file through the FS; length 0 is to its end.
func (f *fixture) read(user, path string, offset, length uint64) (string, error) {
	limit := &length
	if length == 0 {
		limit = nil
	}
	h, err := f.OpenRead(f.ctx, user, path, offset, limit)
	if err != nil {
		return "", err
	}
	defer h.Close()
	data, err := io.ReadAll(h)
	return string(data), err
}

// write writes a whole file through the FS.
func (f *fixture) write(user, path, content string, opts WriteOptions) (WriteResult, error) {
	h, err := f.OpenWrite(f.ctx, user, path, opts)
	if err != nil {
		return WriteResult{}, err
	}
	defer h.Abort()
	if _, err := io.Copy(onlyWriter{h}, strings.NewReader(content)); err != nil {
		return WriteResult{}, err
	}
	return h.Commit()
}

type onlyWriter struct{ io.Writer }

func (f *fixture) wantContent(path, want string) {
	f.t.Helper()
	got, err := os.ReadFile(path)
	must(f.t, err)
	if string(got) != want {
		f.t.Errorf("%s contains %.80q (%d bytes), want %.80q (%d)", path, got, len(got), want, len(want))
	}
}

// wantNames checks which names a folder has, litter included.
func (f *fixture) wantNames(dir string, want ...string) {
	f.t.Helper()
	entries, err := os.ReadDir(dir)
	must(f.t, err)
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		f.t.Errorf("%s has %q, want %q", dir, got, want)
	}
}

func (f *fixture) owner(path string) (uid, gid uint32, mode fs.FileMode) {
	f.t.Helper()
	info, err := os.Lstat(path)
	must(f.t, err)
	st := info.Sys().(*syscall.Stat_t)
	return st.Uid, st.Gid, info.Mode()
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func wantInvalid(t *testing.T, what string, err error, field string) {
	t.Helper()
	var invalid *InvalidError
	if !errors.As(err, &invalid) || invalid.Field != field {
		t.Errorf("%s: %v, want an InvalidError for %q", what, err, field)
	}
}

func ptr[T any](v T) *T { return &v }

// pattern is n bytes that repeat nowhere near.
func pattern(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%08d", i)
	}
	return b.Bytes()[:n]
}
