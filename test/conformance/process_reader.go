package conformance

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "guestd.internal/proto/guestd/v1"
)

// readerCases are the contract of those who read slowly, or no more.
type readerCases struct{ *guest }

// smallLog gives a process a log that is soon full.
func smallLog(spec *pb.ProcessSpec) *pb.ProcessSpec {
	limit := uint64(64 << 10)
	spec.LogLimitBytes = &limit
	return spec
}

// written is how much a process has written to stdout.
func (g *guest) written(t *testing.T, id string) uint64 {
	t.Helper()
	response, err := g.process.Get(within(t), &pb.GetRequest{ProcessId: id})
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	return response.Process.Output[0].Offset
}

// heldBack waits until a process that would write for ever has written for the last
// time: its log, the connection's windows and its pipe are full.
func (g *guest) heldBack(t *testing.T, id string) {
	t.Helper()
	last, since := uint64(0), time.Now()
	eventually(t, "the process is held back", func() bool {
		if now := g.written(t, id); now != last {
			last, since = now, time.Now()
		}
		return last > 0 && time.Since(since) > time.Second
	})
}

func (g readerCases) LeaderThatEndsWhileNobodyReadsIsRecordedAtOnce(t *testing.T) {
	dir := g.folder(t)
	call := g.exec(t, smallLog(script(`yes & `+waitForGo+`exit 4`, dir)))
	id := call.out.started.ProcessId
	g.heldBack(t, id)
	g.touch(t, dir+"/go")
	wantExitCode(t, g.waitFor(t, id), 4)
	response, err := g.process.Get(within(t), &pb.GetRequest{ProcessId: id})
	if err != nil || response.Process.State != pb.ProcessState_PROCESS_STATE_EXITED {
		t.Errorf("Get: %v, %v, want it exited", response, err)
	}
	// And whoever reads on is told all of it.
	wantExitCode(t, call.wait(t).exit, 4)
	// Its background children may have ended by themselves.
	_, _ = g.process.Signal(within(t), &pb.SignalRequest{ProcessId: id, Signal: &pb.ProcessSignal{Signal: 9}})
}

func (g readerCases) TimeOutWhileNobodyReadsIsRecordedAtOnce(t *testing.T) {
	call := g.exec(t, limited(smallLog(script(`trap '' TERM; while :; do yes; done`)), 2e9, 1e8))
	exit := g.waitFor(t, call.out.started.ProcessId)
	wantSignal(t, exit, 9)
	if !exit.TimedOut {
		t.Errorf("timed_out is not set: %v", exit)
	}
	if out := call.wait(t); !out.exit.TimedOut || len(out.gaps) != 0 {
		t.Errorf("the reader was told %v", out)
	}
}

func (g readerCases) KillReachesAProcessWhoseReaderHasStopped(t *testing.T) {
	call := g.exec(t, smallLog(command("yes")))
	id := call.out.started.ProcessId
	g.heldBack(t, id)
	kill := &pb.SignalRequest{ProcessId: id, Signal: &pb.ProcessSignal{Signal: 9}}
	if _, err := g.process.Signal(within(t), kill); err != nil {
		t.Fatalf("Signal: %v", err)
	}
	wantSignal(t, g.waitFor(t, id), 9)
}

func (g readerCases) ReaderThatStallsForTooLongLosesItsPlace(t *testing.T) {
	// More than the windows, buffers and the log between them take, a tenth of it too.
	dir, size := g.folder(t), uint64(g.amount(200<<20))
	call := g.execStart(t, &pb.ExecStart{
		Spec:   smallLog(script(`head -c "$2" /dev/zero; : >"$1/written"`, dir, fmt.Sprint(size))),
		Reader: &pb.OutputReader{StallTimeout: durationpb.New(300 * time.Millisecond)},
	})
	eventually(t, "the process goes on", func() bool { return g.exists(t, dir+"/written") })
	wantRefusal(t, call.failure(t), refusal{code: codes.Aborted, reason: pb.ErrorReason_ERROR_REASON_STALLED})
	// A new reader is told what is gone.
	out := g.attach(t, &pb.ProcessAttach{ProcessId: call.out.started.ProcessId}).wait(t)
	if len(out.gaps) == 0 || out.next[stdout] != size {
		t.Errorf("gaps %v up to %d", out.gaps, out.next[stdout])
	}
}

