package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"guestd.internal/fsapi"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// watch begins a watch and returns what comes after its header, as text.
func (a testAgent) watch(t *testing.T, req *guestdv1.WatchRequest) func() string {
	t.Helper()
	req.User = self()
	stream, err := a.fileCalls().Watch(within(t), req)
	if err != nil {
		t.Fatal(err)
	}
	header, err := stream.Recv()
	if err != nil || string(header.GetWatching().GetRoot().GetPath()) != string(req.GetPath()) {
		t.Fatalf("%v, %v", header, err)
	}
	return func() string {
		m, err := stream.Recv()
		switch e := m.GetEvent().(type) {
		case *guestdv1.WatchResponse_Change:
			c := e.Change
			if c.GetTime() == nil {
				t.Errorf("no time: %v", c)
			}
			text := strings.TrimPrefix(c.GetKind().String(), "WATCH_KIND_") + " " + string(c.GetOldPath()) + ">" + string(c.GetPath())
			return strings.ReplaceAll(text, string(req.GetPath()), "") + " " + strings.TrimPrefix(c.GetType().String(), "FILE_TYPE_")
		case *guestdv1.WatchResponse_Ended:
			return "ended " + e.Ended.GetReason().String()
		case *guestdv1.WatchResponse_Overflow:
			return "overflow"
		}
		return fmt.Sprint(err)
	}
}

func TestWatchOverTheAPI(t *testing.T) {
	a := startAgent(t, Config{})
	dir := t.TempDir() + "/dir"
	writeFiles(t, dir, "a/one", "skip/x")
	next := a.watch(t, &guestdv1.WatchRequest{Path: []byte(dir), Recursive: true, Exclude: [][]byte{[]byte("skip")}})
	for _, step := range []struct {
		do   func() error
		want []string
	}{
		{func() error { return os.WriteFile(dir+"/a/\xff", []byte("x"), 0o644) }, []string{
			"CREATED >/a/\xff REGULAR", "WRITTEN >/a/\xff REGULAR", "WRITE_CLOSED >/a/\xff REGULAR"}},
		{func() error { return os.Rename(dir+"/a", dir+"/b") }, []string{"RENAMED /a>/b DIRECTORY"}},
		{func() error { return os.WriteFile(dir+"/skip/y", nil, 0o644) }, nil},
		{func() error { return os.Chmod(dir+"/b/one", 0o600) }, []string{"ATTRIBUTES >/b/one REGULAR"}},
		{func() error { return os.Remove(dir + "/b/one") }, []string{"REMOVED >/b/one UNSPECIFIED"}},
		{func() error { return os.Rename(dir, dir+".old") }, []string{"ended WATCH_END_REASON_REPLACED", io.EOF.Error()}},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		for _, want := range step.want {
			if got := next(); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	}
}

func TestWatchRefusals(t *testing.T) {
	files, ctx := startAgent(t, Config{}).fileCalls(), within(t)
	refused := func(req *guestdv1.WatchRequest) error {
		req.User = self()
		stream, err := files.Watch(ctx, req)
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	wantCode(t, refused(&guestdv1.WatchRequest{Path: []byte(t.TempDir() + "/none")}), codes.NotFound, "FILE_NOT_FOUND")
	wantCode(t, refused(&guestdv1.WatchRequest{}), codes.InvalidArgument, "INVALID_FIELD")
	wantCode(t, refused(&guestdv1.WatchRequest{Path: []byte("/"), Include: [][]byte{[]byte("[")}}), codes.InvalidArgument, "INVALID_FIELD")

	limit := &fsapi.PathError{Op: "watch", Path: "/x", Err: &fsapi.WatchLimitError{Limit: "fs.inotify.max_user_watches", Err: unix.ENOSPC}}
	err := statusOf(ctx, limit).Err()
	wantCode(t, err, codes.ResourceExhausted, "LIMIT_REACHED")
	if !strings.Contains(err.Error(), "fs.inotify.max_user_watches") {
		t.Error(err)
	}
}

func TestWatchEndsWithItsCall(t *testing.T) {
	files := startAgent(t, Config{}).fileCalls()
	ctx, cancel := context.WithCancelCause(within(t))
	stream, err := files.Watch(ctx, &guestdv1.WatchRequest{User: self(), Path: []byte(t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel(errors.New("enough"))
	_, err = stream.Recv()
	wantCode(t, err, codes.Canceled, "")
}
