package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "guestd.internal/proto/guestd/v1"
)

func (g execCases) ExitCodesArriveAsTheyAre(t *testing.T) {
	for _, code := range []uint32{0, 1, 126, 127, 255} {
		wantExitCode(t, g.complete(t, script(`exit "$1"`, fmt.Sprint(code))).exit, code)
	}
}

func (g execCases) SignalsAreToldApartFromExitCodes(t *testing.T) {
	for _, signal := range []uint32{1, 6, 9, 15} {
		wantSignal(t, g.complete(t, script(`ulimit -c 0; kill -"$1" $$`, fmt.Sprint(signal))).exit, signal)
	}
}

func (g execCases) ExitTellsTimesAndMemory(t *testing.T) {
	exit := g.complete(t, script(`i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done`)).exit
	if exit.TimedOut || exit.OomKilled || exit.CoreDumped {
		t.Errorf("%v, want an ordinary end", exit)
	}
	cpu := exit.UserTime.AsDuration() + exit.SystemTime.AsDuration()
	if cpu <= 0 || exit.Duration.AsDuration() <= 0 || exit.PeakMemoryBytes == 0 {
		t.Errorf("CPU time %v, duration %v, memory %d: want all of them", cpu, exit.Duration.AsDuration(), exit.PeakMemoryBytes)
	}
	if exit.StartTime.AsTime().After(exit.EndTime.AsTime()) || exit.EndTime.AsTime().Unix() == 0 {
		t.Errorf("from %v to %v", exit.StartTime.AsTime(), exit.EndTime.AsTime())
	}
}

func (g execCases) ExitArrivesThoughABackgroundChildHoldsStdout(t *testing.T) {
	out := g.complete(t, script(`sleep 300 & echo $!; echo last >&2; exit 7`))
	child := strings.TrimSpace(out.stdout())
	g.killLater(t, child)
	wantExitCode(t, out.exit, 7)
	wantText(t, "stderr", out.stderr(), "last\n")
	if !g.alive(t, child) {
		t.Error("the background child did not outlive its leader")
	}
}

func (g execCases) ExitArrivesThoughABackgroundChildWritesOn(t *testing.T) {
	out := g.complete(t, script(`while :; do echo noise; done & echo $! >&2; exit 8`))
	g.killLater(t, strings.TrimSpace(out.stderr()))
	wantExitCode(t, out.exit, 8)
}

// More than a pipe holds is written after the call has ended: without a reader
// the child would block, with a closed pipe SIGPIPE would end it.
func (g execCases) BackgroundChildMayWriteAfterTheExit(t *testing.T) {
	dir := g.folder(t)
	text := `(` + waitForGo + `head -c 1000000 /dev/zero && : >"$1/written") & echo $! >&2`
	out := g.complete(t, script(text, dir))
	g.killLater(t, strings.TrimSpace(out.stderr()))
	g.touch(t, dir+"/go")
	eventually(t, "the background child has written", func() bool { return g.exists(t, dir+"/written") })
}

func (g execCases) TimeOutEndsTheWholeGroup(t *testing.T) {
	out := g.complete(t, limited(script(`sleep 300 & echo $!; wait`), 500*time.Millisecond, 2*time.Second))
	child := strings.TrimSpace(out.stdout())
	g.killLater(t, child)
	wantSignal(t, out.exit, 15)
	if !out.exit.TimedOut {
		t.Error("timed_out is not set")
	}
	eventually(t, "the child dies too", func() bool { return !g.alive(t, child) })
}

func (g execCases) TimeOutKillsWhatIgnoresSIGTERM(t *testing.T) {
	spec := limited(script(`trap '' TERM; while :; do sleep 0.1; done`), 300*time.Millisecond, 300*time.Millisecond)
	out := g.complete(t, spec)
	wantSignal(t, out.exit, 9)
	if !out.exit.TimedOut {
		t.Error("timed_out is not set")
	}
}

