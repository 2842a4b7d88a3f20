package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "guestd.internal/proto/guestd/v1"
)

// These cases are about clients: ones that vanish, come again, or speak nonsense.

func (g execCases) EndOfRequestsClosesNothing(t *testing.T) {
	stream, err := g.process.Exec(within(t))
	if err != nil {
		t.Fatalf("Exec: %v", err)
	}
	start := &pb.ExecStart{Spec: piped(script(`echo $$; cat; echo "its end came"`))}
	if err := stream.Send(&pb.ExecRequest{Request: &pb.ProcessRequest{Request: &pb.ProcessRequest_Start{Start: start}}}); err != nil {
		t.Fatalf("sending: %v", err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatalf("ending the requests: %v", err)
	}
	var out outcome
	for out.exit == nil {
		response, err := stream.Recv()
		if err != nil {
			t.Fatalf("receiving: %v", err)
		}
		if err := out.take(response.Event); err != nil {
			t.Fatal(err)
		}
		if out.stdout() != "" && out.exit == nil {
			g.kill(t, out.started.Pid)
		}
	}
	wantSignal(t, out.exit, 9)
}

func (g execCases) ProcessOutlivesAClientThatVanishes(t *testing.T) {
	dir := g.folder(t)
	call := g.exec(t, script(waitForGo+`: >"$1/survived"`, dir))
	call.end()
	g.touch(t, dir+"/go")
	eventually(t, "the process ends its work", func() bool { return g.exists(t, dir+"/survived") })
}

func (g execCases) ProcessIsNotHeldBackOnceItsReaderIsGone(t *testing.T) {
	dir := g.folder(t)
	spec := script(`seq 1 "$2" && : >"$1/written"`, dir, fmt.Sprint(g.amount(3_000_000)))
	call := g.execStart(t, &pb.ExecStart{Spec: spec, Reader: &pb.OutputReader{ReconnectGrace: durationpb.New(0)}})
	call.until(t, "some output", func(out *outcome) bool { return out.stdout() != "" })
	call.end()
	eventually(t, "the process has written everything", func() bool { return g.exists(t, dir+"/written") })
}

func (g execCases) ProcessDiesWithItsClientWhereAskedFor(t *testing.T) {
	call := g.execStart(t, killedAtOnce(script(`sleep 300 & echo $!; while :; do echo noise >&2; done`)))
	call.until(t, "the child's pid", func(out *outcome) bool { return strings.HasSuffix(out.stdout(), "\n") })
	leader, child := fmt.Sprint(call.out.started.Pid), strings.TrimSpace(call.out.stdout())
	g.killLater(t, child)
	call.end()
	eventually(t, "the leader dies", func() bool { return !g.alive(t, leader) })
	eventually(t, "the child dies", func() bool { return !g.alive(t, child) })
}

func (g execCases) BrokenConnectionIsLikeACancelledCall(t *testing.T) {
	dir, other := g.folder(t), over(g.Target, g.Dial(t))
	doomed, err := other.openExec(within(t), killedAtOnce(script(`while :; do echo noise; done`)))
	if err != nil {
		t.Fatalf("starting: %v", err)
	}
	kept, err := other.openExec(within(t), &pb.ExecStart{Spec: script(waitForGo+`: >"$1/survived"`, dir)})
	if err != nil {
		t.Fatalf("starting: %v", err)
	}
	if err := other.conn.Close(); err != nil {
		t.Fatalf("closing the connection: %v", err)
	}
	doomed.end()
	kept.end()
	pid := fmt.Sprint(doomed.out.started.Pid)
	g.killLater(t, pid)
	eventually(t, "the process dies", func() bool { return !g.alive(t, pid) })
	g.touch(t, dir+"/go")
	eventually(t, "the other ends its work", func() bool { return g.exists(t, dir+"/survived") })
}

func (g execCases) RepeatedRequestIDAttachesToTheSameProcess(t *testing.T) {
	dir := g.folder(t)
	start := &pb.ExecStart{RequestId: dir, Spec: script(`echo one; `+waitForGo+`echo two; exit 3`, dir)}
	first := g.execStart(t, start)
	first.until(t, "some output", func(out *outcome) bool { return out.stdout() == "one\n" })
	second := g.execStart(t, start)
	wantText(t, "the second call's process", second.out.started.ProcessId, first.out.started.ProcessId)
	g.touch(t, dir+"/go")
	for _, call := range []*processCall{first, second} {
		out := call.wait(t)
		wantText(t, "stdout", out.stdout(), "one\ntwo\n")
		wantExitCode(t, out.exit, 3)
	}
	third := g.execStart(t, start).wait(t)
	wantText(t, "stdout after the end", third.stdout(), "one\ntwo\n")
}

func (g execCases) RequestIDOfAnotherRequestIsRefused(t *testing.T) {
	id := g.folder(t)
	g.execStart(t, &pb.ExecStart{RequestId: id, Spec: command("true")}).wait(t)
	_, err := g.openExec(within(t), &pb.ExecStart{RequestId: id, Spec: command("false")})
	wantRefusal(t, err, refusal{code: codes.AlreadyExists, reason: pb.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED})
}

func (g execCases) MalformedReadersAreRefused(t *testing.T) {
	for field, reader := range map[string]*pb.OutputReader{
		"reader.reader_id":       {ReaderId: strings.Repeat("r", 129)},
		"reader.mode":            {Mode: 99},
		"reader.stall_timeout":   {StallTimeout: durationpb.New(0)},
		"reader.reconnect_grace": {ReconnectGrace: durationpb.New(24*3600e9 + 1)},
	} {
		_, err := g.openExec(within(t), &pb.ExecStart{Spec: command("true"), Reader: reader})
		wantRefusal(t, err, badField(field))
	}
}

func (g execCases) FirstMessageMustBeStart(t *testing.T) {
	for name, first := range map[string]*pb.ProcessRequest{
		"nothing":     nil,
		"empty":       {},
		"input":       {Request: &pb.ProcessRequest_Input{Input: &pb.ProcessInput{Data: []byte("x")}}},
		"close_input": {Request: &pb.ProcessRequest_CloseInput{CloseInput: &pb.ProcessCloseInput{}}},
		"attach":      {Request: &pb.ProcessRequest_Attach{Attach: &pb.ProcessAttach{ProcessId: "p-aaaaaaaaaaaaa"}}},
		"signal":      {Request: &pb.ProcessRequest_Signal{Signal: &pb.ProcessSignal{Signal: 9}}},
	} {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, g.rawExec(t, first), badField(""))
		})
	}
	t.Run("no message", func(t *testing.T) { wantRefusal(t, g.rawExec(t), badField("")) })
}

