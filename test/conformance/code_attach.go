package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "guestd.internal/proto/guestd/v1"
)

// These cases are about reading an execution's events again: after any break, by
// several readers, under a name.

// everyKind is code whose events are of nearly every kind.
const everyKind = `import sys
from IPython.display import display, clear_output
print("out"); print("err", file=sys.stderr)
display(1)
display("x" * 1_500_000)
clear_output(wait=True)
print("more")
1/0`

// reattach reads an execution's events until the end of the call, after the header.
func (g codeCases) reattach(ctx context.Context, request *pb.AttachExecutionRequest) (events []*pb.ExecutionEvent, err error) {
	stream, err := g.code.AttachExecution(ctx, request)
	if err != nil {
		return nil, err
	}
	header, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if attached := header.GetEvent().GetAttached(); attached == nil || header.GetEvent().GetNumber() != 0 || attached.ContextId == "" {
		return nil, fmt.Errorf("the header is %v", header)
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, response.GetEvent())
	}
}

// all runs a request to its end and returns its events.
func (g codeCases) all(t *testing.T, request *pb.ExecuteRequest) (events []*pb.ExecutionEvent) {
	t.Helper()
	stream, err := g.code.Execute(within(t), request)
	if err != nil {
		t.Fatalf("Execute: %v", err)
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return events
		}
		if err != nil {
			t.Fatalf("receiving: %v", err)
		}
		events = append(events, response.GetEvent())
	}
}

func (g codeCases) EventsCanBeReadAgainFromAnyNumber(t *testing.T) {
	events := g.all(t, &pb.ExecuteRequest{Code: everyKind})
	id, last := events[0].ExecutionId, events[len(events)-1].Number
	for from := uint64(0); from <= last+1; from++ {
		again, err := g.reattach(within(t), &pb.AttachExecutionRequest{ExecutionId: id, FromNumber: from})
		if err != nil {
			t.Fatalf("from %d: %v", from, err)
		}
		want := events
		for len(want) > 0 && want[0].Number < from {
			want = want[1:]
		}
		if len(again) != len(want) {
			t.Fatalf("from %d: %d events, want %d", from, len(again), len(want))
		}
		for i := range want {
			if !proto.Equal(again[i], want[i]) {
				t.Errorf("from %d: event %d is another one", from, want[i].Number)
			}
		}
	}
}

func (g codeCases) SeveralMayReadWhileItRuns(t *testing.T) {
	first := g.begin(t, &pb.ExecuteRequest{Code: "import time\nfor i in range(50): print(i); time.sleep(0.01)"})
	beside, err := g.reattach(within(t), &pb.AttachExecutionRequest{ExecutionId: first.id})
	if err != nil {
		t.Fatalf("attaching: %v", err)
	}
	first.wait(t)
	text := ""
	for _, event := range beside {
		text += event.GetStdout().GetText()
	}
	wantText(t, "what the second has", text, first.stdout)
	if end := beside[len(beside)-1].GetFinished(); !proto.Equal(end, first.finished) {
		t.Errorf("the second ends with %v, want %v", end, first.finished)
	}
}

func (g codeCases) ReaderOfTheSameNameTakesOver(t *testing.T) {
	dir := g.folder(t)
	reader := &pb.EventReader{ReaderId: "reader of " + dir}
	hold := "import os, time\nprint('begun')\nwhile not os.path.exists(" + fmt.Sprintf("%q", dir+"/go") + "): time.sleep(0.05)\nprint('over')"
	first := g.begin(t, &pb.ExecuteRequest{Code: hold, Reader: reader})
	first.until(t, "output", func() bool { return first.stdout != "" })
	if _, err := g.code.AcknowledgeExecution(within(t), &pb.AcknowledgeExecutionRequest{
		ExecutionId: first.id, ReaderId: reader.ReaderId, Number: 2,
	}); err != nil {
		t.Fatalf("AcknowledgeExecution: %v", err)
	}
	second := make(chan []*pb.ExecutionEvent, 1)
	failed := make(chan error, 1)
	go func() {
		events, err := g.reattach(within(t), &pb.AttachExecutionRequest{ExecutionId: first.id, Reader: reader})
		second <- events
		failed <- err
	}()
	wantRefusal(t, first.finish(), refusal{code: codes.Aborted, reason: pb.ErrorReason_ERROR_REASON_SUPERSEDED})
	g.touch(t, dir+"/go")
	events := <-second
	if err := <-failed; err != nil {
		t.Fatalf("the second: %v", err)
	}
	if events[0].Number != 3 {
		t.Errorf("the second begins with event %d, want the first that was not acknowledged", events[0].Number)
	}
	if events[len(events)-1].GetFinished() == nil {
		t.Error("the second ends without finished")
	}
}

