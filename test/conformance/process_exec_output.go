package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	pb "guestd.internal/proto/guestd/v1"
)

// execCases are the contract of ProcessService.Exec for processes without a
// terminal.
type execCases struct{ *guest }

func (g execCases) HeaderSaysWhoWasStarted(t *testing.T) {
	out := g.complete(t, script(`echo $$`))
	started := out.started
	if !strings.HasPrefix(started.ProcessId, "p-") || len(started.ProcessId) != len("p-")+13 {
		t.Errorf("process id %q, want p- and 13 characters", started.ProcessId)
	}
	wantText(t, "the shell's own pid", strings.TrimSpace(out.stdout()), fmt.Sprint(started.Pid))
	if started.StartTime.AsTime().Unix() == 0 {
		t.Error("no start time")
	}
	info, err := g.system.GetInfo(within(t), &pb.GetInfoRequest{})
	if err != nil {
		t.Fatalf("GetInfo: %v", err)
	}
	wantText(t, "the instance id", started.InstanceId, info.InstanceId)
}

func (g execCases) OutputIsExact(t *testing.T) {
	out := g.complete(t, script(`printf '\000\001\r\n\n\200\377\303no end'`))
	wantText(t, "stdout", out.stdout(), "\x00\x01\r\n\n\x80\xff\xc3no end")
}

func (g execCases) StdoutAndStderrAreToldApart(t *testing.T) {
	out := g.complete(t, script(`i=0; while [ $i -lt 500 ]; do echo out; echo err >&2; i=$((i+1)); done`))
	wantText(t, "stdout", out.stdout(), strings.Repeat("out\n", 500))
	wantText(t, "stderr", out.stderr(), strings.Repeat("err\n", 500))
}

func (g execCases) MergedOutputIsOneOrderedStream(t *testing.T) {
	spec := script(`i=0; while [ $i -lt 500 ]; do echo out; echo err >&2; i=$((i+1)); done`)
	spec.Output = pb.OutputMode_OUTPUT_MODE_MERGED
	out := g.complete(t, spec)
	wantText(t, "stdout", out.stdout(), strings.Repeat("out\nerr\n", 500))
	wantText(t, "stderr", out.stderr(), "")
}

func (g execCases) TenMebibytesOfOutputAreExact(t *testing.T) {
	n := g.amount(1_500_000)
	out := g.complete(t, command("seq", "1", fmt.Sprint(n)))
	wantText(t, "stdout", out.stdout(), numbers(n))
}

func (g execCases) LineWithoutEndIsNoSpecialCase(t *testing.T) {
	size := g.amount(8 << 20)
	out := g.complete(t, command("head", "-c", fmt.Sprint(size), "/dev/zero"))
	if got := len(out.stdout()); got != size || strings.Trim(out.stdout(), "\x00") != "" {
		t.Errorf("%d bytes, want %d zeros", got, size)
	}
}

func (g execCases) SmallLogLosesNothing(t *testing.T) {
	spec, limit := command("seq", "1", "300000"), uint64(64<<10)
	spec.LogLimitBytes = &limit
	out := g.complete(t, spec)
	wantText(t, "stdout", out.stdout(), numbers(300_000))
}

func (g execCases) ClientThatAcknowledgesNothingAndWaitsForNothingIsServed(t *testing.T) {
	data := pattern(g.amount(16 << 20))
	stream, err := g.process.Exec(within(t))
	if err != nil {
		t.Fatalf("Exec: %v", err)
	}
	var sending sync.WaitGroup
	sending.Go(func() { sendEagerly(stream, piped(command("cat")), data) })
	defer sending.Wait()
	var out outcome
	for out.exit == nil {
		response, err := stream.Recv()
		if err != nil {
			t.Fatalf("receiving: %v", err)
		}
		if err := out.take(response.Event); err != nil {
			t.Fatal(err)
		}
	}
	wantText(t, "stdout", out.stdout(), string(data))
}

