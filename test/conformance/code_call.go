package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"

	pb "guestd.internal/proto/guestd/v1"
)

// execution drives one Execute: it collects the events and holds each against the
// contract. Events are received by whoever calls next.
type execution struct {
	recv     func() (*pb.ExecutionEvent, error)
	cancel   context.CancelFunc
	id       string
	number   uint64 // of the last event
	accepted *pb.ExecutionAccepted
	started  *pb.ExecutionStarted
	stdout   string
	stderr   string
	results  []*pb.ExecutionResult
	data     map[string][]byte // of large parts, by result's number and type
	asked    []string          // prompts
	sequence string            // stdout and what cleared it
	err      *pb.ExecutionError
	finished *pb.ExecutionFinished
}

// openExecution begins an Execute and reads its header.
func (g *guest) openExecution(ctx context.Context, request *pb.ExecuteRequest) (*execution, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := g.code.Execute(ctx, request)
	if err != nil {
		cancel()
		return nil, err
	}
	e := &execution{recv: eventsOf(stream), cancel: cancel, data: make(map[string][]byte)}
	if err := e.next(); err != nil {
		cancel()
		return nil, err
	}
	return e, nil
}

func eventsOf(stream grpc.ServerStreamingClient[pb.ExecuteResponse]) func() (*pb.ExecutionEvent, error) {
	return func() (*pb.ExecutionEvent, error) {
		response, err := stream.Recv()
		return response.GetEvent(), err
	}
}

// next receives one event. io.EOF is the proper end.
func (e *execution) next() error {
	event, err := e.recv()
	if errors.Is(err, io.EOF) && e.finished == nil {
		return errors.New("the call ended with OK and without finished")
	}
	if err != nil {
		return err
	}
	if err := e.checkEnvelope(event); err != nil {
		return fmt.Errorf("%w: %v", err, event)
	}
	return e.take(event)
}

func (e *execution) checkEnvelope(event *pb.ExecutionEvent) error {
	first := e.accepted == nil
	// A result's data have the result's number.
	if event.GetData() == nil || e.number == 0 {
		e.number++
	}
	switch {
	case event.GetNumber() != e.number:
		return fmt.Errorf("an event numbered %d, want %d", event.GetNumber(), e.number)
	case e.finished != nil:
		return errors.New("an event after finished")
	case first != (event.GetAccepted() != nil):
		return errors.New("accepted must come first, and only then")
	case !first && event.ExecutionId != e.id, event.ExecutionId == "":
		return fmt.Errorf("an event of the execution %q in %q", event.ExecutionId, e.id)
	case event.Time.AsTime().Unix() == 0:
		return errors.New("an event without a time")
	case e.started == nil && (event.GetStdout() != nil || event.GetResult() != nil):
		return errors.New("output before started")
	case e.started != nil && event.GetStarted() != nil:
		return errors.New("started comes twice")
	}
	e.id = event.ExecutionId
	return nil
}

func (e *execution) take(event *pb.ExecutionEvent) error {
	switch v := event.Event.(type) {
	case *pb.ExecutionEvent_Accepted:
		e.accepted = v.Accepted
	case *pb.ExecutionEvent_Started:
		e.started = v.Started
	case *pb.ExecutionEvent_Stdout:
		e.stdout += v.Stdout.Text
		e.sequence += v.Stdout.Text
	case *pb.ExecutionEvent_Stderr:
		e.stderr += v.Stderr.Text
	case *pb.ExecutionEvent_Result:
		e.results = append(e.results, v.Result)
	case *pb.ExecutionEvent_Data:
		return e.takeData(v.Data)
	case *pb.ExecutionEvent_ClearOutput:
		e.sequence += "[clear]"
		if v.ClearOutput.Wait {
			e.sequence = strings.TrimSuffix(e.sequence, "]") + ", wait]"
		}
	case *pb.ExecutionEvent_InputRequest:
		prompt := v.InputRequest.Prompt
		if v.InputRequest.Password {
			prompt += "(secret) "
		}
		e.asked = append(e.asked, strings.TrimSuffix(prompt, " "))
	case *pb.ExecutionEvent_Error:
		e.err = v.Error
	case *pb.ExecutionEvent_Finished:
		e.finished = v.Finished
	case *pb.ExecutionEvent_Attached:
		return errors.New("attached on Execute")
	}
	return nil
}

// takeData adds a piece of a large part.
func (e *execution) takeData(data *pb.ExecutionData) error {
	key := partKey(data.ResultNumber, data.Mime)
	if data.Offset != uint64(len(e.data[key])) {
		return fmt.Errorf("%s goes on at %d, want %d", key, data.Offset, len(e.data[key]))
	}
	e.data[key] = append(e.data[key], data.Bytes...)
	return nil
}

func partKey(result uint32, mime string) string { return fmt.Sprintf("%d %s", result, mime) }

// part is the contents of a result's part; nil where it has none of the type.
func (e *execution) part(result *pb.ExecutionResult, mime string) []byte {
	for _, part := range result.Parts {
		if part.Mime != mime {
			continue
		}
		if data := e.data[partKey(result.ResultNumber, mime)]; data != nil {
			return data
		}
		return part.GetInline()
	}
	return nil
}

// value is the text of the execution's main result; empty where it has none.
func (e *execution) value() string {
	for _, result := range e.results {
		if result.Kind == pb.ResultKind_RESULT_KIND_MAIN {
			return string(e.part(result, "text/plain"))
		}
	}
	return ""
}

// finish receives until the call's end.
func (e *execution) finish() error {
	defer e.cancel()
	for {
		if err := e.next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// begin starts an execution whose events the case reads itself.
func (g *guest) begin(t *testing.T, request *pb.ExecuteRequest) *execution {
	t.Helper()
	e, err := g.openExecution(within(t), request)
	if err != nil {
		t.Fatalf("Execute: %v", err)
	}
	t.Cleanup(e.cancel)
	return e
}

// wait receives until the proper end of the call.
func (e *execution) wait(t *testing.T) *execution {
	t.Helper()
	if err := e.finish(); err != nil {
		t.Fatalf("receiving: %v", err)
	}
	return e
}

// until receives until holds is true of what has come.
func (e *execution) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for !holds() {
		if err := e.next(); err != nil {
			t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}

// execute runs a request to its end.
func (g *guest) execute(t *testing.T, request *pb.ExecuteRequest) *execution {
	t.Helper()
	return g.begin(t, request).wait(t)
}

// python runs code that must end OK in the default context.
func (g *guest) python(t *testing.T, code string) *execution {
	t.Helper()
	e := g.execute(t, &pb.ExecuteRequest{Code: code})
	wantStatus(t, e, pb.ExecutionStatus_EXECUTION_STATUS_OK)
	return e
}

// wantStatus fails the case unless the execution ended so.
func wantStatus(t *testing.T, e *execution, want pb.ExecutionStatus) {
	t.Helper()
	if got := e.finished.GetStatus(); got != want {
		t.Errorf("it ended %v, want %v; error %v, stderr %s", got, want, e.err, excerpt(e.stderr))
	}
}

// wantError fails the case unless the execution's error has the name.
func wantError(t *testing.T, e *execution, name string) {
	t.Helper()
	if e.err.GetName() != name {
		t.Errorf("error %v, want %s", e.err, name)
	}
}