func (g codeCases) ReaderThatIsGoneLosesNothing(t *testing.T) {
	n := g.amount(2_000_000) // far over what a log keeps without a reader
	first := g.begin(t, &pb.ExecuteRequest{
		Code: fmt.Sprintf("for i in range(1, %d): print(i)", n+1), Timeout: durationpb.New(0),
		Reader: &pb.EventReader{ReaderId: "r"},
	})
	first.until(t, "output", func() bool { return first.stdout != "" })
	first.cancel()
	events, err := g.reattach(within(t), &pb.AttachExecutionRequest{
		ExecutionId: first.id, FromNumber: first.number + 1, Reader: &pb.EventReader{ReaderId: "r"},
	})
	if err != nil {
		t.Fatalf("attaching: %v", err)
	}
	text := first.stdout
	for _, event := range events {
		if event.GetGap() != nil {
			t.Fatalf("a gap: %v", event)
		}
		text += event.GetStdout().GetText()
	}
	wantText(t, "stdout", text, numbers(n))
}

func (g codeCases) ReaderThatStallsIsLetGo(t *testing.T) {
	dir := g.folder(t)
	stalled := g.begin(t, &pb.ExecuteRequest{
		Code:    fmt.Sprintf("for i in range(400_000): print('x' * 99)\nopen(%q, 'w').close()", dir+"/over"),
		Timeout: durationpb.New(0),
		Reader:  &pb.EventReader{ReaderId: "r", StallTimeout: durationpb.New(500 * time.Millisecond)},
	})
	eventually(t, "the code goes on without its reader", func() bool { return g.exists(t, dir+"/over") })
	wantRefusal(t, stalled.finish(), refusal{code: codes.Aborted, reason: pb.ErrorReason_ERROR_REASON_STALLED})
	events, err := g.reattach(within(t), &pb.AttachExecutionRequest{ExecutionId: stalled.id, FromNumber: 1})
	if err != nil {
		t.Fatalf("attaching: %v", err)
	}
	gap, text := uint64(0), 0
	for _, event := range events {
		gap += event.GetGap().GetBytes()
		text += len(event.GetStdout().GetText())
	}
	if gap == 0 || gap+uint64(text) != 40_000_000 {
		t.Errorf("%d bytes and gaps of %d, want 40,000,000 together", text, gap)
	}
}

func (g codeCases) CallsOfReadersAreChecked(t *testing.T) {
	e := g.begin(t, &pb.ExecuteRequest{Code: "1", Reader: &pb.EventReader{ReaderId: "r"}}).wait(t)
	unknown := refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_EXECUTION_NOT_FOUND}
	for _, c := range []struct {
		want    refusal
		request *pb.AttachExecutionRequest
	}{
		{unknown, &pb.AttachExecutionRequest{ExecutionId: "x-aaaaaaaaaaaaa"}},
		{
			refusal{code: codes.OutOfRange, reason: pb.ErrorReason_ERROR_REASON_OFFSET_OUT_OF_RANGE},
			&pb.AttachExecutionRequest{ExecutionId: e.id, FromNumber: e.number + 2},
		},
		{badField("reader.reader_id"), &pb.AttachExecutionRequest{ExecutionId: e.id, Reader: &pb.EventReader{ReaderId: "é"}}},
		{
			badField("reader.stall_timeout"),
			&pb.AttachExecutionRequest{ExecutionId: e.id, Reader: &pb.EventReader{StallTimeout: durationpb.New(0)}},
		},
		{
			badField("reader.reconnect_grace"),
			&pb.AttachExecutionRequest{ExecutionId: e.id, Reader: &pb.EventReader{ReconnectGrace: durationpb.New(25 * time.Hour)}},
		},
	} {
		_, err := g.reattach(within(t), c.request)
		wantRefusal(t, err, c.want)
	}
	_, err := g.code.AcknowledgeExecution(within(t), &pb.AcknowledgeExecutionRequest{ExecutionId: "x-aaaaaaaaaaaaa", ReaderId: "r"})
	wantRefusal(t, err, unknown)
}
