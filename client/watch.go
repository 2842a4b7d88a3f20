package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strconv"
	"time"

	"google.golang.org/grpc"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// WatchKind is what a WatchEvent tells.
type WatchKind int

// What events tell. A kind that a newer guestd has is 0.
const (
	// WatchCreated: it appeared: made, linked, or moved in from outside what is watched.
	WatchCreated WatchKind = WatchKind(guestdv1.WatchKind_WATCH_KIND_CREATED)
	// WatchWritten: its contents changed.
	WatchWritten WatchKind = WatchKind(guestdv1.WatchKind_WATCH_KIND_WRITTEN)
	// WatchWriteClosed: a writer closed it.
	WatchWriteClosed WatchKind = WatchKind(guestdv1.WatchKind_WATCH_KIND_WRITE_CLOSED)
	// WatchRemoved: it is gone with all below it: removed, or moved out of what is watched.
	WatchRemoved WatchKind = WatchKind(guestdv1.WatchKind_WATCH_KIND_REMOVED)
	// WatchRenamed: OldPath is now Path, with all below it.
	WatchRenamed WatchKind = WatchKind(guestdv1.WatchKind_WATCH_KIND_RENAMED)
	// WatchAttributes: mode, owner, times, links or extended attributes changed.
	WatchAttributes WatchKind = WatchKind(guestdv1.WatchKind_WATCH_KIND_ATTRIBUTES)
	// WatchOverflow: changes were lost; look at the whole tree again. What changes after it is told.
	WatchOverflow WatchKind = 100
	// WatchEnded: nothing will follow; End says why.
	WatchEnded WatchKind = 101
)

var watchKindNames = map[WatchKind]string{
	WatchCreated: "created", WatchWritten: "written", WatchWriteClosed: "write-closed", WatchRemoved: "removed",
	WatchRenamed: "renamed", WatchAttributes: "attributes", WatchOverflow: "overflow", WatchEnded: "ended",
}

// String is a short name.
func (k WatchKind) String() string {
	if name, known := watchKindNames[k]; known {
		return name
	}
	return "WatchKind(" + strconv.Itoa(int(k)) + ")"
}

var watchEndNames = map[guestdv1.WatchEndReason]string{
	guestdv1.WatchEndReason_WATCH_END_REASON_REMOVED:   "removed",
	guestdv1.WatchEndReason_WATCH_END_REASON_REPLACED:  "replaced",
	guestdv1.WatchEndReason_WATCH_END_REASON_UNMOUNTED: "unmounted",
}

// WatchEvent is one change.
type WatchEvent struct {
	Kind WatchKind
	// Path is the file, after a rename its new path, and OldPath what it was before.
	Path, OldPath string
	// Type is the file's type, as in FileInfo.FileMode; fs.ModeIrregular where it is not known.
	Type fs.FileMode
	// Time is when guestd saw it.
	Time time.Time
	// End is, for WatchEnded, what became of what was watched: "removed", "replaced" (moved away, or its path leads elsewhere), "unmounted",
	// or empty for a reason that is not known here.
	End string
}

// WatchOptions says what is told; nil means changes of the directory's own entries, all of them.
type WatchOptions struct {
	// User is as in FileOptions.
	User string
	// Recursive tells what changes below the directory too, also in what is made later.
	Recursive bool
	// Include keeps only what matches one of these globs, Exclude leaves out what does, and what is below it.
	Include, Exclude []string
}

// Watcher tells of changes of files. It is for one goroutine, and must be closed.
type Watcher struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	stream grpc.ServerStreamingClient[guestdv1.WatchResponse]
	root   *FileInfo
	ended  bool
}

// Watch watches a directory or a file. It returns once the watch is in place: all changes after that are told, until ctx ends or Close.
func (c *Client) Watch(ctx context.Context, path string, options *WatchOptions) (*Watcher, error) {
	if options == nil {
		options = &WatchOptions{}
	}
	if err := checkText("user", options.User); err != nil {
		return nil, err
	}
	w := &Watcher{}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	stream, err := c.files.Watch(w.ctx, &guestdv1.WatchRequest{
		User: options.User, Path: []byte(path), Recursive: options.Recursive,
		Include: byteStrings(options.Include), Exclude: byteStrings(options.Exclude),
	})
	if err == nil {
		w.stream = stream
		err = w.readHeader()
	}
	if err != nil {
		err = fromCall(w.ctx, err)
		w.cancel(err)
		return nil, err
	}
	return w, nil
}

func (w *Watcher) readHeader() error {
	response, err := w.stream.Recv()
	if err != nil {
		return err
	}
	header := response.GetWatching()
	if header == nil {
		return fmt.Errorf("guestd began with %T instead of a header", response.GetEvent())
	}
	w.root = fileInfoOf(header.GetRoot())
	return nil
}

// Root describes what is watched, as it was when the watch was in place.
func (w *Watcher) Root() *FileInfo { return w.root }

// Next waits for the next event. After WatchEnded it gives io.EOF.
func (w *Watcher) Next() (WatchEvent, error) {
	for {
		response, err := w.stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && w.ended:
			return WatchEvent{}, io.EOF
		case errors.Is(err, io.EOF):
			return WatchEvent{}, errors.New("guestd ended the watch without a reason")
		case err != nil:
			return WatchEvent{}, fromCall(w.ctx, err)
		}
		switch e := response.GetEvent().(type) {
		case *guestdv1.WatchResponse_Change:
			return watchEvent(e.Change), nil
		case *guestdv1.WatchResponse_Overflow:
			return WatchEvent{Kind: WatchOverflow}, nil
		case *guestdv1.WatchResponse_Ended:
			w.ended = true
			return WatchEvent{Kind: WatchEnded, End: watchEndNames[e.Ended.GetReason()]}, nil
		}
	}
}

func watchEvent(m *guestdv1.WatchEvent) WatchEvent {
	event := WatchEvent{
		Path: string(m.GetPath()), OldPath: string(m.GetOldPath()),
		Type: typeMode(m.GetType()), Time: timeOf(m.GetTime()),
	}
	if kind := WatchKind(m.GetKind()); kind < WatchOverflow && watchKindNames[kind] != "" {
		event.Kind = kind
	}
	return event
}

// Events gives the events up to WatchEnded, or to an error.
func (w *Watcher) Events() iter.Seq2[WatchEvent, error] {
	return func(yield func(WatchEvent, error) bool) {
		for {
			event, err := w.Next()
			if errors.Is(err, io.EOF) || !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the watch; the error is always nil.
func (w *Watcher) Close() error {
	w.cancel(context.Canceled)
	return nil
}
