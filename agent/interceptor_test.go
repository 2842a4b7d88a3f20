package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"guestd.internal/agent/internal/codec"
	"guestd.internal/proc"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestPanicEndsItsOwnCallOnly(t *testing.T) {
	var logged syncBuffer
	release := make(chan struct{})
	f := &faults{
		unary: func(context.Context, *guestdv1.GetRequest) error { panic("unary goes wrong") },
		stream: func(s grpc.ServerStream) error {
			var req guestdv1.GetRequest
			if err := s.RecvMsg(&req); err != nil {
				return err
			}
			if req.GetProcessId() == "panic" {
				beyond := req.GetProcessId()[len(req.GetProcessId()):]
				return errors.New(beyond[:1])
			}
			<-release
			return s.SendMsg(&guestdv1.WaitResponse{})
		},
	}
	a := startAgent(t, Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))}, f.desc())
	ctx := within(t)
	open := func(id string) grpc.ClientStream {
		stream, err := a.client.NewStream(ctx, streamDesc, faultsStream)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(&guestdv1.GetRequest{ProcessId: id}); err != nil {
			t.Fatal(err)
		}
		return stream
	}
	bystander, victim := open("bystander"), open("panic")
	wantCode(t, a.call(ctx), codes.Internal, "UNSPECIFIED")
	wantCode(t, victim.RecvMsg(&guestdv1.WaitResponse{}), codes.Internal, "UNSPECIFIED")
	close(release)
	if err := bystander.RecvMsg(&guestdv1.WaitResponse{}); err != nil {
		t.Errorf("the other stream: %v", err)
	}
	if _, err := a.system().GetInfo(ctx, &guestdv1.GetInfoRequest{}); err != nil {
		t.Errorf("the next call: %v", err)
	}
	for _, want := range []string{"unary goes wrong", "slice bounds out of range", "interceptor_test.go"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("the log does not have %q:\n%s", want, logged.String())
		}
	}
}

// The requests of Exec and Attach are read beside the handler, where nothing else
// would catch a panic.
func TestPanicOverARequestOfAStreamEndsItsOwnCallOnly(t *testing.T) {
	var logged syncBuffer
	var a testAgent
	f := &faults{stream: func(s grpc.ServerStream) error {
		spec := proc.Spec{Args: []string{"sleep", "1000"}, User: strconv.Itoa(os.Geteuid())}
		p, attachment, err := a.processes.Exec(s.Context(), spec, proc.AttachOptions{})
		if err != nil {
			return err
		}
		ps := &processStream{
			ctx:  s.Context(),
			recv: func() (*guestdv1.ProcessRequest, error) { panic("a request goes wrong") },
			send: func(*guestdv1.ProcessEvent) error { return nil },
		}
		return ps.serve(p, attachment, &guestdv1.ProcessEvent{})
	}}
	a = startAgent(t, Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))}, f.desc())
	ctx := within(t)
	stream, err := a.client.NewStream(ctx, streamDesc, faultsStream)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.RecvMsg(&guestdv1.WaitResponse{})
	wantCode(t, err, codes.Internal, "UNSPECIFIED")
	if strings.Contains(err.Error(), "goes wrong") {
		t.Errorf("the client is told %v", err)
	}
	if _, err := a.system().GetInfo(ctx, &guestdv1.GetInfoRequest{}); err != nil {
		t.Errorf("the next call: %v", err)
	}
	for _, want := range []string{"a request goes wrong", "interceptor_test.go"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("the log does not have %q:\n%s", want, logged.String())
		}
	}
}

