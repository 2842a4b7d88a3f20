package fsapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watchPatience ends a test whose event never comes.
var watchPatience = time.Duration(stress(60, 1200)) * time.Second

// testWatch is a watch on the user's folder or below it.
type testWatch struct {
	*Watcher
	f    *fixture
	ctx  context.Context
	root string
	opts WatchOptions
	ends int
}

func (f *fixture) watch(path string, opts WatchOptions) *testWatch {
	f.t.Helper()
	ctx, cancel := context.WithTimeoutCause(f.ctx, watchPatience, errors.New("the event never came"))
	f.t.Cleanup(cancel)
	w, err := f.Watch(ctx, f.user, path, opts)
	must(f.t, err)
	f.t.Cleanup(w.Close)
	return &testWatch{Watcher: w, f: f, ctx: ctx, root: path, opts: opts}
}

// line shows an event with paths below the watched one: folders end in a slash.
func (w *testWatch) line(e WatchEvent) string {
	short := func(path string) string {
		path = strings.TrimPrefix(strings.TrimPrefix(path, w.root), "/")
		if path == "" {
			path = "."
		}
		if e.Type == TypeDirectory {
			path += "/"
		}
		return path
	}
	switch e.Kind {
	case WatchOverflow:
		return "overflow"
	case WatchEnded:
		return "ended: " + e.End.String()
	case WatchRenamed:
		return "renamed " + short(e.OldPath) + " -> " + short(e.Path)
	}
	return e.Kind.String() + " " + short(e.Path)
}

// until returns what is told until a new file appears that is made now.
func (w *testWatch) until(kinds ...WatchKind) []string {
	w.f.t.Helper()
	w.ends++
	mark := filepath.Join(w.root, fmt.Sprintf("end-%d", w.ends))
	must(w.f.t, os.WriteFile(mark, nil, 0o644))
	var lines []string
	for {
		event, err := w.Next(w.ctx)
		must(w.f.t, err)
		if event.Path == mark {
			if event.Kind == WatchWriteClosed {
				return lines
			}
			continue
		}
		if len(kinds) == 0 || slices.Contains(kinds, event.Kind) {
			lines = append(lines, w.line(event))
		}
	}
}

// wantAllWatched makes a file in each folder of the tree that is told, and checks
// that each is.
func (w *testWatch) wantAllWatched() {
	w.f.t.Helper()
	if w.opts.Include != nil || w.opts.Exclude != nil {
		return
	}
	var want []string
	for path := range look(w.f.t, w.root).paths("", map[string]bool{}) {
		if strings.HasSuffix(path, "/") && w.opts.Recursive {
			want = append(want, "created "+path+"probe")
			must(w.f.t, os.WriteFile(filepath.Join(w.root, path, "probe"), nil, 0o644))
		}
	}
	got := w.until(WatchCreated)
	slices.Sort(got)
	slices.Sort(want)
	wantLines(w.f.t, "probes", got, strings.Join(want, "; "))
}

// rest returns what is told until the end.
func (w *testWatch) rest() []string {
	w.f.t.Helper()
	var lines []string
	for {
		event, err := w.Next(w.ctx)
		if errors.Is(err, io.EOF) {
			return lines
		}
		must(w.f.t, err)
		lines = append(lines, w.line(event))
	}
}

