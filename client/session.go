package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// killPatience is how long a cancelled session waits for the end of the tree that it has killed.
const killPatience = 5 * time.Second

// errEndedEarly: guestd ended the call without telling how the process ended.
var errEndedEarly = errors.New("guestd ended the call before it told the process's end")

// session is a client's view of one process, over as many links as it takes. One goroutine runs it
// (run) and owns what is not guarded by the outbox; signals, sizes and cancellation come from
// others.
type session struct {
	client *Client
	ctx    context.Context // ends all of the session's calls; not the user's own
	cancel context.CancelCauseFunc
	outbox *outbox
	sinks  [streamKinds]*sink
	onGap  func(Gap)

	// start is Exec's first message; nil for a session that attaches to a process which is there already.
	start *guestdv1.ExecStart
	// attach is Attach's first message, of which a copy goes with each attempt; its process is
	// known once the first link is up.
	attach *guestdv1.ProcessAttach

	id   string
	pid  int
	exit *guestdv1.ProcessExit
	gaps []Gap
	// opened: a first message is under way, so that a process may exist.
	opened atomic.Bool
	// leftWhy is what a session that is leaving ends with; set before the outbox knows.
	leftWhy   error
	leaveOnce sync.Once
}

// newSession prepares a session whose calls outlive ctx's end, so that a cancelled command can be
// killed and its end be told.
func (c *Client) newSession(ctx context.Context, reader *guestdv1.OutputReader, stdout, stderr io.Writer) *session {
	s := &session{client: c, outbox: newOutbox(), attach: &guestdv1.ProcessAttach{Reader: reader}}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	out := &sink{name: "stdout", w: stdout}
	s.sinks[guestdv1.OutputStream_OUTPUT_STREAM_STDOUT] = out
	s.sinks[guestdv1.OutputStream_OUTPUT_STREAM_TERMINAL] = out
	s.sinks[guestdv1.OutputStream_OUTPUT_STREAM_STDERR] = &sink{name: "stderr", w: stderr}
	return s
}

func newReader() *guestdv1.OutputReader { return &guestdv1.OutputReader{ReaderId: rand.Text()} }

// open opens a link: Exec as long as no process is known, Attach from then on.
func (s *session) open() error {
	first := s.firstRequest()
	l, err := s.client.openLink(s.ctx, first)
	if err != nil {
		return err
	}
	s.opened.Store(true)
	_ = l.stream.Send(first) // why it fails is told by Recv
	event, err := l.stream.Recv()
	if err == nil {
		err = s.header(l, event)
	}
	if err != nil {
		err = s.linkError(err)
		l.cancel(err)
	}
	return err
}

func (s *session) firstRequest() *guestdv1.ProcessRequest {
	if s.id == "" && s.start != nil {
		return &guestdv1.ProcessRequest{Request: &guestdv1.ProcessRequest_Start{Start: s.start}}
	}
	attach := &guestdv1.ProcessAttach{
		ProcessId: s.attach.GetProcessId(), Reader: s.attach.GetReader(),
		FromNow: s.attach.GetFromNow(), FollowAfterExit: s.attach.GetFollowAfterExit(),
		Offsets: s.attach.GetOffsets(),
	}
	if s.id != "" {
		attach.ProcessId = s.id
		attach.Offsets = s.offsets()
	}
	return &guestdv1.ProcessRequest{Request: &guestdv1.ProcessRequest_Attach{Attach: attach}}
}

// offsets tells where to go on: behind what the user's writers have taken.
func (s *session) offsets() []*guestdv1.StreamOffset {
	var offsets []*guestdv1.StreamOffset
	for stream, sink := range s.sinks {
		if sink != nil && sink.known[stream] {
			offsets = append(offsets, &guestdv1.StreamOffset{Stream: guestdv1.OutputStream(stream), Offset: sink.next})
		}
	}
	return offsets
}

// header takes a link's first event.
func (s *session) header(l *link, event *guestdv1.ProcessEvent) error {
	var inputOffset uint64
	switch e := event.GetEvent().(type) {
	case *guestdv1.ProcessEvent_Started:
		s.id, s.pid = e.Started.GetProcessId(), int(e.Started.GetPid())
		inputOffset = e.Started.GetInputOffset()
	case *guestdv1.ProcessEvent_Attached:
		inputOffset = e.Attached.GetInputOffset()
		if s.id == "" { // set once: Cmd.ID may be called while a link is replaced
			s.id, s.pid = e.Attached.GetProcess().GetProcessId(), int(e.Attached.GetProcess().GetPid())
			s.beginAt(e.Attached)
		}
	default:
		return fmt.Errorf("guestd began with %T instead of a header", event.GetEvent())
	}
	return s.outbox.attach(l, inputOffset)
}

// beginAt takes over where an attached process's streams stand.
func (s *session) beginAt(a *guestdv1.ProcessAttached) {
	for _, offset := range a.GetOffsets() {
		if sink := s.sink(offset.GetStream()); sink != nil {
			sink.begin(offset.GetStream(), offset.GetOffset())
		}
	}
	s.outbox.beginInput(a.GetInputOffset())
}

