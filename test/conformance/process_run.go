package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "guestd.internal/proto/guestd/v1"
)

// runCases are the contract of ProcessService.Run.
type runCases struct{ *guest }

func (g runCases) run(t *testing.T, request *pb.RunRequest) *pb.RunResponse {
	t.Helper()
	response, err := g.process.Run(within(t), request)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return response
}

func stdoutOf(response *pb.RunResponse) *pb.CapturedOutput {
	for _, output := range response.Outputs {
		if output.Stream == pb.OutputStream_OUTPUT_STREAM_STDOUT {
			return output
		}
	}
	return nil
}

func (g runCases) OutcomeAndOutputArriveTogether(t *testing.T) {
	response := g.run(t, &pb.RunRequest{Spec: script(`printf 'a\000b\377no end'; printf 'told apart' >&2; exit 3`)})
	wantExitCode(t, response.Exit, 3)
	wantText(t, "stdout", captured(response, pb.OutputStream_OUTPUT_STREAM_STDOUT), "a\x00b\xffno end")
	wantText(t, "stderr", captured(response, pb.OutputStream_OUTPUT_STREAM_STDERR), "told apart")
	if response.ProcessId == "" || response.Pid == 0 {
		t.Errorf("process id %q, pid %d: want both", response.ProcessId, response.Pid)
	}
}

func (g runCases) EveryStreamHasAnEntryEvenASilentOne(t *testing.T) {
	response := g.run(t, &pb.RunRequest{Spec: command("true")})
	if len(response.Outputs) != 2 {
		t.Errorf("outputs: %v, want stdout and stderr", response.Outputs)
	}
	merged := command("true")
	merged.Output = pb.OutputMode_OUTPUT_MODE_MERGED
	if response := g.run(t, &pb.RunRequest{Spec: merged}); len(response.Outputs) != 1 {
		t.Errorf("merged outputs: %v, want one", response.Outputs)
	}
}

func (g runCases) StdinIsReadToItsEnd(t *testing.T) {
	data := pattern(200 << 10)
	response := g.run(t, &pb.RunRequest{Spec: command("cat"), Stdin: data})
	wantText(t, "stdout", captured(response, pb.OutputStream_OUTPUT_STREAM_STDOUT), string(data))
	if response.InputClosed {
		t.Error("input_closed is set though all was read")
	}
}

func (g runCases) SevenMebibytesOfStdinAreTaken(t *testing.T) {
	zero := uint64(0)
	response := g.run(t, &pb.RunRequest{Spec: command("cat"), Stdin: pattern(7 << 20), MaxCaptureBytes: &zero})
	if total := stdoutOf(response).GetTotalBytes(); total != 7<<20 {
		t.Errorf("cat wrote %d bytes, want %d", total, 7<<20)
	}
}

func (g runCases) AbsentStdinIsEndOfFileAtOnce(t *testing.T) {
	response := g.run(t, &pb.RunRequest{Spec: command("cat")})
	wantExitCode(t, response.Exit, 0)
	wantText(t, "stdout", captured(response, pb.OutputStream_OUTPUT_STREAM_STDOUT), "")
}

func (g runCases) ProgramThatLeavesItsStdinUnreadIsTold(t *testing.T) {
	response := g.run(t, &pb.RunRequest{Spec: command("true"), Stdin: pattern(1 << 20)})
	wantExitCode(t, response.Exit, 0)
	if !response.InputClosed {
		t.Error("input_closed is not set")
	}
}

func (g runCases) CaptureKeepsTheFirstAndTheLastBytes(t *testing.T) {
	whole, limit := numbers(50_000), uint64(1000)
	response := g.run(t, &pb.RunRequest{Spec: command("seq", "1", "50000"), MaxCaptureBytes: &limit})
	out := stdoutOf(response)
	if got := len(out.GetHead()) + len(out.GetTail()); got != 1000 {
		t.Errorf("captured %d and %d bytes, want 1000 in all", len(out.GetHead()), len(out.GetTail()))
	}
	if !strings.HasPrefix(whole, string(out.GetHead())) || !strings.HasSuffix(whole, string(out.GetTail())) {
		t.Errorf("head %q and tail %q are not the output's first and last bytes", out.GetHead(), out.GetTail())
	}
	if len(out.GetHead()) != len(out.GetTail()) {
		t.Errorf("head has %d bytes and tail %d, want halves", len(out.GetHead()), len(out.GetTail()))
	}
	if out.GetTotalBytes() != uint64(len(whole)) || out.GetGapBytes() != uint64(len(whole))-1000 {
		t.Errorf("total %d, gap %d: want %d and %d", out.GetTotalBytes(), out.GetGapBytes(), len(whole), len(whole)-1000)
	}
}

func (g runCases) CaptureIs256KiBUnlessTold(t *testing.T) {
	response := g.run(t, &pb.RunRequest{Spec: command("head", "-c", "300000", "/dev/zero")})
	out := stdoutOf(response)
	if got := len(out.GetHead()) + len(out.GetTail()); got != 256<<10 {
		t.Errorf("captured %d bytes, want %d", got, 256<<10)
	}
}

func (g runCases) CaptureOfZeroCarriesNothingAndCounts(t *testing.T) {
	zero := uint64(0)
	response := g.run(t, &pb.RunRequest{Spec: command("seq", "1", "10"), MaxCaptureBytes: &zero})
	out := stdoutOf(response)
	if len(out.GetHead())+len(out.GetTail()) != 0 || out.GetTotalBytes() != 21 || out.GetGapBytes() != 21 {
		t.Errorf("%v, want a gap of 21 bytes and nothing else", out)
	}
}

