package conformance

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "guestd.internal/proto/guestd/v1"
)

// attachCases are the contract of ProcessService.Attach.
type attachCases struct{ *guest }

const stdout = pb.OutputStream_OUTPUT_STREAM_STDOUT

func (g attachCases) FinishedProcessTellsItsOutputAndExit(t *testing.T) {
	id := g.complete(t, script(`echo out; echo err >&2; exit 5`)).started.ProcessId
	out := g.attach(t, &pb.ProcessAttach{ProcessId: id}).wait(t)
	wantText(t, "stdout", out.stdout(), "out\n")
	wantText(t, "stderr", out.stderr(), "err\n")
	wantExitCode(t, out.exit, 5)
	if process := out.attached.Process; process.GetProcessId() != id || process.GetState() != pb.ProcessState_PROCESS_STATE_EXITED {
		t.Errorf("attached to %v, want %s, exited", process, id)
	}
}

func (g attachCases) ReadingStartsWhereAskedFor(t *testing.T) {
	id := g.complete(t, script(`printf 0123456789`)).started.ProcessId
	at := func(offset uint64) []*pb.StreamOffset {
		return []*pb.StreamOffset{{Stream: stdout, Offset: offset}}
	}
	out := g.attach(t, &pb.ProcessAttach{ProcessId: id, Offsets: at(7)}).wait(t)
	wantText(t, "stdout from 7", out.stdout(), "789")
	out = g.attach(t, &pb.ProcessAttach{ProcessId: id, Offsets: at(10)}).wait(t)
	wantText(t, "stdout from its end", out.stdout(), "")
	_, err := g.openAttach(within(t), &pb.ProcessAttach{ProcessId: id, Offsets: at(11)})
	wantRefusal(t, err, refusal{code: codes.OutOfRange, reason: pb.ErrorReason_ERROR_REASON_OFFSET_OUT_OF_RANGE})
}

func (g attachCases) ReadingMayStartNow(t *testing.T) {
	dir := g.folder(t)
	first := g.exec(t, script(`echo before; `+waitForGo+`echo after`, dir))
	first.until(t, "some output", func(out *outcome) bool { return out.stdout() == "before\n" })
	second := g.attach(t, &pb.ProcessAttach{ProcessId: first.out.started.ProcessId, FromNow: true})
	g.touch(t, dir+"/go")
	wantText(t, "stdout from now on", second.wait(t).stdout(), "after\n")
}

func (g attachCases) ReaderThatComesBackHasLostNothing(t *testing.T) {
	n, other := max(g.amount(1_500_000), 400_000), over(g.Target, g.Dial(t))
	reader := &pb.OutputReader{ReaderId: "comes-back"}
	first, err := other.openExec(within(t), &pb.ExecStart{Spec: script(`seq 1 "$1"; exit 2`, fmt.Sprint(n)), Reader: reader})
	if err != nil {
		t.Fatalf("starting: %v", err)
	}
	first.until(t, "the first megabyte", func(out *outcome) bool { return len(out.stdout()) > 1<<20 })
	if err := other.conn.Close(); err != nil {
		t.Fatalf("closing the connection: %v", err)
	}
	first.end()
	read := first.out.stdout()
	from := []*pb.StreamOffset{{Stream: stdout, Offset: uint64(len(read))}}
	second := g.attach(t, &pb.ProcessAttach{ProcessId: first.out.started.ProcessId, Reader: reader, Offsets: from})
	out := second.wait(t)
	wantText(t, "both parts", read+out.stdout(), numbers(n))
	wantExitCode(t, out.exit, 2)
	if len(out.gaps) != 0 {
		t.Errorf("gaps %v, want none", out.gaps)
	}
}

func (g attachCases) NewerStreamOfAReaderTakesItsPlace(t *testing.T) {
	dir, reader := g.folder(t), &pb.OutputReader{ReaderId: "one-place"}
	start := &pb.ExecStart{Spec: script(`echo one; `+waitForGo+`echo two`, dir), Reader: reader}
	older := g.execStart(t, start)
	older.until(t, "some output", func(out *outcome) bool { return out.stdout() == "one\n" })
	newer := g.attach(t, &pb.ProcessAttach{ProcessId: older.out.started.ProcessId, Reader: reader})
	wantRefusal(t, older.failure(t), refusal{code: codes.Aborted, reason: pb.ErrorReason_ERROR_REASON_SUPERSEDED})
	g.touch(t, dir+"/go")
	if out := newer.wait(t); !strings.HasSuffix(out.stdout(), "two\n") {
		t.Errorf("the newer stream got %v", out)
	}
}