func (g readerCases) FollowingReaderGoesOnBesideOneThatIsBehind(t *testing.T) {
	lossless := g.exec(t, smallLog(script(`i=0; while :; do echo $i; i=$((i+1)); done`)))
	id := lossless.out.started.ProcessId
	following := g.attach(t, &pb.ProcessAttach{
		ProcessId: id, Reader: &pb.OutputReader{Mode: pb.ReaderMode_READER_MODE_FOLLOWING},
	})
	// The follower gets what comes as long as the other lets it come, and in order: outcome.take checks that.
	following.until(t, "some output", func(out *outcome) bool { return len(out.stdout()) > 64<<10 })
	lossless.until(t, "some output", func(out *outcome) bool { return len(out.stdout()) > 64<<10 })
	signal := &pb.SignalRequest{ProcessId: id, Signal: &pb.ProcessSignal{Signal: 9}}
	if _, err := g.process.Signal(within(t), signal); err != nil {
		t.Fatalf("Signal: %v", err)
	}
	wantSignal(t, following.wait(t).exit, 9)
	if out := lossless.wait(t); len(out.gaps) != 0 {
		t.Errorf("the lossless reader got gaps %v", out.gaps)
	}
}

func (g readerCases) FollowingReaderThatStopsIsToldItsGap(t *testing.T) {
	n := max(g.amount(3_000_000), 1_000_000)
	lossless := g.exec(t, smallLog(script(`seq 1 "$1"`, fmt.Sprint(n))))
	following := g.attach(t, &pb.ProcessAttach{
		ProcessId: lossless.out.started.ProcessId, Reader: &pb.OutputReader{Mode: pb.ReaderMode_READER_MODE_FOLLOWING},
	})
	whole := numbers(n)
	wantText(t, "stdout", lossless.wait(t).stdout(), whole)
	out := following.wait(t)
	if len(out.gaps) == 0 || out.next[stdout] != uint64(len(whole)) {
		t.Errorf("gaps %v, and all ends at %d, want a gap and %d", out.gaps, out.next[stdout], len(whole))
	}
}

func (g readerCases) ReaderThatLeavesHoldsNobodyBack(t *testing.T) {
	dir, n := g.folder(t), max(g.amount(1_500_000), 400_000)
	call := g.execStart(t, &pb.ExecStart{
		Spec:   smallLog(script(`seq 1 "$2"; : >"$1/written"; exit 6`, dir, fmt.Sprint(n))),
		Reader: &pb.OutputReader{ReaderId: "leaves"},
	})
	call.until(t, "some output", func(out *outcome) bool { return out.stdout() != "" })
	call.leave()
	if out := call.wait(t); out.exit != nil {
		t.Skip("it had ended before") // only where the whole output fits into the connection's windows
	}
	eventually(t, "the process goes on", func() bool { return g.exists(t, dir+"/written") })
	wantExitCode(t, g.waitFor(t, call.out.started.ProcessId), 6)
}

func (g readerCases) LeavingIsNoDisconnect(t *testing.T) {
	dir := g.folder(t)
	spec := script(waitForGo+`exit 5`, dir)
	spec.OnDisconnect = pb.OnDisconnect_ON_DISCONNECT_KILL
	call := g.execStart(t, &pb.ExecStart{
		Spec:   spec,
		Reader: &pb.OutputReader{ReaderId: "leaves", ReconnectGrace: durationpb.New(time.Millisecond)},
	})
	call.leave()
	if out := call.wait(t); out.exit != nil {
		t.Errorf("it was told an exit: %v", out)
	}
	time.Sleep(300 * time.Millisecond) // a kill would come
	g.touch(t, dir+"/go")
	wantExitCode(t, g.waitFor(t, call.out.started.ProcessId), 5)
}

func (g readerCases) PlaceIsLostWithTheGraceAndTheGapTold(t *testing.T) {
	dir, n := g.folder(t), max(g.amount(1_500_000), 400_000)
	reader := &pb.OutputReader{ReaderId: "late", ReconnectGrace: durationpb.New(200 * time.Millisecond)}
	first := g.execStart(t, &pb.ExecStart{
		Spec: smallLog(script(`seq 1 "$2"; : >"$1/written"; exit 6`, dir, fmt.Sprint(n))), Reader: reader,
	})
	first.until(t, "some output", func(out *outcome) bool { return out.stdout() != "" })
	first.end()
	eventually(t, "the process goes on", func() bool { return g.exists(t, dir+"/written") })
	from := uint64(len(first.out.stdout()))
	second := g.attach(t, &pb.ProcessAttach{
		ProcessId: first.out.started.ProcessId, Reader: reader, Offsets: []*pb.StreamOffset{{Stream: stdout, Offset: from}},
	})
	out, whole := second.wait(t), numbers(n)
	wantExitCode(t, out.exit, 6)
	if len(out.gaps) != 1 || out.gaps[0].StartOffset != from || whole[out.gaps[0].EndOffset:] != out.stdout() {
		t.Errorf("gaps %v and %d bytes, want one gap from %d and the rest", out.gaps, len(out.stdout()), from)
	}
}
