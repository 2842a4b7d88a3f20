package client

import (
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

// A guestd that takes no input, or is out of reach, is left all the same.
func TestLeaveThoughInputIsNotTaken(t *testing.T) {
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
	if err := cmd.Leave(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); !errors.Is(err, ErrLeft) {
		t.Errorf("got %v", err)
	}
}
