package conformance

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "guestd.internal/proto/guestd/v1"
)

// codeCases are the contract of CodeService.Execute in the default Python context.
// They run one after the other.
type codeCases struct{ *guest }

func (g codeCases) StateLastsFromOneExecutionToTheNext(t *testing.T) {
	first := g.python(t, "kept = 20\ndef twice(x): return 2 * x")
	second := g.python(t, "twice(kept) + 2")
	wantText(t, "the value", second.value(), "42")
	if first.accepted.ContextId == "" || first.accepted.ContextId != second.accepted.ContextId {
		t.Errorf("contexts %q and %q, want the same", first.accepted.ContextId, second.accepted.ContextId)
	}
	if second.started.ExecutionCount != first.started.ExecutionCount+1 {
		t.Errorf("counts %d and %d, want one after the other", first.started.ExecutionCount, second.started.ExecutionCount)
	}
}

func (g codeCases) ContextMayBeNamedByID(t *testing.T) {
	id := g.python(t, "by_id = 1").accepted.ContextId
	e := g.execute(t, &pb.ExecuteRequest{ContextId: id, Code: "by_id"})
	wantText(t, "the value", e.value(), "1")
	_, err := g.openExecution(within(t), &pb.ExecuteRequest{ContextId: id, Language: "bash", Code: "1"})
	wantCode(t, err, codes.InvalidArgument)
}

func (g codeCases) TextArrivesWholeAndToldApart(t *testing.T) {
	e := g.python(t, `import sys
for i in range(1000): print("out", i)
print("grüße 🐍", end="")
print("err", file=sys.stderr)`)
	var want strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&want, "out %d\n", i)
	}
	wantText(t, "stdout", e.stdout, want.String()+"grüße 🐍")
	wantText(t, "stderr", e.stderr, "err\n")
	if len(e.results) != 0 {
		t.Errorf("results %v, want none", e.results)
	}
}

// Kernels read their descriptors in a thread of their own, and what it has not read
// at the execution's end comes as output of the background: so the code waits.
func (g codeCases) OutputOfChildrenArrives(t *testing.T) {
	e := g.python(t, `import subprocess, os, time
_ = subprocess.run(["sh", "-c", "echo from a child"])
_ = os.write(1, b"from the descriptor\n")
time.sleep(1)`)
	for _, text := range []string{"from a child\n", "from the descriptor\n"} {
		if !strings.Contains(e.stdout, text) {
			t.Errorf("stdout %q lacks %q", e.stdout, text)
		}
	}
}

func (g codeCases) MegabytesOfTextLoseNothing(t *testing.T) {
	n := g.amount(200_000)
	e := g.python(t, fmt.Sprintf("for i in range(1, %d): print(i)", n+1))
	wantText(t, "stdout", e.stdout, numbers(n))
}

func (g codeCases) ErrorIsAnEventAndTheCallSucceeds(t *testing.T) {
	e := g.execute(t, &pb.ExecuteRequest{Code: "print('before')\n1/0"})
	wantStatus(t, e, pb.ExecutionStatus_EXECUTION_STATUS_ERROR)
	wantError(t, e, "ZeroDivisionError")
	wantText(t, "the message", e.err.GetValue(), "division by zero")
	wantText(t, "stdout", e.stdout, "before\n")
	trace := strings.Join(e.err.GetTraceback(), "\n")
	if !strings.Contains(trace, "1/0") || strings.Contains(trace, "\x1b") {
		t.Errorf("traceback %q, want the line and no colours", trace)
	}
	wantText(t, "the value after it", g.python(t, "1+1").value(), "2")
}

func (g codeCases) SyntaxErrorIsAnEvent(t *testing.T) {
	e := g.execute(t, &pb.ExecuteRequest{Code: "def ("})
	wantStatus(t, e, pb.ExecutionStatus_EXECUTION_STATUS_ERROR)
	wantError(t, e, "SyntaxError")
}

func (g codeCases) ChartIsAPicture(t *testing.T) {
	e := g.python(t, "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()")
	for _, result := range e.results {
		if picture := e.part(result, "image/png"); picture != nil {
			if !bytes.HasPrefix(picture, []byte("\x89PNG\r\n\x1a\n")) || result.Kind != pb.ResultKind_RESULT_KIND_DISPLAY {
				t.Errorf("%v of %q…, want a displayed PNG's bytes", result.Kind, picture[:min(8, len(picture))])
			}
			return
		}
	}
	t.Errorf("results %v, want an image/png", e.results)
}

