package fsapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/fscred"
)

// maxWatchers is how many watches there are at once: each has a thread of its
// own, since inotify asks for its user's rights whenever a folder is added.
const maxWatchers = 128

// WatchKind is what a [WatchEvent] tells.
type WatchKind int

// What events tell. An entry is a name in a watched folder, or the watched file.
const (
	// WatchCreated says that an entry appeared: made, linked, or moved in from
	// outside what is watched; also over another of its name. What is in a folder
	// that appeared comes after it, each entry once.
	WatchCreated WatchKind = iota + 1
	// WatchWritten says that a file's contents changed.
	WatchWritten
	// WatchWriteClosed says that a file that was open for writing was closed.
	WatchWriteClosed
	// WatchRemoved says that an entry is gone with all that was below it: removed,
	// or moved out of what is watched.
	WatchRemoved
	// WatchRenamed says that the entry OldPath is now Path, with all that is below
	// it, in place of what Path was.
	WatchRenamed
	// WatchAttributes says that mode, owner, times, links or extended attributes
	// changed.
	WatchAttributes
	// WatchOverflow says that changes were lost. What changes after it is told
	// again: whoever wants to know how things are now must look.
	WatchOverflow
	// WatchEnded says that nothing will follow, and why.
	WatchEnded
)

var watchKindNames = [...]string{"", "created", "written", "write-closed", "removed", "renamed", "attributes", "overflow", "ended"}

// String is a short English name.
func (k WatchKind) String() string {
	if k <= 0 || int(k) >= len(watchKindNames) {
		return "WatchKind(" + strconv.Itoa(int(k)) + ")"
	}
	return watchKindNames[k]
}

// WatchEnd is why a watch ended.
type WatchEnd int

// Why a watch ended.
const (
	WatchRootRemoved   WatchEnd = iota + 1 // what was watched has been removed
	WatchRootReplaced                      // it was moved away, or its path leads to something else
	WatchRootUnmounted                     // its file system was unmounted
)

var watchEndNames = [...]string{"", "removed", "replaced", "unmounted"}

// String is a short English name.
func (e WatchEnd) String() string {
	if e <= 0 || int(e) >= len(watchEndNames) {
		return "WatchEnd(" + strconv.Itoa(int(e)) + ")"
	}
	return watchEndNames[e]
}

// WatchEvent is one change, as [Watcher.Next] gives it.
type WatchEvent struct {
	Kind WatchKind
	// Path is absolute and begins with the watched path's own spelling; OldPath is
	// what it was before a rename. Both are empty for WatchOverflow and WatchEnded.
	Path, OldPath string
	// Type is the entry's; TypeUnknown if it was gone or has changed since.
	Type Type
	Time time.Time // when this process learned of it
	End  WatchEnd  // for WatchEnded
}

// WatchOptions says what changes are told.
type WatchOptions struct {
	// Recursive includes all that is below the folder, also what is made or moved
	// there later. Links are entries and never entered, file systems mounted below
	// are. A sub-folder that the user may not read is an entry, is logged, and
	// watched once a change of its attributes lets the user read it.
	Recursive bool
	// Include, if there are any, restrict the events to entries that match one of
	// these globs, as in [ListOptions]. A folder that need not match is told all
	// the same when it is renamed or moved out, with what is below it.
	Include []string
	// Exclude leaves out entries that match one of these globs, and what is below
	// them. An entry that is renamed to a name that is left out is removed, and the
	// reverse created.
	Exclude []string
}

// WatchLimitError says that a watch would need more than it may have.
type WatchLimitError struct {
	Limit string // such as "fs.inotify.max_user_watches", a sysctl
	Err   error  // the kernel's, nil if the limit is this package's
}

// Error implements error; it names the limit.
func (e *WatchLimitError) Error() string { return "the limit " + e.Limit + " is reached" }

// Unwrap gives the error number.
func (e *WatchLimitError) Unwrap() error { return e.Err }

// Watcher tells of changes below a path. One goroutine on a thread of its own,
// which has the user's rights, reads the kernel's events; it ends with the
// context of [FS.Watch], with Close, and after [WatchEnded]. No descriptor in the
// watched tree is held between events, so that it can be unmounted.
type Watcher struct {
	// Root describes what is watched, as it was when the watch was in place.
	Root Info

	ctx    context.Context
	cancel context.CancelCauseFunc
	queue  *watchQueue
	wake   int // an eventfd, readable once ctx is done
	unhook func() bool
	woken  chan struct{} // closed once ctx has been told to wake
	done   chan struct{} // closed when the thread is gone
	err    error         // why it is; valid once done
	panics *fscred.PanicError
}

