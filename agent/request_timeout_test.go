package agent

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// open begins a call and sends nothing.
func (a testAgent) open(t *testing.T, ctx context.Context, method string) grpc.ClientStream {
	t.Helper()
	stream, err := a.client.NewStream(ctx, streamDesc, method, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func TestCallsThatBringNoRequestEnd(t *testing.T) {
	a := startAgent(t, Config{})
	a.requestTimeout = 50 * time.Millisecond
	ctx := within(t)
	for _, method := range []string{
		guestdv1.ProcessService_Exec_FullMethodName, guestdv1.FileService_Write_FullMethodName,
		guestdv1.FileService_Read_FullMethodName, guestdv1.CodeService_Execute_FullMethodName,
		guestdv1.ProcessService_Run_FullMethodName,
	} {
		wantCode(t, a.open(t, ctx, method).RecvMsg(new([]byte)), codes.Canceled, "")
	}
}

func TestCallsThatBringARequestMayLast(t *testing.T) {
	last, release := make(chan struct{}, 2), make(chan struct{})
	wait := func(ctx context.Context) error {
		last <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	f := &faults{
		unary: func(ctx context.Context, _ *guestdv1.GetRequest) error { return wait(ctx) },
		stream: func(s grpc.ServerStream) error {
			if err := s.RecvMsg(&guestdv1.GetRequest{}); err != nil {
				return err
			}
			if err := wait(s.Context()); err != nil {
				return err
			}
			return s.SendMsg(&guestdv1.WaitResponse{})
		},
	}
	a := startAgent(t, Config{}, f.desc())
	a.requestTimeout = 500 * time.Millisecond
	ctx := within(t)
	unary := make(chan error, 1)
	go func() { unary <- a.call(ctx) }()
	stream := a.open(t, ctx, faultsStream)
	if err := stream.SendMsg([]byte{}); err != nil {
		t.Fatal(err)
	}
	<-last
	<-last
	// A call without a request that began after both ends before them.
	wantCode(t, a.open(t, ctx, faultsUnary).RecvMsg(new([]byte)), codes.Canceled, "")
	close(release)
	if err := <-unary; err != nil {
		t.Errorf("the call with one answer: %v", err)
	}
	if err := stream.RecvMsg(new([]byte)); err != nil {
		t.Errorf("the stream: %v", err)
	}
}

// grpc calls what the client did wrong an internal error, and tells it so itself.
func TestWrongNumberOfRequestsIsNoFault(t *testing.T) {
	var logged syncBuffer
	a := startAgent(t, Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	for _, requests := range []int{0, 2} {
		stream := a.open(t, within(t), guestdv1.FileService_Read_FullMethodName)
		for range requests {
			if err := stream.SendMsg([]byte{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		wantCode(t, stream.RecvMsg(new([]byte)), codes.Internal, "")
	}
	if err := a.Shutdown(t.Context()); err != nil { // the calls are logged by then
		t.Fatal(err)
	}
	if strings.Contains(logged.String(), "ERROR") {
		t.Errorf("it is logged as a fault of guestd's own:\n%s", logged.String())
	}
}
