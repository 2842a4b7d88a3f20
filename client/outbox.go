package client

import (
	"sync"
	"time"

	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// When output is acknowledged: after so many bytes, or so long after the first byte that is not
// acknowledged yet.
const (
	ackBytes    = 256 << 10
	ackInterval = 100 * time.Millisecond
)

// streamKinds is one more than the greatest OutputStream.
const streamKinds = int(guestdv1.OutputStream_OUTPUT_STREAM_TERMINAL) + 1

// outbox is what a session has to tell guestd. Everything in it survives a link: what may have been
// lost with one is sent on the next.
type outbox struct {
	// changed holds a token when there may be something new to send.
	changed chan struct{}

	mu       sync.Mutex // protects the following
	link     *link      // nil between two links
	signals  []*guestdv1.ProcessSignal
	killed   bool
	size     *guestdv1.TerminalSize
	sizeSent bool
	leaving  bool // behind all input that was read
	leftSent bool
	input    *inputWindow // nil without input
	// taken and acked are, for each stream, how far the user's writer has got and how far guestd knows.
	taken, acked [streamKinds]uint64
	ackDue       bool
	// announced: guestd is told within ackInterval that this reader acknowledges, also while the
	// user's writer blocks. announcing is the stream to do that with; 0 once it is done.
	announced  bool
	announcing guestdv1.OutputStream
	ackTimer   *time.Timer
}

func newOutbox() *outbox { return &outbox{changed: make(chan struct{}, 1)} }

// attach makes a link the one to send on; from is how many bytes of input guestd has.
func (o *outbox) attach(l *link, from uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.input != nil {
		if err := o.input.rewind(from); err != nil {
			return err
		}
	}
	o.link = l
	o.acked = o.taken // the request that opened the link has told where to go on
	o.sizeSent, o.leftSent = false, false
	if o.killed {
		o.signals = []*guestdv1.ProcessSignal{killSignal()}
	}
	if o.pendingLocked() {
		o.wakeLocked()
	}
	return nil
}

// detach ends the link and its sender.
func (o *outbox) detach(cause error) {
	o.mu.Lock()
	l := o.link
	o.link = nil
	if o.ackTimer != nil {
		o.ackTimer.Stop()
	}
	o.mu.Unlock()
	if l == nil {
		return
	}
	l.cancel(cause)
	if l.sending != nil {
		<-l.sending
	}
}

func (o *outbox) signal(s *guestdv1.ProcessSignal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.signals = append(o.signals, s)
	o.wakeLocked()
}

// kill sends SIGKILL to the tree, again on each link until the process has ended.
func (o *outbox) kill() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.killed = true
	o.signals = append(o.signals, killSignal())
	o.wakeLocked()
}

// leave says goodbye to guestd, on each link until one ends for it, and takes no more input. It returns
// false between two links.
func (o *outbox) leave() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leaving = true
	o.wakeLocked()
	return o.link != nil
}

func (o *outbox) isLeaving() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.leaving
}

func (o *outbox) resize(size *guestdv1.TerminalSize) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size, o.sizeSent = size, false
	o.wakeLocked()
}

// arrived notes that output is here, which may take the user's writer any time. guestd is not to
// take us for a client that never acknowledges: it would let go of what is on its way.
func (o *outbox) arrived(stream guestdv1.OutputStream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.announced {
		return
	}
	o.announced, o.announcing = true, stream
	if o.ackTimer == nil {
		o.ackTimer = time.AfterFunc(ackInterval, o.ackNow)
	}
}

// delivered notes that the user's writer has taken a stream up to offset.
func (o *outbox) delivered(stream guestdv1.OutputStream, offset uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	idle := o.ackedAllLocked()
	o.taken[stream] = offset
	switch {
	case offset-o.acked[stream] >= ackBytes:
		o.ackDue = true
		o.wakeLocked()
	case idle && o.ackTimer == nil:
		o.ackTimer = time.AfterFunc(ackInterval, o.ackNow)
	case idle:
		o.ackTimer.Reset(ackInterval)
	}
}

func (o *outbox) ackNow() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ackDue = true
	o.wakeLocked()
}

func (o *outbox) ackedAllLocked() bool { return o.taken == o.acked }

// wakeLocked tells the link's sender, and starts it if need be.
func (o *outbox) wakeLocked() {
	if o.link == nil {
		return
	}
	select {
	case o.changed <- struct{}{}:
	default:
	}
	if o.link.sending == nil {
		o.link.sending = make(chan struct{})
		go o.send(o.link)
	}
}

func (o *outbox) pendingLocked() bool {
	return len(o.signals) > 0 || o.size != nil || o.input != nil || o.leaving || !o.ackedAllLocked()
}

// send is a link's sender: the only one that sends on its stream. It ends with the link.
func (o *outbox) send(l *link) {
	defer close(l.sending)
	for {
		var err error
		switch request, input := o.next(); {
		case request != nil:
			err = l.stream.Send(request)
		case input != nil:
			err = l.stream.SendInput(input)
		default:
			select {
			case <-o.changed:
			case <-l.ctx.Done():
				return
			}
		}
		if err != nil {
			return // the receiver learns why
		}
	}
}

// next takes what is to be sent next, a request or a piece of input; nil is nothing. Signals and
// acknowledgements overtake input.
func (o *outbox) next() (*guestdv1.ProcessRequest, *wire.Piece) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.signals) > 0 {
		s := o.signals[0]
		o.signals = o.signals[1:]
		return &guestdv1.ProcessRequest{Request: &guestdv1.ProcessRequest_Signal{Signal: s}}, nil
	}
	if o.size != nil && !o.sizeSent {
		o.sizeSent = true
		return &guestdv1.ProcessRequest{Request: &guestdv1.ProcessRequest_Resize{Resize: o.size}}, nil
	}
	if request := o.nextAckLocked(); request != nil {
		return request, nil
	}
	if o.input != nil {
		if request, piece := o.input.next(); request != nil || piece != nil {
			return request, piece
		}
	}
	if o.leaving && !o.leftSent {
		o.leftSent = true
		return &guestdv1.ProcessRequest{Request: &guestdv1.ProcessRequest_Leave{Leave: &guestdv1.ProcessLeave{}}}, nil
	}
	return nil, nil
}

func (o *outbox) nextAckLocked() *guestdv1.ProcessRequest {
	if !o.ackDue {
		return nil
	}
	for stream, offset := range o.taken {
		if offset > o.acked[stream] || o.announcing == guestdv1.OutputStream(stream) && stream > 0 {
			o.acked[stream] = offset
			o.announcing = 0
			return &guestdv1.ProcessRequest{Request: &guestdv1.ProcessRequest_Ack{
				Ack: &guestdv1.StreamOffset{Stream: guestdv1.OutputStream(stream), Offset: offset},
			}}
		}
	}
	o.ackDue = false
	return nil
}

// current is the link that is up.
func (o *outbox) current() *link {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.link
}

// beginInput tells where the user's input begins in the process's.
func (o *outbox) beginInput(offset uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.input != nil {
		o.input.begin(offset)
	}
}
