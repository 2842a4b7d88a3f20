package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "guestd.internal/proto/guestd/v1"
)

// requestIDCases are what all calls with a request id have in common.
type requestIDCases struct{ *guest }

// repeatable makes a call under a request id, and tells what it has answered: a
// message, or the id of what it attaches to. Other makes another request of it. Done
// twice it would fail, or answer something else.
type repeatable func(ctx context.Context, id string, other bool) (answer string, err error)

// repeatables are all calls with a request id, by their full names.
func (g requestIDCases) repeatables(t *testing.T) map[string]repeatable {
	calls := make(map[string]repeatable)
	g.addProcessCalls(calls)
	g.addFileCalls(t, calls)
	if g.Capabilities.Bash {
		g.addCodeCalls(t, calls)
	}
	return calls
}

func (g requestIDCases) addProcessCalls(calls map[string]repeatable) {
	spec := func(other bool) *pb.ProcessSpec {
		if other {
			return command("false")
		}
		return command("true")
	}
	calls[pb.ProcessService_Run_FullMethodName] = func(ctx context.Context, id string, other bool) (string, error) {
		return encoded(g.process.Run(ctx, &pb.RunRequest{RequestId: id, Spec: spec(other)}))
	}
	calls[pb.ProcessService_Start_FullMethodName] = func(ctx context.Context, id string, other bool) (string, error) {
		return encoded(g.process.Start(ctx, &pb.StartRequest{RequestId: id, Spec: spec(other)}))
	}
	calls[pb.ProcessService_Exec_FullMethodName] = func(ctx context.Context, id string, other bool) (string, error) {
		call, err := g.openExec(ctx, &pb.ExecStart{RequestId: id, Spec: spec(other)})
		if err != nil {
			return "", err
		}
		out, err := call.finish()
		return out.started.GetProcessId(), err
	}
}

func (g requestIDCases) addCodeCalls(t *testing.T, calls map[string]repeatable) {
	calls[pb.CodeService_Execute_FullMethodName] = func(ctx context.Context, id string, other bool) (string, error) {
		e, err := g.openExecution(ctx, &pb.ExecuteRequest{RequestId: id, Language: "bash", Code: "true", AllowStdin: other})
		if err != nil {
			return "", err
		}
		return e.id, e.finish()
	}
	calls[pb.CodeService_CreateContext_FullMethodName] = func(ctx context.Context, id string, other bool) (string, error) {
		request := &pb.CreateContextRequest{RequestId: id, Language: "bash"}
		if other {
			request.Name = "other"
		}
		response, err := g.code.CreateContext(ctx, request)
		if err == nil {
			t.Cleanup(func() {
				// Each of the calls that got it deletes it.
				_, _ = g.code.DeleteContext(afterwards(t), &pb.DeleteContextRequest{ContextId: response.Context.ContextId})
			})
		}
		return response.GetContext().GetContextId(), err
	}
	restarted := sync.OnceValue(func() string { return g.ownContext(t) })
	calls[pb.CodeService_RestartContext_FullMethodName] = func(ctx context.Context, id string, other bool) (string, error) {
		request := &pb.RestartContextRequest{RequestId: id, ContextId: restarted()}
		if other {
			request.ContextId = "c-aaaaaaaaaaaaa"
		}
		response, err := g.code.RestartContext(ctx, request)
		return fmt.Sprintf("%s %d", response.GetContext().GetContextId(), response.GetContext().GetKernelGeneration()), err
	}
}

// ownContext makes a context, with a kernel to count where there can be one.
func (g requestIDCases) ownContext(t *testing.T) string {
	t.Helper()
	language := "bash"
	if g.Capabilities.Python {
		language = "python"
	}
	response, err := g.code.CreateContext(within(t), &pb.CreateContextRequest{Language: language})
	if err != nil {
		t.Errorf("CreateContext: %v", err)
		return ""
	}
	id := response.Context.ContextId
	t.Cleanup(func() {
		if _, err := g.code.DeleteContext(afterwards(t), &pb.DeleteContextRequest{ContextId: id}); err != nil {
			t.Errorf("DeleteContext: %v", err)
		}
	})
	return id
}

// encoded is an answer for comparison.
func encoded[M proto.Message](answer M, err error) (string, error) {
	if err != nil {
		return "", err
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(answer)
	return string(text), err
}

// The scope of an id is its method, so all of them use the same one here.
func (g requestIDCases) RepetitionsAtTheSameTimeDoTheWorkOnce(t *testing.T) {
	id := g.folder(t)
	for method, call := range g.repeatables(t) {
		t.Run(method, func(t *testing.T) {
			answers := make([]string, 5)
			calls, ctx := errgroup.WithContext(within(t))
			for i := range answers {
				calls.Go(func() (err error) {
					answers[i], err = call(ctx, id, false)
					return err
				})
			}
			if err := calls.Wait(); err != nil {
				t.Fatal(err)
			}
			for _, answer := range answers {
				if answer == "" || answer != answers[0] {
					t.Errorf("one answer is %q, another %q", answers[0], answer)
				}
			}
		})
	}
}

func (g requestIDCases) AnotherRequestUnderTheSameIDIsRefused(t *testing.T) {
	id := g.folder(t)
	for method, call := range g.repeatables(t) {
		t.Run(method, func(t *testing.T) {
			if _, err := call(within(t), id, false); err != nil {
				t.Fatal(err)
			}
			_, err := call(within(t), id, true)
			wantRefusal(t, err, refusal{code: codes.AlreadyExists, reason: pb.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED})
		})
	}
}

func (g requestIDCases) MalformedIDsAreRefused(t *testing.T) {
	for method, call := range g.repeatables(t) {
		t.Run(method, func(t *testing.T) {
			for _, id := range []string{strings.Repeat("i", 129), "tab\t", "é", "nul\x00"} {
				_, err := call(within(t), id, false)
				wantRefusal(t, err, badField("request_id"))
			}
			if _, err := call(within(t), g.folder(t)+strings.Repeat("~ ", 40), false); err != nil {
				t.Errorf("a proper id: %v", err)
			}
		})
	}
}

func (g requestIDCases) EveryCallWithAnIDIsTried(t *testing.T) {
	calls := g.repeatables(t)
	for _, method := range methods() {
		tried := calls[method] != nil || !g.Capabilities.Bash && strings.Contains(method, "CodeService")
		if takesRequestID(method) && !tried {
			t.Errorf("no case for %s", method)
		}
	}
}

// headers are what the first message of a stream of requests holds.
var headers = map[string]proto.Message{
	pb.ProcessService_Exec_FullMethodName:   &pb.ExecStart{},
	pb.ProcessService_Attach_FullMethodName: &pb.ProcessAttach{},
	pb.FileService_Write_FullMethodName:     &pb.WriteHeader{},
	pb.FileService_Extract_FullMethodName:   &pb.ExtractHeader{},
	pb.SystemService_Tunnel_FullMethodName:  &pb.TunnelOpen{},
}

// takesRequestID says whether a call's request, or its stream's header, has a request
// id.
func takesRequestID(method string) bool {
	if header := headers[method]; header != nil {
		return header.ProtoReflect().Descriptor().Fields().ByName("request_id") != nil
	}
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		panic(err)
	}
	call := descriptor.(protoreflect.MethodDescriptor)
	if call.IsStreamingClient() {
		panic("headers lacks " + method)
	}
	return call.Input().Fields().ByName("request_id") != nil
}