// Watch watches the file or folder at path, following links to it. All changes
// after its return are told by [Watcher.Next], in the order of each folder. An
// event is held back for at most renameGrace, until it is known whether the
// second half of a rename follows.
//
// What is not seen: changes by other machines on network file systems, and a file
// system that is mounted over a sub-folder, until that folder is made anew. In a
// rename into a folder that was made a moment ago, of which the watch is not in
// place yet, a file is told as created there and removed here. Two entries that are
// exchanged (renameat2(2), RENAME_EXCHANGE) are told as a rename of one over the
// other and a creation in the old place, or as removals and creations; of that
// alone a removal may be told twice. A path of more than 4,095 bytes is an entry
// but not entered.
//
// An error is a *PathError, a *WatchLimitError or an *InvalidError.
func (fsys *FS) Watch(ctx context.Context, user, path string, opts WatchOptions) (*Watcher, error) {
	acc, err := fsys.account(user)
	if err != nil {
		return nil, err
	}
	full, err := absolute("path", path, acc.Home)
	if err != nil {
		return nil, err
	}
	filter, err := newFilter(opts.Include, opts.Exclude)
	if err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	select {
	case fsys.watchers <- struct{}{}:
	default:
		return nil, &WatchLimitError{Limit: "of " + strconv.Itoa(maxWatchers) + " watches at once"}
	}
	w, err := newWatcher(ctx)
	if err != nil {
		<-fsys.watchers
		return nil, err
	}
	l := &watchLoop{
		ctx: w.ctx, queue: w.queue, wake: w.wake, patience: stallPatience,
		fsys: fsys, acc: acc, full: full, shown: tidy(full), recursive: opts.Recursive,
		filter: filter, included: len(opts.Include) > 0, anchored: anchored(opts.Include) || anchored(opts.Exclude),
	}
	if fsys.watchQueue > 0 {
		w.queue.limit, l.patience = fsys.watchQueue, 0
	}
	started := make(chan Info, 1)
	go w.run(l, started, func() { <-fsys.watchers })
	select {
	case w.Root = <-started:
		newNames(fsys.accounts).fill(&w.Root)
		return w, nil
	case <-w.done:
		defer w.Close()
		w.rethrow()
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		return nil, pathError("watch", path, w.err)
	}
}

// anchored says whether a glob is matched with whole paths, so that a folder's
// rename changes which of the entries below it match.
func anchored(globs []string) bool {
	for _, text := range globs {
		if strings.Contains(strings.TrimSuffix(text, "/"), "/") {
			return true
		}
	}
	return false
}

func newWatcher(ctx context.Context) (*Watcher, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("preparing a watch: %w", err)
	}
	w := &Watcher{wake: wake, queue: newWatchQueue(), woken: make(chan struct{}), done: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.unhook = context.AfterFunc(w.ctx, func() {
		defer close(w.woken)
		_, _ = unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	return w, nil
}

// run is the watch's goroutine.
func (w *Watcher) run(l *watchLoop, started chan<- Info, release func()) {
	defer close(w.done)
	defer release()
	defer func() {
		if value := recover(); value != nil {
			var ok bool
			if w.panics, ok = value.(*fscred.PanicError); !ok {
				w.panics = &fscred.PanicError{Value: value, Stack: debug.Stack()}
			}
		}
	}()
	w.err = fscred.Do(l.acc, func() error { return l.run(started) })
}

// rethrow lets a panic of the watch's goroutine be that of a call.
func (w *Watcher) rethrow() {
	if w.panics != nil {
		panic(w.panics)
	}
}

// Next waits for the next event. After [WatchEnded] it gives io.EOF; otherwise the
// error is ctx's cause, the cause of the end of Watch's context, [ErrClosed], a
// *WatchLimitError or a *PathError. Events that are held are given before any
// error but ctx's. It is for one goroutine at a time.
func (w *Watcher) Next(ctx context.Context) (WatchEvent, error) {
	for {
		if err := context.Cause(ctx); err != nil {
			return WatchEvent{}, err
		}
		if event, ok := w.queue.pop(); ok {
			return event, nil
		}
		select {
		case <-w.queue.filled:
		case <-ctx.Done():
		case <-w.done:
			if event, ok := w.queue.pop(); ok {
				return event, nil
			}
			w.rethrow()
			if errors.Is(w.err, io.EOF) {
				return WatchEvent{}, io.EOF
			}
			return WatchEvent{}, w.err
		}
	}
}

// Close ends the watch and waits until its thread is gone. It may be called more
// than once, but not at the same time.
func (w *Watcher) Close() {
	w.cancel(ErrClosed)
	<-w.done
	if w.wake < 0 {
		return
	}
	if !w.unhook() {
		<-w.woken
	}
	unix.Close(w.wake)
	w.wake = -1
}
