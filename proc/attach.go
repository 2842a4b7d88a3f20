package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"guestd.internal/internal/outlog"
)

const (
	// DefaultReconnectGrace is how long a reader's place is kept after Detach.
	DefaultReconnectGrace = 60 * time.Second
	// MaxReconnectGrace is the longest that may be asked for.
	MaxReconnectGrace = 24 * time.Hour

	maxReaderID = 128
	maxPiece    = 256 << 10
)

var (
	// ErrSuperseded ends an attachment whose reader id has attached again.
	ErrSuperseded = errors.New("a newer reader with the same id has taken over")
	// ErrStalled ends an attachment that held the process back for StallTimeout.
	ErrStalled = errors.New("reader has stalled for too long")
	// ErrDetached ends an attachment that was closed or detached.
	ErrDetached = errors.New("reader is detached")
)

// AttachOptions say how a process's output is read. The zero value reads it from the
// start, losing nothing.
type AttachOptions struct {
	// ReaderID is 1 to 128 printable ASCII characters, by which a reader may come
	// back after Detach; "" cannot.
	ReaderID string
	// Mode is whether the reader may hold the process back.
	Mode outlog.Mode
	// Offsets are where to start. A stream left out starts where the ReaderID has
	// its place, at 0 for a new one, or with FromNow at what comes next.
	Offsets []StreamOffset
	FromNow bool
	// FollowAfterExit reads on after Exited, until all who hold the streams have
	// closed them or the process is no longer listed.
	FollowAfterExit bool
	// StallTimeout is how long the reader may stand still while the log is full; 0
	// is for ever.
	StallTimeout time.Duration
	// ReconnectGrace is how long Detach keeps the place, up to MaxReconnectGrace;
	// nil is DefaultReconnectGrace.
	ReconnectGrace *time.Duration
}

func (o *AttachOptions) validate() error {
	if len(o.ReaderID) > maxReaderID {
		return &InvalidError{"ReaderID", fmt.Sprintf("has more than %d characters", maxReaderID)}
	}
	for _, c := range []byte(o.ReaderID) {
		if c < ' ' || c > '~' {
			return &InvalidError{"ReaderID", "has characters other than printable ASCII"}
		}
	}
	if o.StallTimeout < 0 {
		return &InvalidError{"StallTimeout", "is negative"}
	}
	if o.ReconnectGrace != nil && (*o.ReconnectGrace < 0 || *o.ReconnectGrace > MaxReconnectGrace) {
		return &InvalidError{"ReconnectGrace", fmt.Sprintf("is not between 0 and %v", MaxReconnectGrace)}
	}
	return nil
}

func (o *AttachOptions) grace() time.Duration {
	if o.ReconnectGrace == nil {
		return DefaultReconnectGrace
	}
	return *o.ReconnectGrace
}

// Attachment is one reader of a process's output. Next belongs to one goroutine;
// the other methods may be called from anywhere.
type Attachment struct {
	process *Process
	follow  bool
	grace   time.Duration
	starts  []StreamOffset
	readers []*outlog.Reader // one for each of the process's outputs
	wakeups chan struct{}
	writer  *inputWriter // nil without input

	// Next alone uses the following.
	settled <-chan struct{} // nil once its closing was seen
	turn    int             // whose stream is looked at first
	pending *Output         // comes after a gap that was told
	resized Resized         // told last
	input   InputStatus     // told last
	inputIn bool            // input is the event that was told last
	exited  bool
}