// sendEagerly starts a process and sends all its input. What ends the stream is
// told to whoever receives.
func sendEagerly(stream pb.ProcessService_ExecClient, spec *pb.ProcessSpec, data []byte) {
	send := func(request *pb.ProcessRequest) bool { return stream.Send(&pb.ExecRequest{Request: request}) == nil }
	if !send(&pb.ProcessRequest{Request: &pb.ProcessRequest_Start{Start: &pb.ExecStart{Spec: spec}}}) {
		return
	}
	for at := 0; at < len(data); at += maxPayload {
		frame := &pb.ProcessInput{Offset: uint64(at), Data: data[at:min(at+maxPayload, len(data))]}
		if !send(&pb.ProcessRequest{Request: &pb.ProcessRequest_Input{Input: frame}}) {
			return
		}
	}
	end := &pb.ProcessCloseInput{Offset: uint64(len(data))}
	_ = send(&pb.ProcessRequest{Request: &pb.ProcessRequest_CloseInput{CloseInput: end}})
}

// The stalled stream's output is more than log, windows and pipe hold.
func (g execCases) StalledReaderHoldsItsOwnProcessBackAndNobodyElse(t *testing.T) {
	dir, n := g.folder(t), 6_000_000
	stalled := g.exec(t, script(`seq 1 `+fmt.Sprint(n)+`; : >"$1/written"`, dir))
	for i := range 20 {
		out := g.complete(t, command("echo", fmt.Sprint(i)))
		wantText(t, "stdout", out.stdout(), fmt.Sprint(i)+"\n")
	}
	if g.exists(t, dir+"/written") {
		t.Error("the process wrote everything though nobody read or acknowledged it")
	}
	if g.Capabilities.Slow {
		return
	}
	if out := stalled.wait(t); out.stdout() != numbers(n) {
		t.Errorf("the stalled reader lost something: %v", out)
	}
}

func (g execCases) TailsOfShortCommandsAreNeverLost(t *testing.T) {
	g.repeat(t, g.amount(300), 4, func(ctx context.Context, i int) error {
		size := []int{1, 5, 4096, 60_000, 150_000}[i%5]
		call, err := g.openExec(ctx, &pb.ExecStart{Spec: command("head", "-c", fmt.Sprint(size), "/dev/zero")})
		if err != nil {
			return err
		}
		out, err := call.finish()
		if err == nil && len(out.stdout()) != size {
			err = fmt.Errorf("%d bytes of %d arrived", len(out.stdout()), size)
		}
		return err
	})
}

func (g execCases) FiftyRunSideBySide(t *testing.T) {
	dir := g.folder(t)
	// Each waits until all have started, so that they are alive at one time.
	const text = `: >"$1/$2"; while set -- "$1" "$2" "$1"/*; [ $# -lt 52 ]; do sleep 0.1; done; echo "$2"; exit "$2"`
	g.repeat(t, 50, 50, func(ctx context.Context, i int) error {
		call, err := g.openExec(ctx, &pb.ExecStart{Spec: script(text, dir, fmt.Sprint(i))})
		if err != nil {
			return err
		}
		out, err := call.finish()
		if err == nil && (out.stdout() != fmt.Sprintln(i) || out.exit.GetExitCode() != uint32(i)) {
			err = fmt.Errorf("process %d: %v", i, out)
		}
		return err
	})
}

// repeat does something n times, at most atOnce at a time.
func (g *guest) repeat(t *testing.T, n, atOnce int, do func(ctx context.Context, i int) error) {
	t.Helper()
	calls, ctx := errgroup.WithContext(within(t))
	calls.SetLimit(atOnce)
	for i := range n {
		calls.Go(func() error {
			if err := do(ctx, i); err != nil {
				return fmt.Errorf("number %d of %d: %w", i, n, err)
			}
			return nil
		})
	}
	if err := calls.Wait(); err != nil {
		t.Error(err)
	}
}
