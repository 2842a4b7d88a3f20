package client

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"testing"
)

func TestWatch(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	dir := t.TempDir() + "/dir"
	if err := os.MkdirAll(dir+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), dir, &WatchOptions{Recursive: true, Exclude: []string{"skip"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if w.Root().Path != dir || !w.Root().IsDir() {
		t.Errorf("the root is %+v", w.Root())
	}
	for _, err := range []error{
		os.Mkdir(dir+"/skip", 0o755),
		os.Symlink("x", dir+"/sub/\xff"),
		os.Rename(dir+"/sub", dir+"/new"),
		os.RemoveAll(dir),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []WatchEvent
	for event, err := range w.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if event.Time.IsZero() != (event.Kind == WatchEnded) {
			t.Errorf("the time of %+v", event)
		}
		event.Time = w.Root().Modified
		got = append(got, event)
	}
	when := w.Root().Modified
	want := []WatchEvent{
		{Kind: WatchCreated, Path: dir + "/sub/\xff", Type: fs.ModeIrregular, Time: when},
		{Kind: WatchRenamed, Path: dir + "/new", OldPath: dir + "/sub", Type: fs.ModeDir, Time: when},
		{Kind: WatchRemoved, Path: dir + "/new/\xff", Type: fs.ModeIrregular, Time: when},
		{Kind: WatchRemoved, Path: dir + "/new", Type: fs.ModeDir, Time: when},
		{Kind: WatchEnded, End: "removed", Time: when},
	}
	for i, event := range got {
		if event.Kind == WatchCreated { // it may be gone before its type can be seen
			event.Type = fs.ModeIrregular
		}
		if i >= len(want) || event != want[i] {
			t.Errorf("event %d is %+v", i, event)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d events, want %d", len(got), len(want))
	}
	if _, err := w.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	_, err = c.Watch(t.Context(), dir, nil)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is missing: %v", err)
	}
}
