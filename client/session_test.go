package client

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// script sends events and then ends the call with err.
func script(err error, events ...*guestdv1.ProcessEvent) func(guestdv1.ProcessService_ExecServer) error {
	return func(s guestdv1.ProcessService_ExecServer) error {
		for _, event := range events {
			if err := s.Send(&guestdv1.ExecResponse{Event: event}); err != nil {
				return err
			}
		}
		return err
	}
}

func attachScript(err error, events ...*guestdv1.ProcessEvent) func(guestdv1.ProcessService_AttachServer) error {
	return func(s guestdv1.ProcessService_AttachServer) error {
		for _, event := range events {
			if err := s.Send(&guestdv1.AttachResponse{Event: event}); err != nil {
				return err
			}
		}
		return err
	}
}

func started() *guestdv1.ProcessEvent {
	return &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_Started{
		Started: &guestdv1.ProcessStarted{ProcessId: "p-fake", Pid: 42},
	}}
}

func attached() *guestdv1.ProcessEvent {
	return &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_Attached{
		Attached: &guestdv1.ProcessAttached{Process: &guestdv1.Process{ProcessId: "p-fake", Pid: 42}},
	}}
}

func output(offset uint64, text string) *guestdv1.ProcessEvent {
	return &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_Output{Output: &guestdv1.ProcessOutput{
		Stream: guestdv1.OutputStream_OUTPUT_STREAM_STDOUT, Offset: offset, Data: []byte(text),
	}}}
}

func gap(from, to uint64) *guestdv1.ProcessEvent {
	return &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_Gap{Gap: &guestdv1.ProcessGap{
		Stream: guestdv1.OutputStream_OUTPUT_STREAM_STDOUT, StartOffset: from, EndOffset: to,
	}}}
}

func inputTaken(offset uint64) *guestdv1.ProcessEvent {
	return &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_InputStatus{
		InputStatus: &guestdv1.ProcessInputStatus{AcceptedOffset: offset},
	}}
}

func exited(code uint32) *guestdv1.ProcessEvent {
	return &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_Exited{
		Exited: &guestdv1.ProcessExit{Status: &guestdv1.ProcessExit_ExitCode{ExitCode: code}},
	}}
}

// lost is how gRPC tells that a connection broke.
var lost = status.Error(codes.Unavailable, "error reading from server: EOF")

func TestEventsInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		events  []*guestdv1.ProcessEvent
		end     error
		output  string
		problem string // in the error; empty is none
	}{
		"plain":             {[]*guestdv1.ProcessEvent{started(), output(0, "ab"), output(2, "c"), exited(0)}, nil, "abc", ""},
		"unknown event":     {[]*guestdv1.ProcessEvent{started(), {}, output(0, "ab"), exited(0)}, nil, "ab", ""},
		"repeated bytes":    {[]*guestdv1.ProcessEvent{started(), output(0, "abc"), output(1, "bcd"), output(0, "a"), exited(0)}, nil, "abcd", ""},
		"skipped bytes":     {[]*guestdv1.ProcessEvent{started(), output(0, "a"), output(2, "c"), exited(0)}, nil, "a", "from byte 2 on where 1 was due"},
		"told gap":          {[]*guestdv1.ProcessEvent{started(), output(0, "a"), gap(1, 5), output(5, "f"), exited(0)}, nil, "af", "4 bytes of output were lost in 1 gaps"},
		"no header":         {[]*guestdv1.ProcessEvent{output(0, "a"), exited(0)}, nil, "", "instead of a header"},
		"no exit":           {[]*guestdv1.ProcessEvent{started(), output(0, "a")}, nil, "a", "before it told the process's end"},
		"lost behind exit":  {[]*guestdv1.ProcessEvent{started(), output(0, "a"), exited(0)}, lost, "a", ""},
		"refused":           {nil, status.Error(codes.NotFound, "no such thing"), "", "no such thing"},
		"input not offered": {[]*guestdv1.ProcessEvent{started(), inputTaken(5), exited(0)}, nil, "", ""},
		"exit code":         {[]*guestdv1.ProcessEvent{started(), exited(3)}, nil, "", "exit status 3"},
		"not to be come back to": {
			[]*guestdv1.ProcessEvent{started(), output(0, "a")}, lost, "a", "error reading from server",
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := serveFake(t, &fakeGuestd{exec: script(c.end, c.events...)})
			var out strings.Builder
			cmd := client.Command("x")
			cmd.Stdout = &out
			err := cmd.Run(t.Context())
			if (err == nil) != (c.problem == "") || (err != nil && !strings.Contains(err.Error(), c.problem)) {
				t.Errorf("got %v, want %q", err, c.problem)
			}
			if out.String() != c.output {
				t.Errorf("got %q, want %q", out.String(), c.output)
			}
		})
	}
}

