package client

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

func codeEvent(number uint64, event *guestdv1.ExecutionEvent) *guestdv1.ExecutionEvent {
	event.ExecutionId, event.Number = "x-fake", number
	return event
}

func acceptedEvent(number uint64) *guestdv1.ExecutionEvent {
	return codeEvent(number, &guestdv1.ExecutionEvent{Event: &guestdv1.ExecutionEvent_Accepted{
		Accepted: &guestdv1.ExecutionAccepted{ContextId: "c-fake", QueuePosition: 2},
	}})
}

func stdoutEvent(number uint64, text string) *guestdv1.ExecutionEvent {
	return codeEvent(number, &guestdv1.ExecutionEvent{Event: &guestdv1.ExecutionEvent_Stdout{Stdout: &guestdv1.ExecutionText{Text: text}}})
}

func finishedEvent(number uint64) *guestdv1.ExecutionEvent {
	return codeEvent(number, &guestdv1.ExecutionEvent{Event: &guestdv1.ExecutionEvent_Finished{
		Finished: &guestdv1.ExecutionFinished{Status: guestdv1.ExecutionStatus_EXECUTION_STATUS_OK, ExecutionCount: 7},
	}})
}

// largeResult is a result of which the PNG follows in data.
func largeResult(number uint64, size uint64) *guestdv1.ExecutionEvent {
	return codeEvent(number, &guestdv1.ExecutionEvent{Event: &guestdv1.ExecutionEvent_Result{Result: &guestdv1.ExecutionResult{
		Kind: guestdv1.ResultKind_RESULT_KIND_MAIN, ResultNumber: 1,
		Parts: []*guestdv1.MimePart{
			{Mime: "text/plain", Content: &guestdv1.MimePart_Inline{Inline: []byte("<Figure>")}},
			{Mime: "image/png", Content: &guestdv1.MimePart_Size{Size: size}},
		},
	}}})
}

func dataEvent(number, offset uint64, data string, last bool) *guestdv1.ExecutionEvent {
	return codeEvent(number, &guestdv1.ExecutionEvent{Event: &guestdv1.ExecutionEvent_Data{Data: &guestdv1.ExecutionData{
		ResultNumber: 1, Mime: "image/png", Offset: offset, Bytes: []byte(data), Last: last,
	}}})
}

func attachedEvent() *guestdv1.ExecutionEvent {
	return codeEvent(0, &guestdv1.ExecutionEvent{Event: &guestdv1.ExecutionEvent_Attached{Attached: &guestdv1.ExecutionAttached{}}})
}

func executeScript(end error, events ...*guestdv1.ExecutionEvent) func(*guestdv1.ExecuteRequest, guestdv1.CodeService_ExecuteServer) error {
	return func(_ *guestdv1.ExecuteRequest, s guestdv1.CodeService_ExecuteServer) error {
		for _, event := range events {
			if err := s.Send(&guestdv1.ExecuteResponse{Event: event}); err != nil {
				return err
			}
		}
		return end
	}
}

func outcomeOf(t *testing.T, c *Client) (*Outcome, error) {
	t.Helper()
	x, err := c.Execute(t.Context(), CodeRequest{Code: "x"})
	if err != nil {
		return nil, err
	}
	return x.Outcome()
}

func TestOutcome(t *testing.T) {
	c, _ := serveFake(t, &fakeGuestd{execute: executeScript(nil,
		acceptedEvent(1), stdoutEvent(2, "a"), codeEvent(3, &guestdv1.ExecutionEvent{}), stdoutEvent(4, "b"),
		largeResult(5, 6), dataEvent(5, 0, "abc", false), dataEvent(5, 3, "def", true), finishedEvent(6))})
	outcome, err := outcomeOf(t, c)
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Stdout != "ab" || outcome.Finished.Status != ExecutionOK || outcome.Finished.ExecutionCount != 7 || outcome.Finished.ExitCode != -1 {
		t.Errorf("got %+v", outcome)
	}
	result, has := outcome.Main()
	if png, whole := result.Part("image/png"); !has || !whole || string(png) != "abcdef" {
		t.Errorf("the result is %+v", result)
	}
}