func (g attachCases) DroppedOutputIsToldAsAGap(t *testing.T) {
	spec, limit := script(`seq 1 500000; exit 3`), uint64(64<<10)
	spec.LogLimitBytes = &limit
	id := g.start(t, spec).ProcessId
	g.waitFor(t, id)
	out := g.attach(t, &pb.ProcessAttach{ProcessId: id}).wait(t)
	whole := numbers(500_000)
	if len(out.gaps) == 0 || !strings.HasSuffix(whole, out.stdout()) || out.stdout() == "" {
		t.Errorf("gaps %v and %v, want a gap and the output's end", out.gaps, out)
	}
	if got := out.next[stdout]; got != uint64(len(whole)) {
		t.Errorf("gap and output end at %d, want %d", got, len(whole))
	}
}

func (g attachCases) FollowingReaderHoldsNobodyBack(t *testing.T) {
	dir, n := g.folder(t), g.amount(3_000_000)
	start := &pb.ExecStart{
		Spec:   script(`seq 1 "$2"; : >"$1/written"`, dir, fmt.Sprint(n)),
		Reader: &pb.OutputReader{Mode: pb.ReaderMode_READER_MODE_FOLLOWING},
	}
	call := g.execStart(t, start)
	eventually(t, "the process has written everything", func() bool { return g.exists(t, dir+"/written") })
	out := call.wait(t)
	if want := uint64(len(numbers(n))); out.next[stdout] != want {
		t.Errorf("output and gaps end at %d, want %d", out.next[stdout], want)
	}
}

func (g attachCases) ReadingMayGoOnAfterTheExit(t *testing.T) {
	dir := g.folder(t)
	out := g.complete(t, script(`(`+waitForGo+`echo from the background) & echo from the leader`, dir))
	call := g.attach(t, &pb.ProcessAttach{ProcessId: out.started.ProcessId, FollowAfterExit: true})
	g.touch(t, dir+"/go")
	// Output may follow exited here, which outcome.take refuses elsewhere.
	text, exits := "", 0
	for {
		event, err := call.recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("receiving: %v", err)
		}
		text += string(event.GetOutput().GetData())
		if event.GetExited() != nil {
			exits++
		}
	}
	wantText(t, "stdout", text, "from the leader\nfrom the background\n")
	if exits != 1 {
		t.Errorf("%d exited events, want one", exits)
	}
}

func (g attachCases) AttachedClientMayWriteInput(t *testing.T) {
	first := g.exec(t, piped(command("cat")))
	first.input([]byte("from exec, "), 100)
	first.until(t, "the echo", func(out *outcome) bool { return out.stdout() == "from exec, " })
	second := g.attach(t, &pb.ProcessAttach{ProcessId: first.out.started.ProcessId})
	if second.out.attached.InputOffset != 11 {
		t.Errorf("the input stands at %d, want 11", second.out.attached.InputOffset)
	}
	second.fed = 11
	second.input([]byte("from attach"), 100)
	second.closeInput()
	for _, call := range []*processCall{first, second} {
		wantText(t, "stdout", call.wait(t).stdout(), "from exec, from attach")
	}
}

func (g attachCases) ClientsWriteInputEachFromItsOwnPosition(t *testing.T) {
	first := g.exec(t, piped(command("cat")))
	first.input([]byte("one, "), 100)
	echo := func(text string) {
		t.Helper()
		first.until(t, "the echo", func(out *outcome) bool { return out.stdout() == text })
	}
	echo("one, ")
	second := g.attach(t, &pb.ProcessAttach{ProcessId: first.out.started.ProcessId})
	second.fed = second.out.attached.InputOffset
	second.input([]byte("two, "), 100)
	echo("one, two, ")
	first.input([]byte("three, "), 100)
	echo("one, two, three, ")
	second.fed -= 5 // what may have been lost is sent again
	second.input([]byte("two, four"), 100)
	second.closeInput()
	for _, call := range []*processCall{first, second} {
		wantText(t, "stdout", call.wait(t).stdout(), "one, two, three, four")
	}
}

func (g attachCases) UnknownProcessIsTold(t *testing.T) {
	_, err := g.openAttach(within(t), &pb.ProcessAttach{ProcessId: "p-aaaaaaaaaaaaa"})
	wantRefusal(t, err, noProcess)
}

func (g attachCases) MalformedAttachesAreRefused(t *testing.T) {
	id := g.complete(t, command("true")).started.ProcessId
	for field, attach := range map[string]*pb.ProcessAttach{
		"offsets":              {ProcessId: id, Offsets: []*pb.StreamOffset{{}}},
		"reader.stall_timeout": {ProcessId: id, Reader: &pb.OutputReader{StallTimeout: durationpb.New(0)}},
	} {
		_, err := g.openAttach(within(t), attach)
		wantRefusal(t, err, badField(field))
	}
}
