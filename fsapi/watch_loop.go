package fsapi

import (
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/fsapi/internal/inotify"
	"guestd.internal/internal/account"
)

const (
	// renameGrace is how long the first half of a rename waits for the second. The
	// kernel tells them microseconds apart; a thread may lose its processor
	// between the two.
	renameGrace = 50 * time.Millisecond
	// stallPatience is how long a full queue waits for a client that takes nothing
	// before events are given up. Meanwhile the kernel's queue fills.
	stallPatience = 5 * time.Second
	// overflowPause is between attempts to watch a tree that changes faster than it
	// can be read.
	overflowPause = 100 * time.Millisecond
)

// watchEnd ends a watch's loop in order.
type watchEnd struct{ reason WatchEnd }

// Error implements error.
func (e *watchEnd) Error() string { return "what was watched was " + e.reason.String() }

// watchLoop is a watch's state, all of it its one thread's.
//
// Its rule is to believe nothing from the future. Events say in order how the tree
// was; a look at the tree says how it is now, when more events may be waiting.
// Every look is therefore followed by reading all events that wait: a name for
// which none does was at the time of the last event what it is now, and what was
// found under it may be used. For any other name the looking is left until its
// events have had their turn. A folder's contents are put together the same way,
// as they were when its watch began; see scan.
type watchLoop struct {
	ctx      context.Context
	queue    *watchQueue
	wake     int // readable once ctx is done
	patience time.Duration

	fsys      *FS
	acc       account.Account
	full      string // the watched path
	shown     string // it, as events' paths begin
	recursive bool
	filter    *filter
	included  bool // the filter names what is wanted, not only what is not
	anchored  bool // the filter goes by whole paths

	root  Info   // what is watched, as the first look found it
	mount uint64 // the mount it is on, 0 if the kernel does not tell

	inst    *inotify.Instance
	pending *inotify.Pending
	mounts  int // /proc/self/mountinfo, -1 where there is none
	guards  map[guard]bool
	guarded bool                 // the root's parent is watched
	nodes   map[int32]*watchNode // by watch number
	top     *watchNode
	met     map[guard]bool // where folders were that have been found elsewhere since
	// remounted says that the mounts have changed since the last look at the root.
	remounted bool
	silent    bool // events are for the state only
	now       time.Time
	held      heldFolder
}

// heldFolder is a folder that is held open.
type heldFolder struct {
	node *watchNode // nil is none
	fd   int
}

// run watches until there is a reason to end, which it returns: io.EOF after
// WatchEnded. started gets the root's description once the watch is in place.
func (l *watchLoop) run(started chan<- Info) error {
	l.mounts = -1
	defer l.reset()
	if err := l.build(); err != nil {
		var end *watchEnd
		if errors.As(err, &end) {
			return unix.ENOENT // gone while it was looked at
		}
		return err
	}
	started <- l.root
	for {
		err := l.follow()
		if errors.Is(err, inotify.ErrOverflow) {
			err = l.recover()
		}
		var end *watchEnd
		switch {
		case errors.As(err, &end):
			l.now = time.Now()
			if err := l.send(WatchEvent{Kind: WatchEnded, End: end.reason, Time: l.now}, forever); err != nil {
				return err
			}
			return io.EOF
		case l.ctx.Err() != nil:
			return context.Cause(l.ctx)
		case err != nil:
			return pathError("watch", l.shown, err)
		}
	}
}

// follow handles events until something ends it.
func (l *watchLoop) follow() error {
	for {
		if err := l.handleHeld(); err != nil {
			return err
		}
		if l.remounted {
			l.remounted = false
			if err := l.check(0); err != nil {
				return err
			}
		}
		if err := l.wait(-1); err != nil {
			return err
		}
	}
}

// handleHeld handles the events that have been read.
func (l *watchLoop) handleHeld() error {
	for {
		event, ok := l.pending.Take()
		if !ok {
			l.release()
			return nil
		}
		if err := l.handle(event); err != nil {
			return err
		}
	}
}