func TestExecutionComesBack(t *testing.T) {
	var asked []uint64
	c, _ := serveFake(t, &fakeGuestd{
		execute: executeScript(lost, acceptedEvent(1), stdoutEvent(2, "a"), largeResult(3, 6), dataEvent(3, 0, "abc", false)),
		again: func(r *guestdv1.AttachExecutionRequest, s guestdv1.CodeService_AttachExecutionServer) error {
			asked = append(asked, r.GetFromNumber())
			events := []*guestdv1.ExecutionEvent{
				attachedEvent(), largeResult(3, 6), dataEvent(3, 0, "ab", false), dataEvent(3, 2, "cdef", true), stdoutEvent(4, "b"),
			}
			end := lost
			if len(asked) > 1 {
				events = []*guestdv1.ExecutionEvent{attachedEvent(), stdoutEvent(4, "b"), finishedEvent(5)}
				end = nil
			}
			for _, event := range events {
				if err := s.Send(&guestdv1.AttachExecutionResponse{Event: event}); err != nil {
					return err
				}
			}
			return end
		},
	})
	outcome, err := outcomeOf(t, c)
	if err != nil {
		t.Fatal(err)
	}
	result, _ := outcome.Main()
	if png, _ := result.Part("image/png"); outcome.Stdout != "ab" || string(png) != "abcdef" || len(outcome.Results) != 1 {
		t.Errorf("got %q and %q in %d results", outcome.Stdout, png, len(outcome.Results))
	}
	if len(asked) != 2 || asked[0] != 3 || asked[1] != 4 {
		t.Errorf("it came back at %v, want 3 and 4", asked)
	}
}