// run receives events, over new links where one breaks, until the process's end is told and every
// byte before it is delivered.
func (s *session) run() error {
	var futile futility
	for {
		begun, before := time.Now(), s.progress()
		err := s.receive()
		s.outbox.detach(err)
		if s.exit == nil && s.outbox.isLeaving() && !broken(err) {
			return s.finish(s.leftWhy)
		}
		if errors.Is(err, io.EOF) {
			err = nil
			if s.exit == nil {
				err = errEndedEarly
			}
		}
		if err == nil || !broken(err) || (s.exit != nil && !s.attach.GetFollowAfterExit()) {
			return s.finish(err)
		}
		if why := futile.pause(s.ctx, time.Since(begun), s.progress() != before); why != nil {
			return s.finish(fmt.Errorf("%w: %w", why, err))
		}
		err = s.client.comeBack(s.ctx, err, s.open)
		if errors.Is(err, ErrProcessNotFound) {
			err = fmt.Errorf("guestd was restarted meanwhile, or has forgotten the process: %w", err)
		}
		if err != nil {
			return s.finish(err)
		}
	}
}

// progress grows with what has come and what has been taken, in bytes.
func (s *session) progress() uint64 {
	total := s.outbox.accepted()
	for _, sink := range s.sinks {
		if sink != nil {
			total += sink.next
		}
	}
	return total
}

// finish ends everything that the session owns.
func (s *session) finish(err error) error {
	s.outbox.closeInput()
	s.cancel(context.Canceled)
	if s.exit != nil && broken(err) {
		return nil // the end had been told; only the call's own end was lost
	}
	return err
}

// receive takes the events of the current link until it ends: io.EOF where guestd ended it in order.
func (s *session) receive() error {
	l := s.outbox.current()
	for {
		event, err := l.stream.Recv()
		if err == nil {
			err = s.handle(event)
		}
		if err != nil {
			return s.linkError(err)
		}
	}
}

func (s *session) handle(event *guestdv1.ProcessEvent) error {
	switch e := event.GetEvent().(type) {
	case *guestdv1.ProcessEvent_Output:
		return s.output(e.Output)
	case *guestdv1.ProcessEvent_Gap:
		s.gap(e.Gap)
	case *guestdv1.ProcessEvent_InputStatus:
		return s.outbox.inputStatus(e.InputStatus)
	case *guestdv1.ProcessEvent_Exited:
		s.exit = e.Exited
	}
	return nil // what is not known is ignored, as the API demands
}

func (s *session) sink(stream guestdv1.OutputStream) *sink {
	if stream < 0 || int(stream) >= streamKinds {
		return nil
	}
	return s.sinks[stream]
}

func (s *session) output(o *guestdv1.ProcessOutput) error {
	sink := s.sink(o.GetStream())
	if sink == nil {
		return nil
	}
	s.outbox.arrived(o.GetStream())
	broke, err := sink.deliver(o.GetStream(), o.GetOffset(), o.GetData())
	if err != nil {
		return err
	}
	if broke {
		// What a closed pipe does to a local command.
		s.outbox.signal(&guestdv1.ProcessSignal{Signal: uint32(syscall.SIGPIPE)})
	}
	s.outbox.delivered(o.GetStream(), sink.next)
	return nil
}

func (s *session) gap(g *guestdv1.ProcessGap) {
	sink := s.sink(g.GetStream())
	if sink == nil || g.GetEndOffset() <= sink.next {
		return
	}
	gap := Gap{Stream: Stream(g.GetStream()), Start: max(g.GetStartOffset(), sink.next), End: g.GetEndOffset()}
	sink.begin(g.GetStream(), g.GetEndOffset())
	s.outbox.delivered(g.GetStream(), sink.next)
	if s.onGap != nil {
		s.onGap(gap)
		return
	}
	s.gaps = append(s.gaps, gap)
}

// linkError tells what ended a link. A cancelled session tells its cause.
func (s *session) linkError(err error) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	return fromCall(s.ctx, err)
}

// cancelled is called when the user's context is done: it kills the tree and lets run see its end,
// or leaves the process alone.
func (s *session) cancelled(cause error, keep bool) {
	if !s.opened.Load() {
		s.cancel(cause)
		return
	}
	if keep {
		_ = s.leave(cause) // nobody hears of it, and the process goes on
		return
	}
	s.outbox.kill()
	timer := time.AfterFunc(killPatience, func() { s.cancel(cause) })
	context.AfterFunc(s.ctx, func() { timer.Stop() })
}

// leavePatience is how long leaving waits for guestd to do what was sent before.
const leavePatience = time.Second

// leave gives up the reader's place at guestd, and ends the session with the given error. It fails where
// guestd does not confirm it.
func (s *session) leave(why error) error {
	s.leaveOnce.Do(func() { s.leftWhy = why })
	if s.outbox.leave() {
		select {
		case <-s.ctx.Done(): // finish ends it
			return nil
		case <-time.After(leavePatience):
		}
	}
	s.cancel(why)
	return fmt.Errorf("%w: it does not answer, and input that was sent last may be lost", ErrUnavailable)
}

func killSignal() *guestdv1.ProcessSignal {
	return &guestdv1.ProcessSignal{Signal: uint32(syscall.SIGKILL), Scope: guestdv1.SignalScope_SIGNAL_SCOPE_TREE}
}