// wait waits until there are events and reads them, or until the time runs out; a
// negative timeout is none.
func (l *watchLoop) wait(timeout time.Duration) error {
	fds := []unix.PollFd{
		{Fd: int32(l.inst.FD()), Events: unix.POLLIN},
		{Fd: int32(l.wake), Events: unix.POLLIN},
		{Fd: int32(l.mounts), Events: unix.POLLPRI}, // ignored if negative
	}
	millis := -1
	if timeout >= 0 {
		millis = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	l.release()
	if _, err := retry(func() (int, error) { return unix.Poll(fds, millis) }); err != nil {
		return err
	}
	if err := context.Cause(l.ctx); err != nil {
		return err
	}
	l.remounted = l.remounted || fds[2].Revents != 0
	return l.pending.Fill()
}

// build sets the watches up, and again if the tree changes too fast meanwhile.
// Changes before its end are not told.
func (l *watchLoop) build() error {
	for {
		l.silent = true
		err := l.start()
		l.silent = false
		if !errors.Is(err, inotify.ErrOverflow) {
			return err
		}
		if err := l.pause(overflowPause); err != nil {
			return err
		}
	}
}

// start begins anew, from the root.
func (l *watchLoop) start() error {
	l.reset()
	if err := l.openRoot(); err != nil {
		return err
	}
	// What happened while folder after folder was watched is in the state, and in
	// what whoever looks from now on sees.
	if err := l.pending.Fill(); err != nil {
		return err
	}
	for until := l.pending.Read(); l.pending.Taken() < until; {
		event, _ := l.pending.Take()
		if err := l.handle(event); err != nil {
			return err
		}
	}
	l.release()
	return l.check(0)
}

// reset closes everything.
func (l *watchLoop) reset() {
	l.release()
	if l.inst != nil {
		l.inst.Close()
		l.inst = nil
	}
	if l.mounts >= 0 {
		unix.Close(l.mounts)
		l.mounts = -1
	}
	l.guards, l.nodes, l.top, l.met, l.pending = nil, nil, nil, nil, nil
}

// recover begins anew after events were lost. Nothing is held in the kernel until
// the client has taken what it was told before.
func (l *watchLoop) recover() error {
	l.reset()
	for !l.queue.empty() {
		select {
		case <-l.queue.room:
		case <-l.ctx.Done():
			return context.Cause(l.ctx)
		}
	}
	if err := l.build(); err != nil {
		return err
	}
	return l.send(WatchEvent{Kind: WatchOverflow, Time: time.Now()}, forever)
}

func (l *watchLoop) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
}

// forever is a patience that does not end.
const forever time.Duration = -1

// send hands an event to the client. While the queue is full it waits, as long as
// the patience lasts, and then gives up with inotify.ErrOverflow.
func (l *watchLoop) send(event WatchEvent, patience time.Duration) error {
	if l.queue.push(event) {
		return nil
	}
	l.release()
	var expired <-chan time.Time
	if patience != forever {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		expired = timer.C
	}
	for {
		select {
		case <-l.queue.room:
			if l.queue.push(event) {
				return nil
			}
		case <-expired:
			return inotify.ErrOverflow
		case <-l.ctx.Done():
			return context.Cause(l.ctx)
		}
	}
}

// tell tells the client of a change of an entry, unless it is silent.
func (l *watchLoop) tell(kind WatchKind, rel, old string, kindOfFile Type) error {
	if l.silent {
		return nil
	}
	event := WatchEvent{Kind: kind, Path: l.path(rel), Type: kindOfFile, Time: l.now}
	if kind == WatchRenamed {
		event.OldPath = l.path(old)
	}
	return l.send(event, l.patience)
}

// path is an entry's path as the client sees it.
func (l *watchLoop) path(rel string) string {
	if rel == "" {
		return l.shown
	}
	return join(l.shown, rel)
}
