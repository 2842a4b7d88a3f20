package agent

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// faults is a service whose methods do what a test says. Its messages are
// GetRequest and WaitResponse.
type faults struct {
	unary  func(context.Context, *guestdv1.GetRequest) error
	stream func(grpc.ServerStream) error
}

const (
	faultsUnary  = "/test.Faults/Unary"
	faultsStream = "/test.Faults/Stream"
	faultsName   = "test.Faults"
)

var streamDesc = &grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true}

// desc describes the service to grpc.
func (f *faults) desc() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: faultsName,
		Methods: []grpc.MethodDesc{{MethodName: "Unary", Handler: func(_ any, ctx context.Context, dec func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			req := new(guestdv1.GetRequest)
			if err := dec(req); err != nil {
				return nil, err
			}
			info := &grpc.UnaryServerInfo{FullMethod: faultsUnary}
			return intercept(ctx, req, info, func(ctx context.Context, req any) (any, error) {
				return &guestdv1.WaitResponse{}, f.unary(ctx, req.(*guestdv1.GetRequest))
			})
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return f.stream(stream) }}},
	}
}

// call calls Unary.
func (a testAgent) call(ctx context.Context) error {
	return a.client.Invoke(ctx, faultsUnary, &guestdv1.GetRequest{}, &guestdv1.WaitResponse{})
}

// rawCodec sends bytes as they are, and ignores answers.
type rawCodec struct{}

func (rawCodec) Name() string                         { return "proto" }
func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// sendRaw makes a unary call with any bytes for a request.
func (a testAgent) sendRaw(ctx context.Context, method string, request []byte) error {
	return a.client.Invoke(ctx, method, request, new([]byte), grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallSendMsgSize(1<<30))
}

// errorInfo is the status' ErrorInfo, nil where it has none.
func errorInfo(st *status.Status) *errdetails.ErrorInfo {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}