// shell runs a script in a folder.
func (f *fixture) shell(dir, script string) {
	f.t.Helper()
	cmd := exec.Command("/bin/sh", "-e", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

func wantLines(t *testing.T, what string, got []string, want string) {
	t.Helper()
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("%s\n got %s\nwant %s", what, text, want)
	}
}

// TestWatchTells has, for each case, what is there before, what is done, and what
// is told of it, as "event path; …". Where a folder is new, of what is done in it
// at once may be told more than once that it was written.
func TestWatchTells(t *testing.T) {
	structure := []WatchKind{WatchCreated, WatchRemoved, WatchRenamed, WatchOverflow, WatchEnded}
	for _, c := range []struct {
		name, before, do, want string
		opts                   WatchOptions
		kinds                  []WatchKind
	}{
		{"write", ``, `echo x >f`, "created f; written f; write-closed f", WatchOptions{}, nil},
		{"append", `echo x >f`, `echo y >>f`, "written f; write-closed f", WatchOptions{}, nil},
		{"truncate", `echo x >f`, `: >f`, "written f; write-closed f", WatchOptions{}, nil},
		{"read", `echo x >f`, `cat f`, "", WatchOptions{}, nil},
		{"mode", `echo x >f; mkdir d`, `chmod 600 f; chmod 700 d .`, "attributes f; attributes d/; attributes ./", WatchOptions{Recursive: true}, nil},
		{"times", `echo x >f`, `touch -d 2001-01-01 f`, "attributes f", WatchOptions{}, []WatchKind{WatchAttributes}},
		{"remove", `echo x >f; ln -s f l; mkdir d`, `rm f l; rmdir d`, "removed f; removed l; removed d/", WatchOptions{Recursive: true}, nil},
		{"types", ``, `mkdir d; ln -s d l; mkfifo p`, "created d/; created l; created p", WatchOptions{}, nil},
		{"hard link", `echo x >f`, `ln f g`, "created g", WatchOptions{}, structure},
		{"rename", `echo x >a`, `mv a b`, "renamed a -> b", WatchOptions{}, nil},
		{"rename back", `echo x >a`, `mv a b; mv b a`, "renamed a -> b; renamed b -> a", WatchOptions{}, nil},
		{"rename a folder back", `mkdir a; echo x >a/f`, `mv a b; mv b a; echo y >a/f`, "renamed a/ -> b/; renamed b/ -> a/; written a/f; write-closed a/f", WatchOptions{Recursive: true}, nil},
		{"rename over", `echo x >a; echo y >b`, `mv a b`, "renamed a -> b", WatchOptions{}, nil},
		{"rename across folders", `mkdir -p a/b c; echo x >a/b/f`, `mv a/b/f c/g`, "renamed a/b/f -> c/g", WatchOptions{Recursive: true}, nil},
		{"rename a tree", `mkdir -p a/b c; echo x >a/b/f`, `mv a c/d; echo y >c/d/b/f; rm c/d/b/f`, "renamed a/ -> c/d/; written c/d/b/f; write-closed c/d/b/f; removed c/d/b/f", WatchOptions{Recursive: true}, nil},
		{"rename a folder over an empty one", `mkdir -p a b; echo x >a/f`, `mv -T a b; echo y >b/f`, "renamed a/ -> b/; written b/f; write-closed b/f", WatchOptions{Recursive: true}, nil},
		{"atomic write", `echo x >f`, `echo y >.tmp; mv .tmp f`, "created .tmp; written .tmp; write-closed .tmp; renamed .tmp -> f", WatchOptions{}, nil},
		{"move in", `echo x >../f`, `mv ../f .`, "created f", WatchOptions{}, nil},
		{"move out", `echo x >f`, `mv f ..`, "removed f", WatchOptions{}, nil},
		{"move many out", `mkdir ../o d; for i in 1 2 3; do echo x >f$i; done`, `mv f1 f2 f3 d ../o`, "removed f1; removed f2; removed f3; removed d/", WatchOptions{Recursive: true}, nil},
		{"move a tree in", `mkdir -p ../d/e; echo x >../d/e/f`, `mv ../d .`, "created d/; created d/e/; created d/e/f", WatchOptions{Recursive: true}, nil},
		{"move a tree out", `mkdir -p d/e; mkdir ../o`, `mv d ../o; echo x >../o/d/e/f`, "removed d/", WatchOptions{Recursive: true}, nil},
		{"move a tree out and in", `mkdir -p d/e; mkdir ../o; echo x >d/e/f`, `mv d ../o; mv ../o/d b`, "removed d/; created b/; created b/e/; created b/e/f", WatchOptions{Recursive: true}, nil},
		{"new folders at once", ``, `mkdir -p a/b/c; echo x >a/b/c/f; ln -s b a/l`, "created a/; created a/b/; created a/b/c/; created a/b/c/f; created a/l", WatchOptions{Recursive: true}, structure},
		{"remove a tree", `mkdir -p a/b; echo x >a/b/f`, `rm -r a`, "removed a/b/f; removed a/b/; removed a/", WatchOptions{Recursive: true}, nil},
		{"links are not entered", `mkdir ../o; ln -s ../o l`, `echo x >l/f; ln -s .. up`, "created up", WatchOptions{Recursive: true}, nil},
		{"not recursive", `mkdir -p a/b`, `echo x >a/f; mkdir c; echo x >c/f; mv a d; rmdir d/b`, "created c/; renamed a/ -> d/", WatchOptions{}, structure},
		{"made and moved at once", ``, `mkdir a; echo x >a/f; mv a b; echo y >b/g`, "", WatchOptions{Recursive: true}, []WatchKind{WatchEnded}},
		{"include", `mkdir d e; echo x >d/x.go`, `echo x >a.go; echo x >a.c; mv a.c b.go; mv a.go a.c; echo x >d/d.go; mv d f; rmdir e`, "created a.go; created b.go; removed a.go; created d/d.go; renamed d/ -> f/", WatchOptions{Recursive: true, Include: []string{"*.go", "end-*"}}, structure},
		{"exclude", `mkdir .git d`, `echo x >.git/f; echo x >d/f; mv d .git/; mv .git/d e; mkdir -p n/.git/x; rm -r .git`, "created d/f; removed d/; created e/; created e/f; created n/", WatchOptions{Recursive: true, Exclude: []string{".git"}}, structure},
		{"by path", `mkdir -p a/x b; echo x >a/x/f`, `mv a c`, "removed a/; created c/; created c/x/; created c/x/f", WatchOptions{Recursive: true, Exclude: []string{"a/x/**"}}, structure},
		{"by path back", `mkdir -p c/x b; echo x >c/x/f`, `mv c a`, "removed c/; created a/; created a/x/", WatchOptions{Recursive: true, Exclude: []string{"a/x/**"}}, structure},
		{"not text", ``, `f=$(printf '\377\n\001'); echo x >"$f"; mv "$f" "$f$f"`, "created \xff\n\x01; renamed \xff\n\x01 -> \xff\n\x01\xff\n\x01", WatchOptions{}, structure},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			root := f.mkdir("root")
			f.shell(root, c.before)
			w := f.watch(root, c.opts)
			f.shell(root, c.do)
			wantLines(t, c.do, w.until(c.kinds...), c.want)
			w.wantAllWatched()
		})
	}
}

