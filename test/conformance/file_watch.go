package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	pb "guestd.internal/proto/guestd/v1"
)

// watchCases are the contract of FileService.Watch.
type watchCases struct{ *guest }

// watch is a Watch whose header has come.
type watch struct {
	dir    string
	recv   func() (*pb.WatchResponse, error)
	cancel context.CancelCauseFunc
}

func (g watchCases) watch(t *testing.T, request *pb.WatchRequest) *watch {
	t.Helper()
	ctx, cancel := context.WithCancelCause(within(t))
	t.Cleanup(func() { cancel(errCallEnded) })
	stream, err := g.file.Watch(ctx, request)
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	first, err := stream.Recv()
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	if string(first.GetWatching().GetRoot().GetPath()) != string(request.Path) {
		t.Fatalf("the first answer is %v, want a header with the path", first)
	}
	return &watch{dir: string(request.Path), recv: stream.Recv, cancel: cancel}
}

// refused is the error of a Watch that must not begin.
func (g watchCases) refused(t *testing.T, request *pb.WatchRequest) error {
	t.Helper()
	stream, err := g.file.Watch(within(t), request)
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

// next shows the next event with paths below the watched one.
func (w *watch) next(t *testing.T) string {
	t.Helper()
	response, err := w.recv()
	switch {
	case errors.Is(err, io.EOF):
		return "EOF"
	case err != nil:
		t.Fatalf("Watch: %v", err)
	case response.GetOverflow() != nil:
		return "overflow"
	case response.GetEnded() != nil:
		return "ended " + strings.TrimPrefix(response.GetEnded().Reason.String(), "WATCH_END_REASON_")
	}
	change := response.GetChange()
	if change.GetTime() == nil || len(change.GetPath()) == 0 {
		t.Fatalf("%v, want a change with a path and a time", response)
	}
	path := func(path []byte) string { return strings.TrimPrefix(strings.TrimPrefix(string(path), w.dir), "/") }
	line := strings.TrimPrefix(change.Kind.String(), "WATCH_KIND_") + " "
	if change.Kind == pb.WatchKind_WATCH_KIND_RENAMED {
		line += path(change.OldPath) + " -> "
	}
	line += path(change.Path)
	if change.Type == pb.FileType_FILE_TYPE_DIRECTORY {
		line += "/"
	}
	return line
}

// want fails the case unless exactly these events come next.
func (w *watch) want(t *testing.T, want ...string) {
	t.Helper()
	for _, line := range want {
		if got := w.next(t); got != line {
			t.Fatalf("told %q, want %q", got, line)
		}
	}
}

func (g watchCases) ChangesAreTold(t *testing.T) {
	dir := g.folder(t)
	w := g.watch(t, &pb.WatchRequest{Path: []byte(dir)})
	file := dir + "/not text \xff"
	g.sh(t, `printf x >"$1"`, file)
	w.want(t, "CREATED not text \xff", "WRITTEN not text \xff", "WRITE_CLOSED not text \xff")
	g.sh(t, `chmod 600 "$1"`, file)
	w.want(t, "ATTRIBUTES not text \xff")
	g.sh(t, `mv "$1" "$2/b"`, file, dir)
	w.want(t, "RENAMED not text \xff -> b")
	g.sh(t, `rm "$1/b"; mkdir "$1/d"; rmdir "$1/d"`, dir)
	w.want(t, "REMOVED b", "CREATED d/", "REMOVED d/")
}

func (g watchCases) SubdirectoriesAreWatchedWhereAskedFor(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `mkdir -p "$1/a/b"`, dir)
	all := g.watch(t, &pb.WatchRequest{Path: []byte(dir), Recursive: true})
	own := g.watch(t, &pb.WatchRequest{Path: []byte(dir)})
	g.sh(t, `mkdir "$1/a/b/c"; mv "$1/a/b" "$1/d"; mkdir "$1/d/c/e"; rmdir "$1/a"`, dir)
	all.want(t, "CREATED a/b/c/", "RENAMED a/b -> d/", "CREATED d/c/e/", "REMOVED a/")
	own.want(t, "CREATED d/", "REMOVED a/")
}