func (g codeCases) TableHasHTML(t *testing.T) {
	e := g.python(t, "import pandas\npandas.DataFrame({'column': [1, 2]})")
	if len(e.results) != 1 || !bytes.Contains(e.part(e.results[0], "text/html"), []byte("<table")) {
		t.Errorf("results %v, want a table in HTML", e.results)
	}
	wantText(t, "as text", strings.Join(strings.Fields(e.value()), " "), "column 0 1 1 2")
}

func (g codeCases) LargeResultFollowsInPieces(t *testing.T) {
	e := g.python(t, "'x' * 3_000_000")
	wantText(t, "the value", e.value(), "'"+strings.Repeat("x", 3_000_000)+"'")
}

func (g codeCases) InputRaisesAtOnceUnlessAllowed(t *testing.T) {
	e := g.execute(t, &pb.ExecuteRequest{Code: "input('name? ')"})
	wantStatus(t, e, pb.ExecutionStatus_EXECUTION_STATUS_ERROR)
	if e.err.GetName() == "" {
		t.Errorf("error %v, want one", e.err)
	}
}

func (g codeCases) EnvironmentAndFolderAreForOneExecution(t *testing.T) {
	dir := g.folder(t)
	const look = "import os\n(os.getcwd(), os.environ.get('ONCE'))"
	before := g.python(t, look).value()
	once := g.executeIfServed(t, &pb.ExecuteRequest{Code: look, Cwd: []byte(dir), Env: []*pb.EnvVar{env("ONCE", "it's \"this\"")}})
	wantText(t, "the value", once.value(), `('`+dir+`', 'it\'s "this"')`)
	wantText(t, "the value after it", g.python(t, look).value(), before)
	err := g.refusedExecution(t, &pb.ExecuteRequest{Code: look, Cwd: []byte(dir + "/missing")})
	wantRefusal(t, err, refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_CWD_NOT_FOUND})
}

func (g codeCases) KernelRunsAsTheUserAtItsHome(t *testing.T) {
	e := g.python(t, "import os\nprint(os.getuid(), os.environ['HOME'])")
	home := g.complete(t, script(`echo "$(id -u) $HOME"`))
	wantText(t, "uid and home", e.stdout, home.stdout())
}

func (g codeCases) RequestsAreCheckedNamingTheField(t *testing.T) {
	for _, c := range []struct {
		name    string
		want    refusal
		request *pb.ExecuteRequest
	}{
		{"no code", badField("code"), &pb.ExecuteRequest{}},
		{"white space", badField("code"), &pb.ExecuteRequest{Code: " \n\t "}},
		{"code over 7 MiB", badField("code"), &pb.ExecuteRequest{Code: strings.Repeat("#", 7<<20+1)}},
		{"negative time-out", badField("timeout"), &pb.ExecuteRequest{Code: "1", Timeout: durationpb.New(-1)}},
		{"request id", badField("request_id"), &pb.ExecuteRequest{Code: "1", RequestId: "é"}},
		{
			"unknown context",
			refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_CONTEXT_NOT_FOUND},
			&pb.ExecuteRequest{Code: "1", ContextId: "c-aaaaaaaaaaaaa"},
		},
		{
			"unknown language",
			refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_LANGUAGE_NOT_FOUND},
			&pb.ExecuteRequest{Code: "1", Language: "no-such-language"},
		},
	} {
		t.Run(c.name, func(t *testing.T) { wantRefusal(t, g.refusedExecution(t, c.request), c.want) })
	}
}

func (g codeCases) EnvironmentAndFolderAreChecked(t *testing.T) {
	for field, request := range map[string]*pb.ExecuteRequest{
		"env": {Env: []*pb.EnvVar{env("", "x")}},
		"cwd": {Cwd: []byte("/\x00")},
	} {
		request.Code = "1"
		err := g.refusedExecution(t, request)
		if status.Code(err) == codes.Unimplemented {
			t.Skipf("not served: %v", err)
		}
		wantRefusal(t, err, badField(field))
	}
}

// refusedExecution is how a request is refused that should be.
func (g codeCases) refusedExecution(t *testing.T, request *pb.ExecuteRequest) error {
	t.Helper()
	e, err := g.openExecution(within(t), request)
	if err == nil {
		t.Errorf("it was accepted and ended with %v", e.finish())
	}
	return err
}

// executeIfServed is execute for what a guestd need not serve yet.
func (g codeCases) executeIfServed(t *testing.T, request *pb.ExecuteRequest) *execution {
	t.Helper()
	e, err := g.openExecution(within(t), request)
	if status.Code(err) == codes.Unimplemented {
		t.Skipf("not served: %v", err)
	}
	if err != nil {
		t.Fatalf("Execute: %v", err)
	}
	return e.wait(t)
}