func TestWatchTellsTypesTimesAndItsRoot(t *testing.T) {
	f := newFixture(t)
	root := f.mkdir("root")
	f.symlink("root", "link")
	w := f.watch(f.path("link"), WatchOptions{})
	if w.Root.Path != f.path("link") || w.Root.Type != TypeDirectory || w.Root.ResolvedPath != root || f.user != "" && w.Root.Owner != testUser {
		t.Errorf("%+v", w.Root)
	}
	before := time.Now()
	f.shell(root, `echo x >f; mkdir d; ln -s f l; mkfifo p`)
	for _, want := range []Type{TypeRegular, TypeDirectory, TypeSymlink, TypeFIFO} {
		for {
			event, err := w.Next(w.ctx)
			must(t, err)
			if event.Kind != WatchCreated {
				continue
			}
			if event.Type != want || event.Time.Before(before) || filepath.Dir(event.Path) != w.root {
				t.Errorf("%+v, want a %v", event, want)
			}
			break
		}
	}
}

func TestWatchExchange(t *testing.T) {
	for _, c := range []struct{ before, want string }{
		{`echo 1 >a; echo 2 >b`, "renamed a -> b; created a"},
		{`mkdir a b; echo 1 >a/1; echo 2 >b/2`, "renamed a/ -> b/; created a/; created a/2"},
		{`mkdir a; echo 1 >a/1; echo 2 >b`, "renamed a/ -> b/; created a"},
		{`mkdir b; echo 2 >b/2; echo 1 >a`, "renamed a -> b; created a/; created a/2"},
	} {
		f := newFixture(t)
		root := f.mkdir("root")
		f.shell(root, c.before)
		w := f.watch(root, WatchOptions{Recursive: true})
		must(t, unix.Renameat2(unix.AT_FDCWD, root+"/a", unix.AT_FDCWD, root+"/b", unix.RENAME_EXCHANGE))
		wantLines(t, c.before, w.until(), c.want)
		for _, dir := range []string{"a", "b"} {
			if os.WriteFile(filepath.Join(root, dir, "new"), nil, 0o644) == nil {
				wantLines(t, "in "+dir, w.until(WatchCreated), "created "+dir+"/new")
			}
		}
	}
}