func TestMalformedRequestsNameTheField(t *testing.T) {
	reached := make(chan string, 10)
	f := &faults{
		unary: func(_ context.Context, r *guestdv1.GetRequest) error { reached <- r.GetProcessId(); return nil },
		// Like a handler that takes any failure to receive for a lost connection.
		stream: func(s grpc.ServerStream) error {
			for {
				if err := s.RecvMsg(&guestdv1.GetRequest{}); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return errors.New("the client is gone")
				}
			}
		},
	}
	a := startAgent(t, Config{}, f.desc())
	ctx := within(t)
	bad := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff")
	good := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "p-x")

	for name, request := range map[string][]byte{"text": bad, "cut short": good[:3]} {
		err := a.sendRaw(ctx, faultsUnary, request)
		wantCode(t, err, codes.InvalidArgument, "INVALID_FIELD")
		if field := errorInfo(status.Convert(err)).GetMetadata()["field"]; field != "process_id" {
			t.Errorf("%s: field = %q (%v), want process_id", name, field, err)
		}
	}
	if err := a.sendRaw(ctx, faultsUnary, good); err != nil {
		t.Error(err)
	}
	if got := <-reached; got != "p-x" || len(reached) > 0 {
		t.Errorf("the handler saw %q and %d more; want the good request alone", got, len(reached))
	}

	stream, err := a.client.NewStream(ctx, streamDesc, faultsStream, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range [][]byte{good, good, bad} {
		if err := stream.SendMsg(request); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, stream.RecvMsg(new([]byte)), codes.InvalidArgument, "INVALID_FIELD")
}

func TestOversizedRequests(t *testing.T) {
	f := &faults{unary: func(context.Context, *guestdv1.GetRequest) error { return nil }}
	a := startAgent(t, Config{}, f.desc())
	request := func(size int) []byte {
		head := protowire.AppendTag(nil, 7, protowire.BytesType) // unknown, so it may be long
		head = protowire.AppendVarint(head, uint64(size-len(head)-4))
		return append(head, make([]byte, size-len(head))...)
	}
	if err := a.sendRaw(within(t), faultsUnary, request(codec.MaxMessage)); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	err := a.sendRaw(within(t), faultsUnary, request(codec.MaxMessage+1))
	wantCode(t, err, codes.ResourceExhausted, "LIMIT_REACHED")
	if !strings.Contains(err.Error(), "8388608") {
		t.Errorf("%v does not name the limit", err)
	}
	wantCode(t, a.sendRaw(within(t), faultsUnary, request(3*codec.MaxMessage)), codes.ResourceExhausted, "")
}

func TestHandlersEndWithTheirCall(t *testing.T) {
	started, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	f := &faults{unary: func(ctx context.Context, _ *guestdv1.GetRequest) error {
		started <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return context.Cause(ctx)
	}}
	a := startAgent(t, Config{}, f.desc())
	deadline, stop := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("short"))
	defer stop()
	wantCode(t, a.call(deadline), codes.DeadlineExceeded, "")
	select { // where the call was late, it may never have reached the handler
	case <-started:
		<-ended
	default:
	}
	cancelled, cancel := context.WithCancelCause(t.Context())
	go func() { <-started; cancel(errors.New("changed my mind")) }()
	wantCode(t, a.call(cancelled), codes.Canceled, "")
	select {
	case <-ended:
	case <-within(t).Done():
		t.Error("the handler's context did not end")
	}
}

func TestUnknownCallsAndHealth(t *testing.T) {
	a := startAgent(t, Config{})
	ctx := within(t)
	wantCode(t, a.sendRaw(ctx, "/guestd.v1.SystemService/NoSuch", nil), codes.Unimplemented, "")
	_, err := a.system().GetMetrics(ctx, &guestdv1.GetMetricsRequest{})
	wantCode(t, err, codes.Unimplemented, "UNSPECIFIED")
	for _, name := range []string{"", "guestd.v1.SystemService", "guestd.v1.ProcessService", "guestd.v1.FileService", "guestd.v1.CodeService"} {
		resp, err := healthv1.NewHealthClient(a.client).Check(ctx, &healthv1.HealthCheckRequest{Service: name})
		if err != nil || resp.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q = %v, %v", name, resp, err)
		}
	}
}

func TestCallsAreLoggedForDebugging(t *testing.T) {
	var logged syncBuffer
	f := &faults{unary: func(context.Context, *guestdv1.GetRequest) error { return invalid("spec.cwd", "is wrong") }}
	a := startAgent(t, Config{Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))}, f.desc())
	wantCode(t, a.call(within(t)), codes.InvalidArgument, "INVALID_FIELD")
	for _, want := range []string{"level=DEBUG", "method=" + faultsUnary, "code=InvalidArgument", "spec.cwd: is wrong", "duration="} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("the log does not have %q:\n%s", want, logged.String())
		}
	}
}
