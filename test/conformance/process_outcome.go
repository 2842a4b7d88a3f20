package conformance

import (
	"errors"
	"fmt"

	pb "guestd.internal/proto/guestd/v1"
)

// maxPayload is how much one message from guestd may carry, in bytes.
const maxPayload = 1 << 20

// outcome is what a processCall has received.
type outcome struct {
	started     *pb.ProcessStarted
	attached    *pb.ProcessAttached
	output      map[pb.OutputStream][]byte
	next        map[pb.OutputStream]uint64 // the offset that must come next
	gaps        []*pb.ProcessGap
	resized     []*pb.ProcessResized
	accepted    uint64 // bytes of input that guestd has
	inputClosed bool
	exit        *pb.ProcessExit
}

// take adds an event. The error tells how the event breaks the contract.
func (o *outcome) take(event *pb.ProcessEvent) error {
	if o.started == nil && o.attached == nil {
		return o.takeHeader(event)
	}
	if o.exit != nil {
		return fmt.Errorf("an event after exited: %v", event)
	}
	switch e := event.GetEvent().(type) {
	case *pb.ProcessEvent_Output:
		return o.takeOutput(e.Output)
	case *pb.ProcessEvent_Gap:
		return o.takeGap(e.Gap)
	case *pb.ProcessEvent_Resized:
		o.resized = append(o.resized, e.Resized)
	case *pb.ProcessEvent_InputStatus:
		if e.InputStatus.AcceptedOffset < o.accepted {
			return fmt.Errorf("the accepted offset fell from %d to %d", o.accepted, e.InputStatus.AcceptedOffset)
		}
		o.accepted = e.InputStatus.AcceptedOffset
		o.inputClosed = o.inputClosed || e.InputStatus.Closed
	case *pb.ProcessEvent_Exited:
		if e.Exited.Status == nil {
			return errors.New("exited has neither exit code nor signal")
		}
		o.exit = e.Exited
	default:
		return fmt.Errorf("an event that does not belong here: %v", event)
	}
	return nil
}

func (o *outcome) takeHeader(event *pb.ProcessEvent) error {
	o.output = make(map[pb.OutputStream][]byte)
	o.next = make(map[pb.OutputStream]uint64)
	switch e := event.GetEvent().(type) {
	case *pb.ProcessEvent_Started:
		o.started = e.Started
		o.accepted = e.Started.InputOffset
	case *pb.ProcessEvent_Attached:
		o.attached = e.Attached
		o.accepted = e.Attached.InputOffset
		for _, at := range e.Attached.Offsets {
			o.next[at.Stream] = at.Offset
		}
	default:
		return fmt.Errorf("the first event is no header: %v", event)
	}
	return nil
}

func (o *outcome) takeOutput(output *pb.ProcessOutput) error {
	switch stream := output.Stream; {
	case stream == pb.OutputStream_OUTPUT_STREAM_UNSPECIFIED:
		return errors.New("output of no stream")
	case len(output.Data) == 0:
		return fmt.Errorf("an empty piece of %v", stream)
	case len(output.Data) > maxPayload:
		return fmt.Errorf("a piece of %v of %d bytes", stream, len(output.Data))
	case output.Offset != o.next[stream]:
		return fmt.Errorf("%v goes on at %d, want %d", stream, output.Offset, o.next[stream])
	}
	o.output[output.Stream] = append(o.output[output.Stream], output.Data...)
	o.next[output.Stream] += uint64(len(output.Data))
	return nil
}

func (o *outcome) takeGap(gap *pb.ProcessGap) error {
	if gap.StartOffset != o.next[gap.Stream] || gap.EndOffset <= gap.StartOffset {
		return fmt.Errorf("a gap in %v from %d to %d, want one from %d on", gap.Stream, gap.StartOffset, gap.EndOffset, o.next[gap.Stream])
	}
	o.gaps = append(o.gaps, gap)
	o.next[gap.Stream] = gap.EndOffset
	return nil
}

func (o *outcome) stdout() string   { return string(o.output[pb.OutputStream_OUTPUT_STREAM_STDOUT]) }
func (o *outcome) stderr() string   { return string(o.output[pb.OutputStream_OUTPUT_STREAM_STDERR]) }
func (o *outcome) terminal() string { return string(o.output[pb.OutputStream_OUTPUT_STREAM_TERMINAL]) }

// String describes the outcome for a failure's text.
func (o *outcome) String() string {
	return fmt.Sprintf("exit %v, stdout %s, stderr %s, terminal %s", o.exit, excerpt(o.stdout()), excerpt(o.stderr()), excerpt(o.terminal()))
}

// excerpt is the text, quoted, with the middle left out of a long one.
func excerpt(text string) string {
	const shown = 100
	if len(text) > 2*shown {
		return fmt.Sprintf("%q … %q (%d bytes)", text[:shown], text[len(text)-shown:], len(text))
	}
	return fmt.Sprintf("%q", text)
}
