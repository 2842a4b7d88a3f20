package client

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// Leaving delivers the input that was read, and sends nothing that would end the process.
func TestLeave(t *testing.T) {
	type request = *guestdv1.ProcessRequest
	requests := make(chan request, 16)
	client, _ := serveFake(t, &fakeGuestd{exec: func(s guestdv1.ProcessService_ExecServer) error {
		defer close(requests)
		if err := s.Send(&guestdv1.ExecResponse{Event: started()}); err != nil {
			return err
		}
		for {
			got, err := s.Recv()
			if err != nil {
				return err
			}
			if got.GetRequest().GetLeave() != nil {
				return nil
			}
			requests <- got.GetRequest()
			if input := got.GetRequest().GetInput(); input != nil {
				time.Sleep(50 * time.Millisecond) // a slow one: the client waits for it
				taken := inputTaken(input.GetOffset() + uint64(len(input.GetData())))
				if err := s.Send(&guestdv1.ExecResponse{Event: taken}); err != nil {
					return err
				}
			}
		}
	}})
	cmd := client.Command("x")
	running, left := make(chan struct{}), make(chan error, 1)
	reads := 0
	cmd.Stdin = readerFunc(func(p []byte) (int, error) {
		if reads++; reads == 1 {
			return copy(p, "typed before"), nil
		}
		<-running
		left <- cmd.Leave()
		return 0, io.EOF
	})
	if err := cmd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(running)
	if err := cmd.Wait(); !errors.Is(err, ErrLeft) || cmd.Status() != nil {
		t.Errorf("got %v, status %+v", err, cmd.Status())
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
	var input strings.Builder
	for r := range requests {
		if r.GetSignal() != nil || r.GetCloseInput() != nil {
			t.Errorf("it sent %v", r)
		}
		input.Write(r.GetInput().GetData())
	}
	if input.String() != "typed before" {
		t.Errorf("guestd got %q", input.String())
	}
	if err := cmd.Leave(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("leaving twice: %v", err)
	}
	if err := client.Command("x").Leave(); !errors.Is(err, ErrNotStarted) {
		t.Errorf("leaving what was not started: %v", err)
	}
}

// readerFunc is a function as an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A guestd that does not answer is left all the same, and that is told.
func TestLeaveThoughGuestdDoesNotAnswer(t *testing.T) {
	client, _ := serveFake(t, &fakeGuestd{exec: func(s guestdv1.ProcessService_ExecServer) error {
		if err := s.Send(&guestdv1.ExecResponse{Event: started()}); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}})
	cmd := client.Command("x")
	cmd.Stdin = strings.NewReader("never taken")
	if err := cmd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Leave(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("leaving: %v", err)
	}
	if err := cmd.Wait(); !errors.Is(err, ErrLeft) {
		t.Errorf("got %v", err)
	}
}

// Whoever stops to follow a process gives up his place, too: the end of his context is no loss.
func TestEndOfAnAttachmentsContextIsALeave(t *testing.T) {
	left := make(chan struct{})
	client, _ := serveFake(t, &fakeGuestd{attach: func(s guestdv1.ProcessService_AttachServer) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		if err := attachScript(nil, attached(), output(0, "a"))(s); err != nil {
			return err
		}
		for {
			got, err := s.Recv()
			if err != nil {
				return err
			}
			if got.GetRequest().GetLeave() != nil {
				close(left)
				return nil
			}
		}
	}})
	why := errors.New("seen enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	attachment, err := client.Attach(ctx, "p-fake", AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cancel(why)
	if err := attachment.Wait(); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	<-left
}
