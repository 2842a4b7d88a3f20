package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "guestd.internal/proto/guestd/v1"
)

// These cases are about executions that end otherwise than by themselves, that
// wait, or whose client goes away.

func (g codeCases) TimeOutKeepsTheState(t *testing.T) {
	g.python(t, "survivor = 7")
	e := g.execute(t, &pb.ExecuteRequest{
		Code:    "import time\nprint('begun')\ntime.sleep(300)",
		Timeout: durationpb.New(500 * time.Millisecond),
	})
	wantStatus(t, e, pb.ExecutionStatus_EXECUTION_STATUS_TIMED_OUT)
	wantError(t, e, "TimeoutError")
	wantText(t, "stdout", e.stdout, "begun\n")
	if e.finished.StateLost {
		t.Error("the state is said to be lost")
	}
	wantText(t, "the value after it", g.python(t, "survivor").value(), "7")
}

func (g codeCases) TimeOutOfCodeThatIgnoresInterruptsLosesTheState(t *testing.T) {
	g.python(t, "victim = 7")
	e := g.execute(t, &pb.ExecuteRequest{
		Code:    "import time\nwhile True:\n  try: time.sleep(1)\n  except KeyboardInterrupt: pass",
		Timeout: durationpb.New(500 * time.Millisecond),
	})
	wantStatus(t, e, pb.ExecutionStatus_EXECUTION_STATUS_TIMED_OUT)
	wantError(t, e, "TimeoutError")
	if !e.finished.StateLost {
		t.Error("state_lost is not set")
	}
	after := g.execute(t, &pb.ExecuteRequest{Code: "victim"})
	wantError(t, after, "NameError")
	if !after.started.GetFreshKernel() {
		t.Error("fresh_kernel is not set after it")
	}
}

func (g codeCases) KernelThatDiesEndsItsExecutionAtOnce(t *testing.T) {
	for code, want := range map[string]string{
		"import os\nprint('last words', flush=True)\nos._exit(3)":          "exit code 3",
		"import os, signal\nos.kill(os.getpid(), signal.SIGKILL)":          "signal 9",
		"import os, time, signal\nos.kill(os.getpid(), 11)\ntime.sleep(9)": "signal 11",
	} {
		generation := g.python(t, "victim = 1").started.KernelGeneration
		e := g.execute(t, &pb.ExecuteRequest{Code: code})
		wantStatus(t, e, pb.ExecutionStatus_EXECUTION_STATUS_KERNEL_DIED)
		wantError(t, e, "KernelDied")
		how := fmt.Sprintf("signal %d", e.finished.GetSignal())
		if e.finished.ExitCode != nil {
			how = fmt.Sprintf("exit code %d", e.finished.GetExitCode())
		}
		wantText(t, "how it died", how, want)
		if !e.finished.StateLost {
			t.Error("state_lost is not set")
		}
		after := g.python(t, "'victim' in dir()")
		wantText(t, "whether the variable is there", after.value(), "False")
		if s := after.started; !s.FreshKernel || s.PreviousEnd == "" || s.KernelGeneration != generation+1 {
			t.Errorf("the next one is told %v, want a fresh kernel of generation %d and why", s, generation+1)
		}
		if next := g.python(t, "1"); next.started.FreshKernel {
			t.Error("the one after it is told of a fresh kernel again")
		}
	}
}

func (g codeCases) ExecutionsOfAContextWaitInOrder(t *testing.T) {
	g.python(t, "order = []")
	dir := g.folder(t)
	hold := "import os, time\nwhile not os.path.exists(" + fmt.Sprintf("%q", dir+"/go") + "): time.sleep(0.05)\n"
	waiting := []*execution{g.begin(t, &pb.ExecuteRequest{Code: hold + "order.append(0)"})}
	waiting[0].until(t, "started", func() bool { return waiting[0].started != nil })
	for i := 1; i < 5; i++ {
		e := g.begin(t, &pb.ExecuteRequest{Code: fmt.Sprintf("order.append(%d)", i)})
		if e.accepted.QueuePosition != uint32(i) {
			t.Errorf("queue position %d, want %d", e.accepted.QueuePosition, i)
		}
		waiting = append(waiting, e)
	}
	g.touch(t, dir+"/go")
	for _, e := range waiting {
		wantStatus(t, e.wait(t), pb.ExecutionStatus_EXECUTION_STATUS_OK)
	}
	wantText(t, "the order", g.python(t, "order").value(), "[0, 1, 2, 3, 4]")
}

