package fsapi

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"guestd.internal/test/need"
)

// TestWatchTellsNewTreesExactlyOnce makes and fills deep trees at once, in the
// hope that the watch is put in place at every possible moment.
func TestWatchTellsNewTreesExactlyOnce(t *testing.T) {
	f := newFixture(t)
	root := f.mkdir("root")
	w := f.watch(root, WatchOptions{Recursive: true})
	rounds := stress(500, 5_000)
	go func() {
		for i := range rounds {
			tree := fmt.Sprintf("%s/%d", root, i)
			os.MkdirAll(tree+"/a/b/c", 0o755)
			for _, name := range []string{"/f", "/a/f", "/a/b/f", "/a/b/c/f", "/a/b/c/g"} {
				os.WriteFile(tree+name, nil, 0o644)
			}
			if i%2 == 0 {
				os.Rename(tree, fmt.Sprintf("%s/%d-moved", root, i))
			}
		}
		os.WriteFile(root+"/end", nil, 0o644)
	}()
	m := newMirror()
	for {
		event, err := w.Next(w.ctx)
		must(t, err)
		if event.Path == root+"/end" {
			break
		}
		if event.Kind == WatchOverflow {
			t.Fatal("events were lost")
		}
		if err := m.apply(w, event, true); err != nil {
			t.Fatal(err)
		}
	}
	if told := len(m.paths("", map[string]bool{})); told != rounds*9 {
		t.Errorf("%d entries, want %d", told, rounds*9)
	}
	real := look(t, root)
	real.take("end")
	m.wantSame(t, real)
}

func TestWatchThousandsOfFolders(t *testing.T) {
	f := newFixture(t)
	root := f.mkdir("root")
	const folders = 3_000
	last := ""
	for i := range folders {
		last = fmt.Sprintf("%s/%d/%d", root, i%50, i)
		must(t, os.MkdirAll(last, 0o755))
	}
	w := f.watch(root, WatchOptions{Recursive: true})
	must(t, os.WriteFile(last+"/f", nil, 0o644))
	wantLines(t, "in the last", w.until(WatchCreated), "created "+last[len(root)+1:]+"/f")
}

// TestWatchKeepsASlowClientBounded has a client that takes nothing while there
// are more changes than may be held.
func TestWatchKeepsASlowClientBounded(t *testing.T) {
	f := newFixture(t)
	f.watchQueue = 64 << 10
	root := f.mkdir("root")
	w := f.watch(root, WatchOptions{Recursive: true})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 40_000 {
		path := fmt.Sprintf("%s/%d", root, i%1000)
		must(t, os.WriteFile(path, nil, 0o644))
		must(t, os.Remove(path))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 24<<20 {
		t.Errorf("%d bytes are held for a client that takes nothing", grown)
	}
	must(t, os.Mkdir(root+"/before", 0o755))
	overflows := 0
	for overflows == 0 {
		event, err := w.Next(w.ctx)
		must(t, err)
		if event.Kind == WatchOverflow {
			overflows++
		}
	}
	must(t, os.WriteFile(root+"/before/f", nil, 0o644))
	lines := w.until(WatchCreated)
	if text := strings.Join(lines, "; "); !strings.HasSuffix(text, "created before/f") {
		t.Errorf("after the overflow: %s", text)
	}
}

// TestWatchOverflowOfTheKernel fills the kernel's queue while the client's is full.
func TestWatchOverflowOfTheKernel(t *testing.T) {
	f := newFixture(t)
	root := f.mkdir("root")
	w := f.watch(root, WatchOptions{Recursive: true})
	must(t, os.MkdirAll(root+"/d", 0o755))
	name := strings.Repeat("n", 200)
	for i := range 80_000 { // more than both queues hold
		path := fmt.Sprintf("%s/d/%d%s", root, i%7, name)
		if i%14 < 7 {
			must(t, os.WriteFile(path, nil, 0o644))
		} else {
			must(t, os.Remove(path))
		}
	}
	for {
		event, err := w.Next(w.ctx)
		must(t, err)
		if event.Kind == WatchOverflow {
			break
		}
	}
	wantLines(t, "then", w.until(), "")
	must(t, os.WriteFile(root+"/d/f", nil, 0o644))
	wantLines(t, "then", w.until(WatchCreated), "created d/f")
}

func TestWatchEndsWhenItsRootIsGoneAfterAnOverflow(t *testing.T) {
	f := newFixture(t)
	f.watchQueue = 1
	root := f.mkdir("root")
	w := f.watch(root, WatchOptions{Recursive: true})
	f.shell(root, `: >a; : >b; : >c; rm a b c; rmdir ../root`)
	lines := w.rest()
	if last := lines[len(lines)-1]; last != "ended: removed" {
		t.Errorf("%q", lines)
	}
}

// TestWatchNeverLeavesItsTree swaps a folder for a link to root's files while
// things happen in it.
func TestWatchNeverLeavesItsTree(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	root, aside := f.mkdir("root"), f.mkdir("aside")
	dir, _ := secret(t)
	must(t, os.Chmod(dir, 0o755))
	w := f.watch(root, WatchOptions{Recursive: true})
	for i := range stress(300, 3_000) {
		name := fmt.Sprintf("%s/%d", root, i)
		must(t, os.Mkdir(name, 0o755))
		must(t, os.Rename(name, fmt.Sprintf("%s/%d", aside, i)))
		must(t, os.Symlink(dir, name))
	}
	for _, line := range w.until() {
		if strings.Contains(line, "secret") || strings.Contains(line, "closed") {
			t.Fatalf("told %q", line)
		}
	}
}

// inNamespace in the environment says that the test has a user namespace of its
// own, whose limits it may lower.
const inNamespace = "FSAPI_TEST_NAMESPACE"

func TestWatchLimitOfTheKernel(t *testing.T) {
	needRoot(t)
	if os.Getenv(inNamespace) == "" {
		runInUserNamespace(t)
		return
	}
	f := newFixture(t)
	root := f.mkdir("root")
	must(t, os.WriteFile("/proc/sys/user/max_inotify_watches", []byte("20"), 0o644))
	w := f.watch(root, WatchOptions{Recursive: true})
	for i := range 30 {
		must(t, os.Mkdir(filepath.Join(root, fmt.Sprint(i)), 0o755))
	}
	var limit *WatchLimitError
	var err error
	for err == nil {
		_, err = w.Next(w.ctx)
	}
	if !errors.As(err, &limit) || limit.Limit != "fs.inotify.max_user_watches" || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("while it watches: %v", err)
	}
	w.Close()
	if _, err = f.Watch(f.ctx, f.user, root, WatchOptions{Recursive: true}); !errors.As(err, &limit) {
		t.Errorf("at its beginning: %v", err)
	}
	must(t, os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("0"), 0o644))
	if _, err = f.Watch(f.ctx, f.user, root, WatchOptions{}); !errors.As(err, &limit) || limit.Limit != "fs.inotify.max_user_instances" {
		t.Errorf("without instances: %v", err)
	}
}

// runInUserNamespace runs the test again, where the same ids mean the same users.
func runInUserNamespace(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	ids := []syscall.SysProcIDMap{{Size: 1 << 16}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EINVAL) {
		need.Skip(t, "no user namespace is to be had: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
