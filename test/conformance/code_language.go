package conformance

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "guestd.internal/proto/guestd/v1"
)

// languageCases are the contract of the languages beside Python.
type languageCases struct{ *guest }

func (g languageCases) AreListedWithTheirAliases(t *testing.T) {
	response, err := g.code.ListLanguages(within(t), &pb.ListLanguagesRequest{})
	if err != nil {
		t.Fatalf("ListLanguages: %v", err)
	}
	listed := make(map[string]*pb.Language)
	for _, l := range response.Languages {
		listed[l.Name] = l
		if l.DisplayName == "" || l.Available == (l.UnavailableReason != "") {
			t.Errorf("%v: want a name for people, and a reason exactly where it is not available", l)
		}
	}
	for name, aliases := range map[string]string{"python": "py python3", "bash": "sh shell", "javascript": "js node"} {
		l := listed[name]
		if l == nil || l.Stateful != (name == "python") {
			t.Errorf("%s is listed as %v", name, l)
		}
		wantText(t, name+"'s aliases", strings.Join(l.GetAliases(), " "), aliases)
	}
	if !listed["python"].GetAvailable() || listed["bash"].GetAvailable() != g.Capabilities.Bash {
		t.Errorf("python %v, bash %v", listed["python"], listed["bash"])
	}
	_, err = g.code.ListLanguages(within(t), &pb.ListLanguagesRequest{User: "no-such-user"})
	if err == nil {
		t.Error("the languages of no user are listed")
	}
}

// run runs code of a language to its end.
func (g languageCases) run(t *testing.T, language, code string) *execution {
	t.Helper()
	return g.execute(t, &pb.ExecuteRequest{Language: language, Code: code})
}

func (g languageCases) BashRunsInAFreshProcess(t *testing.T) {
	if !g.Capabilities.Bash {
		t.Skip("the guest has no bash")
	}
	e := g.run(t, "bash", "x=5; echo $x; echo err >&2; cat; cd /")
	wantStatus(t, e, pb.ExecutionStatus_EXECUTION_STATUS_OK)
	wantText(t, "stdout", e.stdout, "5\n")
	wantText(t, "stderr", e.stderr, "err\n")
	if e.started == nil || e.started.ExecutionCount != 0 || e.started.KernelGeneration != 0 || e.finished.ExitCode == nil || *e.finished.ExitCode != 0 {
		t.Errorf("started %v, finished %v", e.started, e.finished)
	}
	again := g.run(t, "sh", `echo "${x-none}"`)
	wantText(t, "stdout of the next", again.stdout, "none\n")
	wantText(t, "the context of the alias", again.accepted.ContextId, e.accepted.ContextId)
}

func (g languageCases) BashExitIsAnError(t *testing.T) {
	if !g.Capabilities.Bash {
		t.Skip("the guest has no bash")
	}
	e := g.run(t, "bash", "echo out; for i in {1..100}; do echo line $i >&2; done; exit 3")
	wantStatus(t, e, pb.ExecutionStatus_EXECUTION_STATUS_ERROR)
	wantError(t, e, "ExitError")
	if trace := e.err.GetTraceback(); len(trace) == 0 || trace[len(trace)-1] != "line 100" || len(trace) > 50 {
		t.Errorf("the traceback is %q, want the last lines of stderr", trace)
	}
	if e.finished.ExitCode == nil || *e.finished.ExitCode != 3 || e.finished.Signal != nil || e.finished.StateLost {
		t.Errorf("finished %v", e.finished)
	}
	e = g.run(t, "bash", "kill -TERM $$")
	wantError(t, e, "ExitError")
	if e.finished.Signal == nil || *e.finished.Signal != 15 || e.finished.ExitCode != nil {
		t.Errorf("finished %v", e.finished)
	}
}

func (g languageCases) BashIsKilledWholeAtItsTimeOut(t *testing.T) {
	if !g.Capabilities.Bash {
		t.Skip("the guest has no bash")
	}
	e := g.execute(t, &pb.ExecuteRequest{
		Language: "bash", Code: "setsid sleep 300 & echo $!; trap '' TERM; sleep 300",
		Timeout: durationpb.New(500 * time.Millisecond),
	})
	wantStatus(t, e, pb.ExecutionStatus_EXECUTION_STATUS_TIMED_OUT)
	wantError(t, e, "TimeoutError")
	if e.finished.StateLost {
		t.Error("state_lost is set, and there is none")
	}
	pid := strings.TrimSpace(e.stdout)
	eventually(t, "the process that left the session ends", func() bool { return !g.alive(t, pid) })
}

func (g languageCases) JavaScriptRunsOrSaysWhyNot(t *testing.T) {
	e := g.run(t, "js", "const fs = require('fs'); console.log([1, 2].map(x => 2 * x).join())")
	if e.err.GetName() == "LanguageUnavailable" {
		wantStatus(t, e, pb.ExecutionStatus_EXECUTION_STATUS_ERROR)
		_, err := g.code.CreateContext(within(t), &pb.CreateContextRequest{Language: "javascript"})
		wantRefusal(t, err, refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_LANGUAGE_UNAVAILABLE})
		return
	}
	wantStatus(t, e, pb.ExecutionStatus_EXECUTION_STATUS_OK)
	wantText(t, "stdout", e.stdout, "2,4\n")
	e = g.run(t, "node", "throw new RangeError('too far')")
	wantError(t, e, "ExitError")
	if !strings.Contains(strings.Join(e.err.GetTraceback(), "\n"), "RangeError: too far") {
		t.Errorf("the traceback is %q", e.err.GetTraceback())
	}
}

func (g languageCases) HaveNoCompletionWithoutAKernel(t *testing.T) {
	id := g.run(t, "bash", "true").accepted.ContextId
	_, err := g.code.Complete(within(t), &pb.CompleteRequest{ContextId: id})
	wantCode(t, err, codes.Unimplemented)
	_, err = g.code.Inspect(within(t), &pb.InspectRequest{ContextId: id})
	wantCode(t, err, codes.Unimplemented)
}