func (g codeCases) QueueGoesOnAfterAnError(t *testing.T) {
	dir := g.folder(t)
	hold := "import os, time\nwhile not os.path.exists(" + fmt.Sprintf("%q", dir+"/go") + "): time.sleep(0.05)\n1/0"
	first := g.begin(t, &pb.ExecuteRequest{Code: hold})
	second := g.begin(t, &pb.ExecuteRequest{Code: "'reached'"})
	g.touch(t, dir+"/go")
	wantStatus(t, first.wait(t), pb.ExecutionStatus_EXECUTION_STATUS_ERROR)
	wantText(t, "the value", second.wait(t).value(), "'reached'")
}

func (g codeCases) QueueGoesOnAfterTheKernelsDeath(t *testing.T) {
	first := g.begin(t, &pb.ExecuteRequest{Code: "import os, time\ntime.sleep(0.5)\nos._exit(1)"})
	second := g.begin(t, &pb.ExecuteRequest{Code: "'reached'"})
	wantStatus(t, first.wait(t), pb.ExecutionStatus_EXECUTION_STATUS_KERNEL_DIED)
	wantText(t, "the value", second.wait(t).value(), "'reached'")
	if !second.started.FreshKernel {
		t.Error("fresh_kernel is not set")
	}
}

func (g codeCases) ExecutionOutlivesAClientThatVanishes(t *testing.T) {
	dir := g.folder(t)
	code := fmt.Sprintf(`import os, time
print("begun", flush=True)
while not os.path.exists(%[1]q + "/go"): time.sleep(0.05)
for i in range(100000): print(i)
open(%[1]q + "/survived", "w").close()`, dir)
	e := g.begin(t, &pb.ExecuteRequest{Code: code})
	e.until(t, "output", func() bool { return e.stdout != "" })
	e.cancel()
	g.touch(t, dir+"/go")
	eventually(t, "the execution ends its work", func() bool { return g.exists(t, dir+"/survived") })
	wantText(t, "the value after it", g.python(t, "1+1").value(), "2")
}

func (g codeCases) RepeatedRequestIDReplaysTheExecution(t *testing.T) {
	g.python(t, "runs = 0")
	request := &pb.ExecuteRequest{RequestId: g.folder(t), Code: "runs += 1\nprint('ran')\nruns"}
	first, second := g.execute(t, request), g.execute(t, request)
	if first.id != second.id || second.stdout != first.stdout || second.value() != "1" || second.number != first.number {
		t.Errorf("first %s with %d events, then %s with %d and the value %s", first.id, first.number, second.id, second.number, second.value())
	}
	request.Code = "runs"
	_, err := g.openExecution(within(t), request)
	wantRefusal(t, err, refusal{code: codes.AlreadyExists, reason: pb.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED})
	wantText(t, "the number of runs", g.python(t, "runs").value(), "1")
}

func (g codeCases) DurationsAreTold(t *testing.T) {
	e := g.python(t, "import time\nbegun = time.monotonic_ns()\ntime.sleep(0.2)\ntime.monotonic_ns() - begun")
	took, err := time.ParseDuration(e.value() + "ns")
	if d := e.finished.Duration.AsDuration(); err != nil || d < took {
		t.Errorf("duration %v, but by its own clock the code took %v: %v", d, took, err)
	}
	if e.finished.ExecutionCount != e.started.ExecutionCount || e.finished.OutputIncomplete {
		t.Errorf("finished %v after started %v", e.finished, e.started)
	}
}

func (g codeCases) CellMagicIsTheFirstLineOfTheUsersCode(t *testing.T) {
	dir := g.folder(t)
	e := g.executeIfServed(t, &pb.ExecuteRequest{Code: "%%sh\nprintf '%s' \"$ONCE\"", Cwd: []byte(dir), Env: []*pb.EnvVar{env("ONCE", "seen")}})
	if !strings.Contains(e.stdout, "seen") {
		t.Errorf("stdout %q, error %v, want the variable", e.stdout, e.err)
	}
}