func TestABreakBeforeTheHeaderRepeatsTheSameExecute(t *testing.T) {
	var mu sync.Mutex
	var ids []string
	c, _ := serveFake(t, &fakeGuestd{execute: func(r *guestdv1.ExecuteRequest, s guestdv1.CodeService_ExecuteServer) error {
		mu.Lock()
		ids = append(ids, r.GetRequestId()+" "+r.GetReader().GetReaderId())
		calls := len(ids)
		mu.Unlock()
		if calls <= 2 {
			return lost
		}
		return executeScript(nil, acceptedEvent(1), stdoutEvent(2, "once"), finishedEvent(3))(r, s)
	}})
	outcome, err := outcomeOf(t, c)
	if err != nil || outcome.Stdout != "once" {
		t.Fatalf("got %+v, %v", outcome, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(ids) != 3 || len(ids[0]) < 3 || ids[0] != ids[1] || ids[1] != ids[2] {
		t.Errorf("the request and reader ids were %q, want the same ones each time", ids)
	}
}

func TestExecutionThatGuestdBreaks(t *testing.T) {
	for name, c := range map[string]struct {
		execute func(*guestdv1.ExecuteRequest, guestdv1.CodeService_ExecuteServer) error
		problem string
	}{
		"no end":                 {executeScript(nil, acceptedEvent(1)), "before it told the execution's end"},
		"no header":              {executeScript(nil, stdoutEvent(1, "x")), "instead of a header"},
		"refused":                {executeScript(status.Error(codes.NotFound, "no such context")), "no such context"},
		"nothing at all":         {executeScript(nil), "before it told the execution's end"},
		"not to be come back to": {executeScript(lost, acceptedEvent(1)), "error reading"},
	} {
		client, _ := serveFake(t, &fakeGuestd{execute: c.execute})
		if _, err := outcomeOf(t, client); err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: got %v, want %q", name, err, c.problem)
		}
	}
}

func TestEventsAreAcknowledgedEarlyAndThenInSteps(t *testing.T) {
	place := eventPlace{last: 7}
	for i, due := range []int{firstAckBytes, ackBytes, ackBytes} {
		if number := place.acknowledge(due - 1); number != 0 {
			t.Errorf("acknowledgement %d, up to %d, came a byte early", i+1, number)
		}
		if number := place.acknowledge(1); number != 7 {
			t.Errorf("acknowledgement %d is up to %d, want 7", i+1, number)
		}
	}
}

func TestCodeIsCheckedBeforeItIsSent(t *testing.T) {
	c := dialTest(t, "unix:///nonexistent")
	for name, request := range map[string]CodeRequest{
		"not UTF-8":     {Code: "print('\xff')"},
		"empty":         {Code: ""},
		"blank":         {Code: " \n\t"},
		"odd language":  {Code: "x", Language: "\xff"},
		"odd contextID": {Code: "x", ContextID: "\xff"},
	} {
		_, err := c.Execute(t.Context(), request)
		e, is := errors.AsType[*Error](err)
		if !is || e.Code != codes.InvalidArgument || e.Reason != "INVALID_FIELD" || e.Field == "" {
			t.Errorf("%s: got %#v", name, err)
		}
	}
}

func TestReadingAnExecutionEnds(t *testing.T) {
	c, _ := serveFake(t, &fakeGuestd{execute: func(_ *guestdv1.ExecuteRequest, s guestdv1.CodeService_ExecuteServer) error {
		if err := s.Send(&guestdv1.ExecuteResponse{Event: acceptedEvent(1)}); err != nil {
			return err
		}
		<-s.Context().Done()
		return s.Context().Err()
	}})
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	x, err := c.Execute(ctx, CodeRequest{Code: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if x.ID() != "x-fake" || x.ContextID() != "c-fake" {
		t.Errorf("it is %q in %q", x.ID(), x.ContextID())
	}
	for event, err := range x.Events() {
		if err != nil {
			if !errors.Is(err, why) {
				t.Errorf("got %v, want the cause", err)
			}
			break
		}
		if d, is := event.Detail.(Accepted); !is || d.QueuePosition != 2 {
			t.Errorf("got %+v", event)
		}
		cancel(why)
	}
}

func TestUpdatesReplaceTheirDisplay(t *testing.T) {
	o := &Outcome{}
	part := func(text string) []Part { return []Part{{MIME: "text/plain", Bytes: []byte(text)}} }
	o.addResult(Result{Kind: DisplayResult, DisplayID: "d", Parts: part("old")})
	o.addResult(Result{Kind: UpdateResult, DisplayID: "d", Parts: part("new")})
	o.addResult(Result{Kind: UpdateResult, DisplayID: "of another execution", Parts: part("other")})
	if len(o.Results) != 2 || string(o.Results[0].Parts[0].Bytes) != "new" {
		t.Errorf("got %+v", o.Results)
	}
}

func TestAssemblerIgnoresWhatDoesNotFit(t *testing.T) {
	var a ResultAssembler
	for _, detail := range []EventDetail{
		Data{ResultNumber: 1, MIME: "image/png", Bytes: []byte("no result yet")},
		Result{Number: 1, Parts: []Part{{MIME: "image/png", Size: 3}}},
		Data{ResultNumber: 2, MIME: "image/png", Bytes: []byte("x")},
		Data{ResultNumber: 1, MIME: "image/gif", Bytes: []byte("x")},
		Data{ResultNumber: 1, MIME: "image/png", Bytes: []byte("too long")},
		Text{Text: "x"},
	} {
		if result, whole := a.Add(detail); whole {
			t.Errorf("%+v completes %+v", detail, result)
		}
	}
	result, whole := a.Add(Data{ResultNumber: 1, MIME: "image/png", Bytes: []byte("abc"), Last: true})
	if png, has := result.Part("image/png"); !whole || !has || string(png) != "abc" {
		t.Errorf("got %+v, %t", result, whole)
	}
}