func (g runCases) CaptureNeverHoldsTheProcessBack(t *testing.T) {
	limit, size := uint64(64), g.amount(64<<20)
	response := g.run(t, &pb.RunRequest{Spec: command("head", "-c", fmt.Sprint(size), "/dev/zero"), MaxCaptureBytes: &limit})
	if total := stdoutOf(response).GetTotalBytes(); total != uint64(size) {
		t.Errorf("total %d, want %d", total, size)
	}
}

func (g runCases) BackgroundChildDoesNotHoldTheAnswerBack(t *testing.T) {
	response := g.run(t, &pb.RunRequest{Spec: script(`sleep 300 & echo $!`)})
	child := strings.TrimSpace(captured(response, pb.OutputStream_OUTPUT_STREAM_STDOUT))
	g.killLater(t, child)
	wantExitCode(t, response.Exit, 0)
	if !g.alive(t, child) {
		t.Error("the background child did not outlive its leader")
	}
}

func (g runCases) TimeOutIsDataAndNotAnError(t *testing.T) {
	response := g.run(t, &pb.RunRequest{Spec: limited(command("sleep", "300"), 200*time.Millisecond, time.Second)})
	wantSignal(t, response.Exit, 15)
	if !response.Exit.TimedOut {
		t.Error("timed_out is not set")
	}
}

func (g runCases) RepeatedRequestIDAnswersTheSameAndRunsOnce(t *testing.T) {
	file := g.folder(t) + "/runs"
	request := &pb.RunRequest{RequestId: file, Spec: script(`echo run >>"$1"; echo out; exit 4`, file)}
	responses := make([]*pb.RunResponse, 5)
	calls, ctx := errgroup.WithContext(within(t))
	for i := range responses {
		calls.Go(func() (err error) {
			responses[i], err = g.process.Run(ctx, request)
			return err
		})
	}
	if err := calls.Wait(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	for _, response := range responses[1:] {
		if !proto.Equal(response, responses[0]) {
			t.Errorf("one answer is %v, another %v", responses[0], response)
		}
	}
	wantText(t, "the file", g.sh(t, `cat "$1"`, file), "run")
}

func (g runCases) RequestIDOfAnotherRequestIsRefused(t *testing.T) {
	id := g.folder(t)
	g.run(t, &pb.RunRequest{RequestId: id, Spec: command("true")})
	_, err := g.process.Run(within(t), &pb.RunRequest{RequestId: id, Spec: command("false")})
	wantRefusal(t, err, refusal{code: codes.AlreadyExists, reason: pb.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED})
}

func (g runCases) FailedStartIsNotRemembered(t *testing.T) {
	program := g.folder(t) + "/program"
	request := &pb.RunRequest{RequestId: program, Spec: command(program)}
	_, err := g.process.Run(within(t), request)
	wantRefusal(t, err, refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_COMMAND_NOT_FOUND})
	g.sh(t, `printf '#!/bin/sh\nexit 6\n' >"$1" && chmod 755 "$1"`, program)
	wantExitCode(t, g.run(t, request).Exit, 6)
}

func (g runCases) CallThatIsGivenUpLeavesTheProcessRunning(t *testing.T) {
	dir := g.folder(t)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := g.process.Run(ctx, &pb.RunRequest{Spec: script(waitForGo+`: >"$1/survived"`, dir)})
		done <- err
	}()
	eventually(t, "the process starts", func() bool { return g.exists(t, dir+"/waiting") })
	cancel()
	wantCode(t, <-done, codes.Canceled)
	g.touch(t, dir+"/go")
	eventually(t, "the process ends its work", func() bool { return g.exists(t, dir+"/survived") })
}

// waitForGo is a script's beginning: tell that it runs, wait for a sign.
const waitForGo = `: >"$1/waiting"; until [ -e "$1/go" ]; do sleep 0.1; done; `

func (g runCases) DeadlineKillsTheProcessWhereTheRequestSaysSo(t *testing.T) {
	dir := g.folder(t)
	spec := script(`echo $$ >"$1/new"; mv "$1/new" "$1/pid"; exec sleep 300`, dir)
	spec.OnDisconnect, spec.KillGrace = pb.OnDisconnect_ON_DISCONNECT_KILL, durationpb.New(0)
	ctx, cancel := context.WithTimeout(within(t), 2*time.Second)
	defer cancel()
	_, err := g.process.Run(ctx, &pb.RunRequest{Spec: spec})
	wantCode(t, err, codes.DeadlineExceeded)
	pid := g.sh(t, `cat "$1/pid"`, dir)
	g.killLater(t, pid)
	eventually(t, "the process dies", func() bool { return !g.alive(t, pid) })
}

func (g runCases) MalformedRequestsAreRefusedNamingTheField(t *testing.T) {
	over := uint64(512<<10 + 1)
	for _, c := range []struct {
		field   string
		request *pb.RunRequest
	}{
		{"spec", &pb.RunRequest{}},
		{"max_capture_bytes", &pb.RunRequest{Spec: command("true"), MaxCaptureBytes: &over}},
		{"request_id", &pb.RunRequest{Spec: command("true"), RequestId: strings.Repeat("i", 129)}},
		{"request_id", &pb.RunRequest{Spec: command("true"), RequestId: "tab\t"}},
		{"request_id", &pb.RunRequest{Spec: command("true"), RequestId: "é"}},
		{"stdin", &pb.RunRequest{Spec: command("true"), Stdin: make([]byte, 7<<20+1)}},
	} {
		t.Run(c.field, func(t *testing.T) {
			_, err := g.process.Run(within(t), c.request)
			wantRefusal(t, err, badField(c.field))
		})
	}
}