func (g execCases) StartAndAttachComeFirstOrNotAtAll(t *testing.T) {
	start := &pb.ProcessRequest{Request: &pb.ProcessRequest_Start{Start: killedAtOnce(command("sleep", "300"))}}
	attach := &pb.ProcessRequest{Request: &pb.ProcessRequest_Attach{Attach: &pb.ProcessAttach{ProcessId: "p-aaaaaaaaaaaaa"}}}
	wantRefusal(t, g.rawExec(t, start, start), badField("request"))
	wantRefusal(t, g.rawExec(t, start, attach), badField("request"))
}

func (g execCases) RequestsOfARunningCallAreCheckedNamingTheField(t *testing.T) {
	ack := func(stream pb.OutputStream) *pb.ProcessRequest {
		return &pb.ProcessRequest{Request: &pb.ProcessRequest_Ack{Ack: &pb.StreamOffset{Stream: stream}}}
	}
	for _, c := range []struct {
		field   string
		request *pb.ProcessRequest
	}{
		{"request", nil},
		{"request", &pb.ProcessRequest{}},
		{"signal.scope", &pb.ProcessRequest{Request: &pb.ProcessRequest_Signal{Signal: &pb.ProcessSignal{Signal: 1, Scope: 99}}}},
		{"ack.stream", ack(pb.OutputStream_OUTPUT_STREAM_UNSPECIFIED)},
		{"ack.stream", ack(pb.OutputStream_OUTPUT_STREAM_TERMINAL)},
		{"ack.stream", ack(99)},
	} {
		start := &pb.ProcessRequest{Request: &pb.ProcessRequest_Start{Start: killedAtOnce(command("sleep", "300"))}}
		wantRefusal(t, g.rawExec(t, start, c.request), badField(c.field))
	}
}

// rawExec sends messages on an Exec, ends the requests, and returns how it failed.
func (g *guest) rawExec(t *testing.T, messages ...*pb.ProcessRequest) error {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	stream, err := g.process.Exec(ctx)
	if err != nil {
		return err
	}
	for _, message := range messages {
		// What ended the stream is told by Recv.
		if err := stream.Send(&pb.ExecRequest{Request: message}); err != nil {
			break
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}