func TestWatchOneFile(t *testing.T) {
	for _, c := range []struct{ do, want string }{
		{`echo x >>f; chmod 600 f; rm f`, "written .; write-closed .; attributes .; ended: removed"},
		{`ln f other; rm f`, "attributes .; ended: removed"},
		{`exec 3<f; rm f`, "attributes .; ended: removed"},
		{`mv f g`, "ended: replaced"},
		{`chmod 700 .; echo y >.new; mv .new f`, "ended: replaced"},
	} {
		f := newFixture(t)
		f.put("f", "content")
		w := f.watch(f.path("f"), WatchOptions{Recursive: true})
		if w.Root.Type != TypeRegular || w.Root.Size != 7 {
			t.Errorf("%+v", w.Root)
		}
		f.shell(f.home, c.do)
		wantLines(t, c.do, slices.Compact(w.rest()), c.want)
	}
}

func TestWatchEnds(t *testing.T) {
	for _, c := range []struct{ do, want string }{
		{`rm -r a/root`, "removed f; ended: removed"},
		{`mv a/root b`, "ended: replaced"},
		{`mv a b`, "ended: replaced"},
		{`cd a/root; rm f; rmdir ../root; sleep 1000 & echo`, "removed f; ended: removed"},
		{`mkdir new; rm a/root/f; mv -T new a/root`, "removed f; ended: replaced"},
	} {
		f := newFixture(t)
		f.mkdir("a")
		root := f.mkdir("a/root")
		f.put("a/root/f", "")
		w := f.watch(root, WatchOptions{Recursive: true})
		do, held := strings.CutSuffix(c.do, "; sleep 1000 & echo")
		if held { // a folder that is removed while it is held open
			dir, err := os.Open(root)
			must(t, err)
			defer dir.Close()
		}
		f.shell(f.home, do)
		wantLines(t, c.do, w.rest(), c.want)
		if _, err := w.Next(w.ctx); !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %v", err)
		}
	}
}

func TestWatchEndsWhenALinkOnItsPathLeadsElsewhere(t *testing.T) {
	f := newFixture(t)
	f.mkdir("one")
	f.mkdir("two")
	f.symlink("one", "link")
	w := f.watch(f.path("link"), WatchOptions{Recursive: true})
	f.shell(f.home, `ln -s two new; mv -T new link`)
	wantLines(t, "link", w.rest(), "ended: replaced")
}

func TestWatchEndsWithAMount(t *testing.T) {
	f := newFixture(t)
	dir := f.tmpfs("1m")
	w := f.watch(dir, WatchOptions{Recursive: true})
	must(t, os.WriteFile(dir+"/f", nil, 0o644))
	must(t, unix.Unmount(dir, 0)) // nothing of it is held
	lines := w.rest()
	wantLines(t, "unmounted", lines[len(lines)-1:], "ended: unmounted")
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0777"))

	w = f.watch(dir, WatchOptions{Recursive: true})
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	wantLines(t, "covered", w.rest(), "ended: replaced")
	must(t, unix.Unmount(dir, 0))
}

func TestWatchGoesOnWhereAFileSystemBelowIsUnmounted(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	root := f.mkdir("root")
	f.shell(root, `mkdir -p m; echo x >m/below`)
	must(t, unix.Mount("tmpfs", root+"/m", "tmpfs", 0, "size=1m,mode=0777"))
	w := f.watch(root, WatchOptions{Recursive: true})
	f.shell(root, `mkdir m/d`)
	wantLines(t, "mounted", w.until(), "created m/d/")
	must(t, unix.Unmount(root+"/m", 0))
	lines := w.until()
	if text := strings.Join(lines, "; "); !strings.HasSuffix(text, "removed m/; created m/; created m/below") {
		t.Errorf("unmounted: %s", text)
	}
	f.shell(root, `rm m/below`)
	wantLines(t, "after", w.until(), "removed m/below")
}

