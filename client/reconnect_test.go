package client

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

func TestComingBack(t *testing.T) {
	var first *guestdv1.ProcessAttach
	client, _ := serveFake(t, &fakeGuestd{
		exec: script(lost, started(), output(0, "abc")),
		attach: func(s guestdv1.ProcessService_AttachServer) error {
			request, err := s.Recv()
			if err != nil {
				return err
			}
			first = request.GetRequest().GetAttach()
			return attachScript(nil, attached(), output(2, "cde"), exited(0))(s)
		},
	})
	var out strings.Builder
	cmd := client.Command("x")
	cmd.Stdout = &out
	if err := cmd.Run(t.Context()); err != nil || out.String() != "abcde" {
		t.Errorf("got %q, %v", out.String(), err)
	}
	if first.GetProcessId() != "p-fake" || first.GetReader().GetReaderId() == "" {
		t.Errorf("it came back with %v", first)
	}
	if len(first.GetOffsets()) != 1 || first.GetOffsets()[0].GetOffset() != 3 {
		t.Errorf("it came back at %v, want 3", first.GetOffsets())
	}
}

// A connection that breaks whenever it is back is come back to more and more slowly.
func TestComingBackInVain(t *testing.T) {
	var times atomic.Int64
	client, _ := serveFake(t, &fakeGuestd{
		exec: script(lost, started()),
		attach: func(s guestdv1.ProcessService_AttachServer) error {
			times.Add(1)
			return attachScript(lost, attached())(s)
		},
		execute: executeScript(lost, acceptedEvent(1), stdoutEvent(2, "a")),
		again: func(_ *guestdv1.AttachExecutionRequest, s guestdv1.CodeService_AttachExecutionServer) error {
			times.Add(1)
			for _, event := range []*guestdv1.ExecutionEvent{attachedEvent(), stdoutEvent(2, "a")} { // seen before
				if err := s.Send(&guestdv1.AttachExecutionResponse{Event: event}); err != nil {
					return err
				}
			}
			return lost
		},
	})
	for name, run := range map[string]func(context.Context) error{
		"process": func(ctx context.Context) error {
			cmd := client.Command("x")
			cmd.KeepOnCancel = true
			return cmd.Run(ctx)
		},
		"execution": func(ctx context.Context) error {
			x, err := client.Execute(ctx, CodeRequest{Code: "x"})
			if err == nil {
				_, err = x.Outcome()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			times.Store(0)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
			defer cancel()
			if err := run(ctx); err == nil {
				t.Error("it ended well")
			}
			// 1, 2, 4 ms and so on: ten pauses take a second.
			if n := times.Load(); n < 3 || n > 20 {
				t.Errorf("it came back %d times in a second", n)
			}
		})
	}
}

// TestConnectionIsWatched: each loss is told, and its end, also that of who gives up.
func TestConnectionIsWatched(t *testing.T) {
	for name, attach := range map[string]func(guestdv1.ProcessService_AttachServer) error{
		"comes back": attachScript(nil, attached(), exited(0)),
		"gives up":   attachScript(refusal(t, codes.NotFound, "PROCESS_NOT_FOUND", nil)),
	} {
		t.Run(name, func(t *testing.T) {
			var told []error
			client, _ := serveFake(t, &fakeGuestd{exec: script(lost, started()), attach: attach},
				WithConnectionWatch(func(err error) { told = append(told, err) }))
			if err := client.Command("x").Run(t.Context()); (err == nil) != (name == "comes back") {
				t.Errorf("got %v", err)
			}
			if len(told) != 2 || !errors.Is(told[0], ErrUnavailable) || told[1] != nil {
				t.Errorf("told %v, want a loss and its end", told)
			}
		})
	}
}

func TestComingBackToAnotherGuestd(t *testing.T) {
	client, _ := serveFake(t, &fakeGuestd{
		exec:   script(lost, started(), output(0, "abc")),
		attach: attachScript(refusal(t, codes.NotFound, "PROCESS_NOT_FOUND", nil)),
	})
	err := client.Command("x").Run(t.Context())
	if !errors.Is(err, ErrProcessNotFound) || !strings.Contains(err.Error(), "guestd was restarted") {
		t.Errorf("got %v", err)
	}
}
