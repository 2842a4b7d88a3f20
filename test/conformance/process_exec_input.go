package conformance

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	pb "guestd.internal/proto/guestd/v1"
)

// feed streams input to a call from another goroutine, which ends with the case.
func feed(t *testing.T, call *processCall, data []byte, frame int) {
	t.Helper()
	meanwhile(t, call, func() { call.stream(data, frame) })
}

// meanwhile does something that sends on a call beside its receiving.
func meanwhile(t *testing.T, call *processCall, do func()) {
	t.Helper()
	var sending sync.WaitGroup
	sending.Go(do)
	t.Cleanup(func() { call.end(); sending.Wait() })
}

func (g execCases) InputIsExactAndEnds(t *testing.T) {
	data := pattern(100_000)
	call := g.exec(t, piped(command("cat")))
	feed(t, call, data, 777)
	out := call.wait(t)
	wantText(t, "stdout", out.stdout(), string(data))
	wantExitCode(t, out.exit, 0)
	if out.accepted != uint64(len(data)) {
		t.Errorf("the accepted offset is %d at the end, want %d", out.accepted, len(data))
	}
}

func (g execCases) EmptyInputEndsAtOnce(t *testing.T) {
	call := g.exec(t, piped(command("cat")))
	call.closeInput()
	wantText(t, "stdout", call.wait(t).stdout(), "")
}

func (g execCases) ThirtyTwoMebibytesGoThroughCat(t *testing.T) {
	data := pattern(g.amount(32 << 20))
	call := g.exec(t, piped(command("cat")))
	feed(t, call, data, maxPayload)
	wantText(t, "stdout", call.wait(t).stdout(), string(data))
}

func (g execCases) InputLargerThanASmallLogGoesThroughCat(t *testing.T) {
	data, limit := pattern(g.amount(16<<20)), uint64(64<<10)
	spec := piped(command("cat"))
	spec.LogLimitBytes = &limit
	call := g.exec(t, spec)
	feed(t, call, data, maxPayload)
	wantText(t, "stdout", call.wait(t).stdout(), string(data))
}

func (g execCases) InputReachesTheProgramAsItComes(t *testing.T) {
	call := g.exec(t, piped(script(`while read -r line; do echo "got $line"; done`)))
	for i := range 3 {
		call.input(fmt.Appendf(nil, "%d\n", i), 1<<20)
		answer := fmt.Sprintf("got %d\n", i)
		call.until(t, "the answer", func(out *outcome) bool { return strings.HasSuffix(out.stdout(), answer) })
	}
	call.closeInput()
	wantExitCode(t, call.wait(t).exit, 0)
}

func (g execCases) InputSentTwiceIsTakenOnce(t *testing.T) {
	call := g.exec(t, piped(command("cat")))
	call.input([]byte("hello"), 5)
	call.fed = 0
	call.input([]byte("hello world"), 11)
	call.fed = 3
	call.input([]byte("lo world!"), 9)
	call.closeInput()
	wantText(t, "stdout", call.wait(t).stdout(), "hello world!")
}

func (g execCases) InputThatLeavesAGapIsRefused(t *testing.T) {
	want := refusal{code: codes.OutOfRange, reason: pb.ErrorReason_ERROR_REASON_OFFSET_OUT_OF_RANGE}
	for _, offset := range []uint64{1, math.MaxInt64, math.MaxUint64} {
		call := g.exec(t, piped(command("cat")))
		call.fed = offset
		call.input([]byte("x"), 1)
		wantRefusal(t, call.failure(t), want)
		call = g.exec(t, piped(command("cat")))
		call.fed = offset
		call.closeInput()
		wantRefusal(t, call.failure(t), want)

		id := g.exec(t, piped(command("cat"))).out.started.ProcessId
		_, err := g.process.WriteInput(within(t), &pb.WriteInputRequest{ProcessId: id, Offset: &offset, Data: []byte("x")})
		wantRefusal(t, err, want)
		_, err = g.process.CloseInput(within(t), &pb.CloseInputRequest{ProcessId: id, Offset: &offset})
		wantRefusal(t, err, want)
	}
}

func (g execCases) InputForAProcessWithoutStdinIsRefused(t *testing.T) {
	call := g.exec(t, command("sleep", "300"))
	call.input([]byte("x"), 1)
	want := refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NO_SUCH_STREAM}
	wantRefusal(t, call.failure(t), want)
}

func (g execCases) InputFrameOverAMebibyteIsRefused(t *testing.T) {
	call := g.exec(t, piped(command("cat")))
	call.input(make([]byte, maxPayload+1), maxPayload+1)
	wantRefusal(t, call.failure(t), badField("input.data"))
}

func (g execCases) ProgramThatClosesItsStdinIsTold(t *testing.T) {
	call := g.exec(t, piped(script(`exec 0<&-; trap 'exit 3' TERM; echo closed; while :; do :; done`)))
	call.until(t, "the program's word", func(out *outcome) bool { return out.stdout() == "closed\n" })
	meanwhile(t, call, func() {
		call.input(pattern(4<<20), maxPayload)
		call.closeInput()
		call.signal(15)
	})
	call.until(t, "input_status closed", func(out *outcome) bool { return out.inputClosed })
	wantExitCode(t, call.wait(t).exit, 3)
}

func (g execCases) ProgramThatEndsEarlyDoesNotWaitForItsInput(t *testing.T) {
	call := g.exec(t, piped(command("head", "-c", "3")))
	feed(t, call, pattern(g.amount(32<<20)), maxPayload)
	out := call.wait(t)
	wantText(t, "stdout", out.stdout(), string(pattern(3)))
	wantExitCode(t, out.exit, 0)
}

// The input is more than the pipe holds, so it waits in guestd.
func (g execCases) SignalIsNotHeldUpByInputThatNobodyReads(t *testing.T) {
	call := g.exec(t, piped(command("sleep", "300")))
	call.input(pattern(1<<20), 1<<20)
	call.closeInput()
	call.signal(15)
	wantSignal(t, call.wait(t).exit, 15)
}

func (g execCases) TimeOutIsNotHeldUpByInputThatNobodyReads(t *testing.T) {
	call := g.exec(t, limited(piped(command("sleep", "300")), 1e9, 1e9))
	feed(t, call, pattern(g.amount(32<<20)), maxPayload)
	if out := call.wait(t); !out.exit.TimedOut {
		t.Errorf("timed_out is not set: %v", out.exit)
	}
}