func (g execCases) TimeOutWithoutGraceKillsAtOnce(t *testing.T) {
	out := g.complete(t, limited(script(`trap 'exit 9' TERM; while :; do sleep 0.1; done`), 300*time.Millisecond, 0))
	wantSignal(t, out.exit, 9)
}

func (g execCases) ProgramMayEndItselfOnTimeOut(t *testing.T) {
	out := g.complete(t, limited(script(`trap 'echo bye; exit 5' TERM; while :; do sleep 0.1; done`), 500*time.Millisecond, 20*time.Second))
	wantExitCode(t, out.exit, 5)
	wantText(t, "stdout", out.stdout(), "bye\n")
	if !out.exit.TimedOut {
		t.Error("timed_out is not set")
	}
}

func (g execCases) TimeOutRunsOnThoughNobodyReads(t *testing.T) {
	call := g.exec(t, limited(script(`while :; do echo noise; done`), time.Second, 200*time.Millisecond))
	pid := fmt.Sprint(call.out.started.Pid)
	eventually(t, "the process dies", func() bool { return !g.alive(t, pid) })
	if out := call.wait(t); !out.exit.TimedOut {
		t.Errorf("timed_out is not set: %v", out.exit)
	}
}

func (g execCases) SignalReachesTheTree(t *testing.T) {
	call := g.exec(t, script(`sleep 300 & echo $!; wait`))
	call.until(t, "the child's pid", func(out *outcome) bool { return strings.HasSuffix(out.stdout(), "\n") })
	child := strings.TrimSpace(call.out.stdout())
	g.killLater(t, child)
	call.signal(15)
	wantSignal(t, call.wait(t).exit, 15)
	eventually(t, "the child dies too", func() bool { return !g.alive(t, child) })
}

func (g execCases) SignalReachesTheLeaderAloneWhereAskedFor(t *testing.T) {
	call := g.exec(t, script(`sleep 300 & echo $!; wait`))
	call.until(t, "the child's pid", func(out *outcome) bool { return strings.HasSuffix(out.stdout(), "\n") })
	child := strings.TrimSpace(call.out.stdout())
	g.killLater(t, child)
	leader := &pb.ProcessSignal{Signal: 15, Scope: pb.SignalScope_SIGNAL_SCOPE_LEADER}
	call.put(&pb.ProcessRequest{Request: &pb.ProcessRequest_Signal{Signal: leader}})
	wantSignal(t, call.wait(t).exit, 15)
	if !g.alive(t, child) {
		t.Error("the signal reached the child")
	}
}

func (g execCases) SignalIsDeliveredToAHandler(t *testing.T) {
	call := g.exec(t, script(`trap 'echo caught; exit 4' USR1; echo ready; while :; do :; done`))
	call.until(t, "the handler", func(out *outcome) bool { return out.stdout() == "ready\n" })
	leader := &pb.ProcessSignal{Signal: 10, Scope: pb.SignalScope_SIGNAL_SCOPE_LEADER}
	call.put(&pb.ProcessRequest{Request: &pb.ProcessRequest_Signal{Signal: leader}})
	out := call.wait(t)
	wantExitCode(t, out.exit, 4)
	wantText(t, "stdout", out.stdout(), "ready\ncaught\n")
}

func (g execCases) SignalThatDoesNotExistIsRefused(t *testing.T) {
	for _, number := range []uint32{0, 65, 1 << 31} {
		call := g.exec(t, command("sleep", "300"))
		call.signal(number)
		wantRefusal(t, call.failure(t), badField("signal.signal"))
	}
}

func (g execCases) TimesOutOfRangeAreRefused(t *testing.T) {
	for field, spec := range map[string]*pb.ProcessSpec{
		"spec.timeout":    {Timeout: durationpb.New(-time.Second)},
		"spec.kill_grace": {KillGrace: durationpb.New(time.Hour + time.Second)},
	} {
		spec.Command = command("true").Command
		g.refuseExec(t, spec, badField(field))
	}
	malformed := command("true")
	malformed.Timeout = &durationpb.Duration{Seconds: 1, Nanos: -1}
	g.refuseExec(t, malformed, badField("spec.timeout"))
}