func (g watchCases) WhatIsInANewDirectoryIsToldExactlyOnce(t *testing.T) {
	dir := g.folder(t)
	w := g.watch(t, &pb.WatchRequest{Path: []byte(dir), Recursive: true})
	const rounds = 100
	g.sh(t, `cd "$1"; i=0; while [ $i -lt "$2" ]; do mkdir -p $i/a/b; : >$i/f; : >$i/a/b/f; i=$((i+1)); done; : >end`, dir, fmt.Sprint(g.amount(rounds)))
	told := map[string]int{}
	for line := ""; line != "CREATED end"; told[line]++ {
		line = w.next(t)
	}
	for i := range g.amount(rounds) {
		for _, entry := range []string{"%d/", "%d/a/", "%d/a/b/", "%d/f", "%d/a/b/f"} {
			line := fmt.Sprintf("CREATED "+entry, i)
			if told[line] != 1 {
				t.Errorf("told %d times: %s", told[line], line)
			}
		}
	}
}

func (g watchCases) TreesThatMoveInAndOutAreTold(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1"; mkdir -p root out/t/u; : >out/t/u/f`, dir)
	w := g.watch(t, &pb.WatchRequest{Path: []byte(dir + "/root"), Recursive: true})
	g.sh(t, `mv "$1/out/t" "$1/root"`, dir)
	w.want(t, "CREATED t/", "CREATED t/u/", "CREATED t/u/f")
	g.sh(t, `mv "$1/root/t" "$1/out"; : >"$1/out/t/g"; mkdir "$1/root/end"`, dir)
	w.want(t, "REMOVED t/", "CREATED end/")
}

func (g watchCases) GlobsChooseWhatIsTold(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `mkdir "$1/skip"`, dir)
	w := g.watch(t, &pb.WatchRequest{
		Path: []byte(dir), Recursive: true, Include: [][]byte{[]byte("*.go")}, Exclude: [][]byte{[]byte("skip")},
	})
	g.sh(t, `cd "$1"; mkdir skip/a.go b.go; mkdir b.txt; mv b.go c.txt; mv b.txt d.go`, dir)
	w.want(t, "CREATED b.go/", "RENAMED b.go -> c.txt/", "RENAMED b.txt -> d.go/")
}

func (g watchCases) EndOfTheRootIsToldAndEndsTheCall(t *testing.T) {
	dir := g.folder(t)
	for script, want := range map[string]string{
		`rm -r "$1"`:        "ended REMOVED",
		`mv "$1" "$1.away"`: "ended REPLACED",
		`mkdir "$1.new"; mv "$1" "$1.away"; mv "$1.new" "$1"`: "ended REPLACED",
	} {
		root := dir + "/root"
		g.sh(t, `rm -rf "$1"*; mkdir "$1"`, root)
		w := g.watch(t, &pb.WatchRequest{Path: []byte(root), Recursive: true})
		g.sh(t, script, root)
		w.want(t, want, "EOF")
	}
}

func (g watchCases) OneFileIsWatched(t *testing.T) {
	file := g.folder(t) + "/file"
	g.put(t, file, "x")
	w := g.watch(t, &pb.WatchRequest{Path: []byte(file), Recursive: true})
	g.sh(t, `printf y >>"$1"`, file)
	w.want(t, "WRITTEN ", "WRITE_CLOSED ")
	g.sh(t, `mv "$1" "$1.away"`, file)
	w.want(t, "ended REPLACED", "EOF")
}

func (g watchCases) GuestsPermissionsDecide(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	g.ownerSh(t, `mkdir -m 700 "$1/closed"; mkdir -m 777 "$1/open"; mkdir -m 700 "$1/open/inner"`, dir)
	wantRefusal(t, g.refused(t, &pb.WatchRequest{User: g.OtherUser, Path: []byte(dir + "/closed")}), denied())
	w := g.watch(t, &pb.WatchRequest{User: g.OtherUser, Path: []byte(dir + "/open"), Recursive: true})
	g.ownerSh(t, `: >"$1/open/inner/f"; mkdir "$1/open/end"`, dir)
	w.want(t, "CREATED end/")
}

func (g watchCases) BadRequestIsRefused(t *testing.T) {
	dir := g.folder(t)
	wantRefusal(t, g.refused(t, &pb.WatchRequest{Path: []byte(dir + "/missing")}), noFile(dir+"/missing"))
	wantRefusal(t, g.refused(t, &pb.WatchRequest{}), badField("path"))
	wantRefusal(t, g.refused(t, &pb.WatchRequest{Path: []byte(dir), Include: [][]byte{[]byte("[")}}), badField("include"))
}
