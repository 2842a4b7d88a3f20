package kernel

import (
	"context"
	"errors"
	"io"
	"sync"
)

const (
	maxWatched = 256 << 10 // bytes of background output that wait for a watcher
	maxChanges = 256       // changes of state that do
)

// BackgroundOutput is text that came after its execution had finished, from a
// thread or a child that lived on.
type BackgroundOutput struct {
	ExecutionID string // "" where that is not known
	Stream      Stream
	Text        string // valid UTF-8
	Gap         uint64 // bytes of the stream that were dropped before it
}

// WatchEvent is a context's new state or its background output; one of them.
type WatchEvent struct {
	Info   *Info
	Output *BackgroundOutput
}

// watchers are those who watch a context. Without any, background output waits
// for the next one.
type watchers struct {
	told change // of the state; belongs to the context's goroutine, as watch and tellChange do

	mu      sync.Mutex // protects the following and all Watchers' events
	all     map[*Watcher]struct{}
	backlog watchEvents
	over    error // why nothing comes any more: io.EOF, or what else
}

// Watcher follows what happens in a context outside of its executions. It holds
// nobody back: one that is slow is told what it missed. Next belongs to one
// goroutine.
type Watcher struct {
	of     *watchers
	events watchEvents
	more   chan struct{} // there may be events; capacity 1
}

// watch adds a watcher, which begins with the given state.
func (ws *watchers) watch(info Info) *Watcher {
	ws.told = info.change()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := &Watcher{of: ws, more: make(chan struct{}, 1)}
	w.events.add(WatchEvent{Info: &info})
	w.events.list = append(w.events.list, ws.backlog.list...)
	w.events.bytes, w.events.gaps = ws.backlog.bytes, ws.backlog.gaps
	ws.backlog = watchEvents{}
	if ws.all == nil {
		ws.all = make(map[*Watcher]struct{})
	}
	ws.all[w] = struct{}{}
	return w
}

// watched says whether anybody watches.
func (ws *watchers) watched() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.all) > 0
}

// tellChange tells the context's state if something in it has changed.
func (ws *watchers) tellChange(now func() Info) {
	if !ws.watched() {
		return
	}
	info := now()
	if change := info.change(); change != ws.told {
		ws.told = change
		ws.tell(WatchEvent{Info: &info})
	}
}

func (ws *watchers) tell(event WatchEvent) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		w.events.add(event)
		w.wake()
	}
	if len(ws.all) == 0 && event.Output != nil {
		ws.backlog.add(event)
	}
}

// end ends all watching: with io.EOF because the context was deleted.
func (ws *watchers) end(why error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.over = why
	for w := range ws.all {
		w.wake()
	}
}

func (w *Watcher) wake() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// Next waits for the next event. The first is the context's state. It returns
// io.EOF once the context was deleted, ErrClosed, or the cause of ctx's end.
func (w *Watcher) Next(ctx context.Context) (WatchEvent, error) {
	for {
		event, err := w.take()
		if err != nil || event != (WatchEvent{}) {
			return event, err
		}
		select {
		case <-w.more:
		case <-ctx.Done():
			return WatchEvent{}, context.Cause(ctx)
		}
	}
}

func (w *Watcher) take() (WatchEvent, error) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if event, ok := w.events.take(); ok {
		return event, nil
	}
	return WatchEvent{}, w.of.over
}

// Close ends the watching.
func (w *Watcher) Close() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	delete(w.of.all, w)
}

// watchEvents wait for a watcher, in bounded memory.
type watchEvents struct {
	list    []WatchEvent
	bytes   int               // of text
	changes int               // of state
	gaps    map[Stream]uint64 // dropped, and not told yet
}

func (e *watchEvents) take() (event WatchEvent, ok bool) {
	if len(e.list) == 0 {
		return WatchEvent{}, false
	}
	event = e.list[0]
	e.list[0] = WatchEvent{}
	e.list = e.list[1:]
	if event.Output != nil {
		e.bytes -= len(event.Output.Text)
	} else {
		e.changes--
	}
	return event, true
}

func (e *watchEvents) add(event WatchEvent) {
	if event.Output == nil {
		if e.changes == maxChanges { // only the newest counts
			e.dropFirst(func(old WatchEvent) bool { return old.Info != nil })
			e.changes--
		}
		e.changes++
		e.list = append(e.list, event)
		return
	}
	e.addOutput(*event.Output)
	for e.bytes > maxWatched {
		old := e.dropFirst(func(old WatchEvent) bool { return old.Output != nil }).Output
		e.bytes -= len(old.Text)
		e.addGap(old.Stream, old.Gap+uint64(len(old.Text)))
	}
}

// addOutput adds to the last event where that has the same origin.
func (e *watchEvents) addOutput(out BackgroundOutput) {
	e.bytes += len(out.Text)
	if n := len(e.list); n > 0 {
		last := e.list[n-1].Output
		if last != nil && last.ExecutionID == out.ExecutionID && last.Stream == out.Stream && len(last.Text)+len(out.Text) <= maxText {
			merged := *last // others may have the old one
			merged.Text += out.Text
			e.list[n-1].Output = &merged
			return
		}
	}
	out.Gap += e.gaps[out.Stream]
	delete(e.gaps, out.Stream)
	e.list = append(e.list, WatchEvent{Output: &out})
}

func (e *watchEvents) dropFirst(which func(WatchEvent) bool) WatchEvent {
	for i, event := range e.list {
		if which(event) {
			e.list = append(e.list[:i:i], e.list[i+1:]...)
			return event
		}
	}
	return WatchEvent{}
}

// addGap tells dropped bytes with the stream's next output.
func (e *watchEvents) addGap(stream Stream, n uint64) {
	for i, event := range e.list {
		if event.Output != nil && event.Output.Stream == stream {
			later := *event.Output
			later.Gap += n
			e.list[i].Output = &later
			return
		}
	}
	if e.gaps == nil {
		e.gaps = make(map[Stream]uint64)
	}
	e.gaps[stream] += n
}

// endOf is how watching a context ends that was closed for a reason.
func endOf(why error) error {
	if errors.Is(why, errDeleted) {
		return io.EOF
	}
	return why
}