func TestABreakBeforeTheHeaderRepeatsTheSameStart(t *testing.T) {
	var mu sync.Mutex
	var ids []string
	client, _ := serveFake(t, &fakeGuestd{exec: func(stream guestdv1.ProcessService_ExecServer) error {
		first, err := stream.Recv()
		if err != nil {
			return err
		}
		mu.Lock()
		ids = append(ids, first.GetRequest().GetStart().GetRequestId())
		calls := len(ids)
		mu.Unlock()
		if calls == 1 {
			return lost
		}
		for _, event := range []*guestdv1.ProcessEvent{started(), output(0, "once"), exited(0)} {
			if err := stream.Send(&guestdv1.ExecResponse{Event: event}); err != nil {
				return err
			}
		}
		return nil
	}})
	var out strings.Builder
	cmd := client.Command("x")
	cmd.Stdout = &out
	if err := cmd.Run(t.Context()); err != nil || out.String() != "once" {
		t.Errorf("got %q, %v", out.String(), err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(ids) != 2 || ids[0] == "" || ids[0] != ids[1] {
		t.Errorf("the request ids were %q, want the same one twice", ids)
	}
}

func TestGapIsToldInItsPlace(t *testing.T) {
	client, _ := serveFake(t, &fakeGuestd{exec: script(nil, started(), output(0, "a"), gap(1, 5), output(5, "f"), exited(0))})
	var out strings.Builder
	cmd := client.Command("x")
	cmd.Stdout = &out
	cmd.OnGap = func(g Gap) {
		if g != (Gap{Stdout, 1, 5}) {
			t.Errorf("the gap is %+v", g)
		}
		out.WriteString("…")
	}
	if err := cmd.Run(t.Context()); err != nil || out.String() != "a…f" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

// What is lost is told whatever the end is.
func TestLossesAreToldWithAnExitCode(t *testing.T) {
	client, _ := serveFake(t, &fakeGuestd{exec: script(nil, started(), output(0, "a"), gap(1, 5), output(5, "f"), exited(3))})
	full := errors.New("full")
	for name, cmd := range map[string]*Cmd{"a gap": client.Command("x"), "a writer": client.Command("x")} {
		if name == "a writer" {
			cmd.OnGap = func(Gap) {}
			cmd.Stdout = &failingWriter{err: full}
		}
		err := cmd.Run(t.Context())
		exit, isExit := errors.AsType[*ExitError](err)
		gap, isGap := errors.AsType[*GapError](err)
		if !isExit || exit.ExitCode != 3 || isGap != (name == "a gap") || errors.Is(err, full) == isGap {
			t.Errorf("%s: %v; %+v, %+v", name, err, exit, gap)
		}
	}
}

func TestGuestdThatTakesMoreInputThanThereIs(t *testing.T) {
	client, _ := serveFake(t, &fakeGuestd{exec: script(nil, started(), inputTaken(1<<40), exited(0))})
	cmd := client.Command("x")
	cmd.Stdin = strings.NewReader("abc")
	if err := cmd.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "bytes of input of which") {
		t.Errorf("got %v", err)
	}
}

// A guestd that neither ends the process nor the call is left behind killPatience after the
// context's end.
func TestCancelledThoughGuestdDoesNotAnswer(t *testing.T) {
	killed := make(chan uint32, 1)
	client, _ := serveFake(t, &fakeGuestd{exec: func(s guestdv1.ProcessService_ExecServer) error {
		if err := s.Send(&guestdv1.ExecResponse{Event: started()}); err != nil {
			return err
		}
		for {
			request, err := s.Recv()
			if err != nil {
				<-s.Context().Done()
				return err
			}
			if signal := request.GetRequest().GetSignal(); signal != nil {
				killed <- signal.GetSignal()
			}
		}
	}})
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cmd := client.Command("x")
	if err := cmd.Start(ctx); err != nil {
		t.Fatal(err)
	}
	cancel(why)
	if signal := <-killed; signal != 9 {
		t.Errorf("signal %d was sent", signal)
	}
	if err := cmd.Wait(); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
}

// A client whose writer blocks from the start is none that never acknowledges: guestd hears
// of it while nothing is written yet.
func TestAnnouncesThatItAcknowledges(t *testing.T) {
	announced := make(chan struct{})
	client, _ := serveFake(t, &fakeGuestd{exec: func(s guestdv1.ProcessService_ExecServer) error {
		if err := script(nil, started(), output(0, "some output"))(s); err != nil {
			return err
		}
		for {
			request, err := s.Recv()
			if err != nil {
				return err
			}
			if ack := request.GetRequest().GetAck(); ack != nil {
				if ack.GetOffset() != 0 {
					t.Errorf("%v was acknowledged before it was written", ack)
				}
				close(announced)
				return script(nil, exited(0))(s)
			}
		}
	}})
	cmd := client.Command("x")
	cmd.Stdout = writerFunc(func(p []byte) (int, error) {
		<-announced
		return len(p), nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := cmd.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// writerFunc is a function as an io.Writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestAcknowledgesWhatWasWritten(t *testing.T) {
	const size = 3 * ackBytes
	var acked []uint64
	client, _ := serveFake(t, &fakeGuestd{exec: func(s guestdv1.ProcessService_ExecServer) error {
		events := []*guestdv1.ProcessEvent{started()}
		for offset := uint64(0); offset < size; offset += ackBytes {
			events = append(events, output(offset, strings.Repeat("x", ackBytes)))
		}
		if err := script(nil, append(events, output(size, "tail"))...)(s); err != nil {
			return err
		}
		for { // the process ends when all is acknowledged, the short tail by time
			request, err := s.Recv()
			if err != nil {
				return err
			}
			if ack := request.GetRequest().GetAck(); ack != nil {
				acked = append(acked, ack.GetOffset())
				if ack.GetOffset() == size+uint64(len("tail")) {
					return script(nil, exited(0))(s)
				}
			}
		}
	}})
	cmd := client.Command("x")
	cmd.Stdout = io.Discard
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := cmd.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(acked); i++ {
		if acked[i] <= acked[i-1] {
			t.Errorf("acknowledged %v", acked)
		}
	}
}