// Attach adds a reader. Errors: *InvalidError, and *outlog.OffsetError for an
// offset past what was written.
func (p *Process) Attach(o AttachOptions) (*Attachment, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	offsets, err := p.startOffsets(o)
	if err != nil {
		return nil, err
	}
	a := &Attachment{process: p, follow: o.FollowAfterExit, grace: o.grace(), settled: p.settled,
		wakeups: make(chan struct{}, 1)}
	for i, out := range p.outputs {
		r, err := out.log.Attach(outlog.ReaderOptions{ID: o.ReaderID, From: offsets[i], Mode: o.Mode,
			Stall: o.StallTimeout, Wake: a.wakeups, QuietEnd: !o.FollowAfterExit})
		if err != nil {
			a.Close()
			return nil, fmt.Errorf("attaching to %v: %w", out.stream, err)
		}
		a.readers = append(a.readers, r)
		a.starts = append(a.starts, StreamOffset{out.stream, r.Offset()})
	}
	if p.input != nil {
		a.writer = p.input.join(o.ReaderID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attachments[a] = struct{}{}
	if p.abandoned != nil {
		p.abandoned.Stop()
		p.abandoned = nil
	}
	return a, nil
}

// startOffsets returns where each output is to be read from. It checks all
// before anything is attached: logs only grow.
func (p *Process) startOffsets(o AttachOptions) ([]uint64, error) {
	offsets := make([]uint64, len(p.outputs))
	for i := range offsets {
		offsets[i] = outlog.Place
		if o.FromNow {
			offsets[i] = outlog.Now
		}
	}
	given := make(map[Stream]bool)
	for _, at := range o.Offsets {
		i := p.index(at.Stream)
		if i < 0 {
			return nil, &InvalidError{"Offsets", fmt.Sprintf("names %v, which this process does not have", at.Stream)}
		}
		if given[at.Stream] {
			return nil, &InvalidError{"Offsets", fmt.Sprintf("names %v twice", at.Stream)}
		}
		given[at.Stream] = true
		if end := p.outputs[i].log.State().End; at.Offset > end {
			return nil, fmt.Errorf("attaching to %v: %w", at.Stream, &outlog.OffsetError{Offset: at.Offset, End: end})
		}
		offsets[i] = at.Offset
	}
	return offsets, nil
}

// index returns which of the outputs a stream is, -1 for none.
func (p *Process) index(stream Stream) int {
	for i, out := range p.outputs {
		if out.stream == stream {
			return i
		}
	}
	return -1
}

// Offsets is where each stream begins for this reader.
func (a *Attachment) Offsets() []StreamOffset { return a.starts }

// Next returns the next event, waiting for it. After Exited, or with
// FollowAfterExit after the end of all streams, it returns io.EOF; other errors
// are ErrSuperseded, ErrStalled, ErrDetached and the context's cause.
func (a *Attachment) Next(ctx context.Context) (Event, error) {
	for {
		event, err := a.poll()
		if event != nil || err != nil {
			return event, err
		}
		var forgotten <-chan struct{}
		if a.exited {
			forgotten = a.process.forgotten
		}
		select {
		case <-a.wakeups:
		case <-a.settled:
			a.settled = nil
		case <-forgotten:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, fmt.Errorf("reading the output of process %s: %w", a.process.id, context.Cause(ctx))
		}
	}
}

// poll returns what there is now: a nil event for nothing.
func (a *Attachment) poll() (Event, error) {
	if a.pending != nil {
		out := *a.pending
		a.pending = nil
		return out, nil
	}
	if a.exited && !a.follow {
		return nil, io.EOF
	}
	// Output that never pauses must not hide from the client that its input is wanted,
	// nor the other way round.
	if !a.inputIn {
		if status, changed := a.inputStatus(); changed {
			a.inputIn = true
			return status, nil
		}
	}
	a.inputIn = false
	atMark, ended := 0, 0
	for range a.readers {
		i := a.turn
		a.turn = (a.turn + 1) % len(a.readers)
		event, status := a.pollStream(i)
		switch status {
		case outlog.Ready:
			return event, nil
		case outlog.Superseded:
			return nil, ErrSuperseded
		case outlog.Stalled:
			return nil, ErrStalled
		case outlog.Closed:
			return nil, ErrDetached
		case outlog.AtMark:
			atMark++
		case outlog.Ended:
			ended++
		}
	}
	if status, changed := a.inputStatus(); changed {
		return status, nil
	}
	switch {
	case atMark == len(a.readers) && a.isSettled():
		return a.exit(), nil
	case ended == len(a.readers):
		return nil, io.EOF
	}
	return nil, nil
}

// pollStream looks for something new in one stream.
func (a *Attachment) pollStream(i int) (Event, outlog.Status) {
	r, stream := a.readers[i], a.process.outputs[i].stream
	limit := maxPiece
	if t := a.process.terminal; t != nil {
		at := r.Offset()
		now, next := t.sizeAt(at)
		if now != a.resized {
			a.resized = now
			return now, outlog.Ready
		}
		limit = int(min(maxPiece, next-at))
	}
	chunk, status := r.Next(limit)
	if status != outlog.Ready {
		return nil, status
	}
	out := Output{Stream: stream, Offset: chunk.Offset, Data: chunk.Data, chunk: chunk}
	if chunk.Gap == 0 {
		return out, status
	}
	if len(chunk.Data) > 0 {
		a.pending = &out
	}
	return Gap{Stream: stream, From: chunk.Offset - chunk.Gap, To: chunk.Offset}, status
}

func (a *Attachment) inputStatus() (InputStatus, bool) {
	in := a.process.input
	if in == nil || a.exited {
		return InputStatus{}, false
	}
	status := in.status(a.writer)
	changed := status != a.input
	a.input = status
	return status, changed
}

// isSettled reports whether the exit is recorded and all marks are set.
func (a *Attachment) isSettled() bool {
	select {
	case <-a.process.settled:
		return true
	default:
		return false
	}
}

// Over says that the process has ended, and that Next has no need to wait for whatever
// it still returns.
func (a *Attachment) Over() bool { return !a.follow && a.isSettled() }

// exit is called once all before the marks was delivered.
func (a *Attachment) exit() Exited {
	a.exited = true
	a.settled = nil
	for _, r := range a.readers {
		r.PassMark()
	}
	a.process.mu.Lock()
	defer a.process.mu.Unlock()
	return Exited{Exit: *a.process.exit}
}

// Ack says that a stream's bytes before offset have arrived for good. Errors:
// *InvalidError for a stream that is not there, *outlog.OffsetError for an
// offset that was not sent.
func (a *Attachment) Ack(stream Stream, offset uint64) error {
	i := a.process.index(stream)
	if i < 0 {
		return &InvalidError{"stream", fmt.Sprintf("%v is not one of this process", stream)}
	}
	if err := a.readers[i].Ack(offset); err != nil {
		return fmt.Errorf("acknowledging %v: %w", stream, err)
	}
	for _, r := range a.readers {
		r.Acknowledges() // who acknowledges one stream does so with the others
	}
	return nil
}

// Detach says that the connection broke or its call was cancelled. The reader's
// place is kept for its grace; then, where the process is to be killed on
// disconnect and nobody else has attached, its tree is ended.
func (a *Attachment) Detach() {
	a.leave(false, func(r *outlog.Reader) { r.Detach(a.grace) })
	p := a.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spec.KillOnDisconnect && len(p.attachments) == 0 && p.exit == nil && p.abandoned == nil {
		p.abandoned = time.AfterFunc(a.grace, p.killAbandoned)
	}
}

// killAbandoned ends the tree of a process that no reader has come back to.
func (p *Process) killAbandoned() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.abandoned != nil && len(p.attachments) == 0 {
		p.terminateLocked()
	}
}

// Close gives the reader's place up: it has all it wants.
func (a *Attachment) Close() {
	a.leave(true, func(r *outlog.Reader) { r.Close() })
}

// leave takes the attachment from its process, for good or to come back, and lets each
// reader go.
func (a *Attachment) leave(forGood bool, letGo func(*outlog.Reader)) {
	a.process.mu.Lock()
	_, attached := a.process.attachments[a]
	delete(a.process.attachments, a)
	a.process.mu.Unlock()
	if attached && a.writer != nil {
		a.process.input.leave(a.writer, forGood)
	}
	for _, r := range a.readers {
		letGo(r)
	}
}
