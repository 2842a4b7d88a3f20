package conformance

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

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

func (g codeCases) ContextMayBeNamedById(t *testing.T) {
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

func (g codeCases) OutputOfChildrenArrives(t *testing.T) {
	e := g.python(t, `import subprocess, os
_ = subprocess.run(["sh", "-c", "echo from a child"])
os.write(1, b"from the descriptor\n") and None`)
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
	once := g.execute(t, &pb.ExecuteRequest{Code: look, Cwd: []byte(dir), Env: []*pb.EnvVar{env("ONCE", "it's \"this\"")}})
	wantText(t, "the value", once.value(), `('`+dir+`', 'it\'s "this"')`)
	wantText(t, "the value after it", g.python(t, look).value(), before)
	e, err := g.openExecution(within(t), &pb.ExecuteRequest{Code: look, Cwd: []byte(dir + "/missing")})
	if err == nil {
		err = fmt.Errorf("it was accepted: %w", e.finish())
	}
	wantRefusal(t, err, refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_CWD_NOT_FOUND})
}

func (g codeCases) KernelRunsAsTheUserAtItsHome(t *testing.T) {
	e := g.python(t, "import os\nprint(os.getuid(), os.environ['HOME'])")
	home := g.complete(t, script(`echo "$(id -u) $HOME"`))
	wantText(t, "uid and home", e.stdout, home.stdout())
}

func (g codeCases) RequestsAreCheckedNamingTheField(t *testing.T) {
	for _, c := range []struct {
		want    refusal
		request *pb.ExecuteRequest
	}{
		{badField("code"), &pb.ExecuteRequest{}},
		{badField("code"), &pb.ExecuteRequest{Code: " \n\t "}},
		{badField("code"), &pb.ExecuteRequest{Code: strings.Repeat("#", 7<<20+1)}},
		{badField("env"), &pb.ExecuteRequest{Code: "1", Env: []*pb.EnvVar{env("", "x")}}},
		{badField("cwd"), &pb.ExecuteRequest{Code: "1", Cwd: []byte("/\x00")}},
		{badField("request_id"), &pb.ExecuteRequest{Code: "1", RequestId: "é"}},
		{
			refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_CONTEXT_NOT_FOUND},
			&pb.ExecuteRequest{Code: "1", ContextId: "c-aaaaaaaaaaaaa"},
		},
		{
			refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_LANGUAGE_NOT_FOUND},
			&pb.ExecuteRequest{Code: "1", Language: "no-such-language"},
		},
	} {
		e, err := g.openExecution(within(t), c.request)
		if err == nil {
			err = fmt.Errorf("it was accepted: %w", e.finish())
		}
		wantRefusal(t, err, c.want)
	}
}