func TestWatchAsksForTheUsersRights(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir, file := secret(t)
	f.symlink("/etc/shadow", "shadow")
	f.symlink(dir+"/closed", "closed")
	for _, path := range []string{file, dir + "/closed", "shadow", "closed", "/root"} {
		_, err := f.Watch(f.ctx, f.user, path, WatchOptions{})
		wantErr(t, path, err, fs.ErrPermission)
	}
	_, err := f.Watch(f.ctx, f.user, "/proc/self/cwd", WatchOptions{})
	wantErr(t, "magic link", err, ErrLoop)
	_, err = f.Watch(f.ctx, f.user, "missing", WatchOptions{})
	wantErr(t, "missing", err, fs.ErrNotExist)
	f.put("file", "")
	_, err = f.Watch(f.ctx, f.user, "file/", WatchOptions{})
	wantErr(t, "file/", err, ErrNotDirectory)
	_, err = f.Watch(f.ctx, f.user, "", WatchOptions{})
	wantInvalid(t, "path", err, "path")
	_, err = f.Watch(f.ctx, f.user, ".", WatchOptions{Exclude: []string{"["}})
	wantInvalid(t, "glob", err, "exclude")
}

func TestWatchClosedFolders(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	root := f.mkdir("root")
	f.shell(root, `mkdir -m 700 closed; echo x >closed/f; mkdir open`) // as root
	must(t, os.Chown(root+"/open", testUID, testUID))
	w := f.watch(root, WatchOptions{Recursive: true})
	f.shell(root, `echo y >closed/f; mkdir -m 700 new; echo x >new/f; echo x >open/f`)
	wantLines(t, "closed", w.until(WatchCreated, WatchWritten), "created new/; created open/f; written open/f")
	f.shell(root, `chmod 755 closed; chmod 755 new`)
	wantLines(t, "opened", w.until(), "attributes closed/; created closed/f; attributes new/; created new/f")
	f.shell(root, `rm closed/f; rm -r new`)
	wantLines(t, "then", w.until(), "removed closed/f; removed new/f; removed new/")
}

func TestWatchLimits(t *testing.T) {
	f := newFixture(t)
	wantLimit := func(err error, name string) {
		t.Helper()
		var limit *WatchLimitError
		if !errors.As(err, &limit) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want the limit %s", err, name)
		}
	}
	wantLimit(watchLimit(unix.ENOSPC), "fs.inotify.max_user_watches")
	var all []*Watcher
	for range maxWatchers {
		w, err := f.Watch(f.ctx, f.user, ".", WatchOptions{})
		if err != nil { // as a user who has instances elsewhere
			wantLimit(err, "fs.inotify.max_user_instances")
			break
		}
		all = append(all, w)
	}
	if len(all) == maxWatchers {
		_, err := f.Watch(f.ctx, f.user, ".", WatchOptions{})
		wantLimit(err, "watches at once")
	}
	for _, w := range all {
		w.Close()
	}
	w, err := f.Watch(f.ctx, f.user, ".", WatchOptions{})
	must(t, err)
	w.Close()
}

func TestWatchEndsWithItsContextAndWithClose(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancelCause(f.ctx)
	cause := errors.New("enough")
	w, err := f.Watch(ctx, f.user, ".", WatchOptions{})
	must(t, err)
	f.put("file", "")
	short, stop := context.WithCancelCause(f.ctx)
	stop(cause)
	_, err = w.Next(short)
	wantErr(t, "Next's context", err, cause)
	if event, err := w.Next(f.ctx); err != nil || event.Kind != WatchCreated {
		t.Errorf("%+v, %v", event, err)
	}
	cancel(cause)
	for err == nil {
		_, err = w.Next(f.ctx)
	}
	wantErr(t, "Watch's context", err, cause)
	_, err = f.Watch(ctx, f.user, ".", WatchOptions{})
	wantErr(t, "a context that has ended", err, cause)
	w.Close()
	w.Close()

	w, err = f.Watch(f.ctx, f.user, ".", WatchOptions{})
	must(t, err)
	done := make(chan error)
	go func() {
		_, err := w.Next(f.ctx)
		done <- err
	}()
	w.Close()
	wantErr(t, "Next of a closed watch", <-done, ErrClosed)
}
