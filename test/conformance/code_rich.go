package conformance

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "guestd.internal/proto/guestd/v1"
)

// These cases are about what code shows beside text, what it asks for, and what
// editors ask about it.

func (g codeCases) EveryRepresentationArrives(t *testing.T) {
	e := g.python(t, `from IPython.display import *
display(HTML("<b>é</b>"), Markdown("*m*"), Latex("$x$"), Math("y"), JSON({"a": [1, None, "é"]}), SVG("<svg xmlns='http://www.w3.org/2000/svg'/>"))
display({"application/x-own": "QUJD", "text/plain": "own"}, raw=True, metadata={"k": {"v": 1}})`)
	for i, want := range []struct{ mime, contents string }{
		{"text/html", "<b>é</b>"},
		{"text/markdown", "*m*"},
		{"text/latex", "$x$"},
		{"text/latex", "$\\displaystyle y$"},
		{"application/json", `{"a":[1,null,"é"]}`},
		{"image/svg+xml", "<svg"},
		{"application/x-own", "ABC"},
	} {
		if i >= len(e.results) {
			t.Fatalf("%d results", len(e.results))
		}
		result := e.results[i]
		if got := string(e.part(result, want.mime)); !strings.HasPrefix(got, want.contents) || result.Kind != pb.ResultKind_RESULT_KIND_DISPLAY {
			t.Errorf("%v: %s is %q, want %q", result.Kind, want.mime, got, want.contents)
		}
		if result.ResultNumber != uint32(i+1) {
			t.Errorf("result %d is numbered %d", i+1, result.ResultNumber)
		}
	}
	wantText(t, "the metadata", strings.Join(strings.Fields(string(e.results[len(e.results)-1].MetadataJson)), ""), `{"k":{"v":1}}`)
}

func (g codeCases) EveryFigureIsAPicture(t *testing.T) {
	e := g.python(t, `import matplotlib.pyplot as plt
plt.figure(); plt.plot([1, 2]); plt.show()
plt.figure(); plt.plot([2, 1])
plt.figure(); plt.plot([3, 1])
None`)
	pictures := 0
	for _, result := range e.results {
		if bytes.HasPrefix(e.part(result, "image/png"), []byte("\x89PNG\r\n\x1a\n")) {
			pictures++
		}
	}
	if pictures != 3 || len(e.results) != 3 {
		t.Errorf("%d pictures in %d results, want 3 of the shown figure and the two open ones", pictures, len(e.results))
	}
	e = g.python(t, "import PIL.Image\nPIL.Image.new('RGB', (3, 2), 'red')")
	if len(e.results) != 1 || !bytes.HasPrefix(e.part(e.results[0], "image/png"), []byte("\x89PNG")) || e.results[0].Kind != pb.ResultKind_RESULT_KIND_MAIN {
		t.Errorf("an image is %v, want a PNG as the value", e.results)
	}
}

func (g codeCases) DisplaysOfEarlierExecutionsAreUpdated(t *testing.T) {
	first := g.python(t, "from IPython.display import display\nhandle = display(1, display_id=True)")
	if len(first.results) != 1 || first.results[0].DisplayId == "" {
		t.Fatalf("results %v, want one with an id", first.results)
	}
	second := g.python(t, "handle.update(2)")
	if len(second.results) != 1 || second.results[0].Kind != pb.ResultKind_RESULT_KIND_UPDATE || second.results[0].DisplayId != first.results[0].DisplayId {
		t.Fatalf("results %v, want an update of %s", second.results, first.results[0].DisplayId)
	}
	wantText(t, "the new version", string(second.part(second.results[0], "text/plain")), "2")
}

func (g codeCases) ClearedOutputIsTold(t *testing.T) {
	e := g.python(t, "from IPython.display import clear_output\nprint('old'); clear_output(wait=True); print('new'); clear_output()")
	wantText(t, "stdout and clears", e.sequence, "old\n[clear, wait]new\n[clear]")
}

func (g codeCases) HelpIsShown(t *testing.T) {
	for code, want := range map[string]string{"len?": "Return the number of items in a container", "import json\njson.dumps??": "def dumps("} {
		e := g.python(t, code)
		if len(e.results) != 1 || !strings.Contains(string(e.part(e.results[0], "text/plain")), want) {
			t.Errorf("%s shows %v", code, e.results)
		} else if text := e.part(e.results[0], "text/plain"); bytes.Contains(text, []byte("\x1b")) {
			t.Errorf("%s shows %q, want no colours", code, text)
		}
	}
}

func (g codeCases) InputIsAskedFor(t *testing.T) {
	e := g.begin(t, &pb.ExecuteRequest{AllowStdin: true, Code: `import getpass
print("hello", input("name? "))
print(len(getpass.getpass("secret? ")))
input()`})
	_, err := g.code.ReplyInput(within(t), &pb.ReplyInputRequest{ExecutionId: e.id, Value: "too early", RequestNumber: 1})
	wantRefusal(t, err, refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NO_INPUT_REQUEST})
	e.until(t, "the first question", func() bool { return len(e.asked) == 1 })
	first := e.number
	g.reply(t, &pb.ReplyInputRequest{ExecutionId: e.id, Value: "Ada é", RequestNumber: first})
	e.until(t, "the second question", func() bool { return len(e.asked) == 2 })
	_, err = g.code.ReplyInput(within(t), &pb.ReplyInputRequest{ExecutionId: e.id, Value: "late", RequestNumber: first})
	wantRefusal(t, err, refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NO_INPUT_REQUEST})
	g.reply(t, &pb.ReplyInputRequest{ExecutionId: e.id, Value: "12345"})
	e.until(t, "the third question", func() bool { return len(e.asked) == 3 })
	g.reply(t, &pb.ReplyInputRequest{ExecutionId: e.id, EndOfInput: true})
	e.wait(t)
	wantError(t, e, "EOFError")
	wantText(t, "stdout", e.stdout, "hello Ada é\n5\n")
	wantText(t, "the questions", fmt.Sprint(e.asked), "[name? secret? (secret) ]")
	_, err = g.code.ReplyInput(within(t), &pb.ReplyInputRequest{ExecutionId: e.id})
	wantRefusal(t, err, refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NO_INPUT_REQUEST})
}

func (g codeCases) reply(t *testing.T, request *pb.ReplyInputRequest) {
	t.Helper()
	if _, err := g.code.ReplyInput(within(t), request); err != nil {
		t.Errorf("ReplyInput: %v", err)
	}
}

func (g codeCases) LongErrorsAreCutWithAMark(t *testing.T) {
	e := g.execute(t, &pb.ExecuteRequest{Code: "raise ValueError('begin' + 'x' * 2_000_000 + 'end')"})
	wantError(t, e, "ValueError")
	value := e.err.GetValue()
	if !strings.HasPrefix(value, "begin") || !strings.HasSuffix(value, "end") || !strings.Contains(value, "left out") || len(value) > 1<<20 {
		t.Errorf("the message is %s", excerpt(value))
	}
}

func (g codeCases) ResultsOverTheLimitAreMarked(t *testing.T) {
	info, err := g.system.GetInfo(within(t), &pb.GetInfoRequest{})
	if err != nil {
		t.Fatalf("GetInfo: %v", err)
	}
	e := g.python(t, fmt.Sprintf("'x' * %d", info.Limits.MaxResultBytes))
	if len(e.results) != 1 || len(e.results[0].Parts) != 1 {
		t.Fatalf("results %v", e.results)
	}
	if part := e.results[0].Parts[0]; part.TruncatedBytes != info.Limits.MaxResultBytes+2 || part.Content != nil || part.Mime != "text/plain" {
		t.Errorf("the part is %v, want it left out", part)
	}
}

func (g codeCases) EditorsAreAnswered(t *testing.T) {
	id := g.python(t, "number = 5\ndef grüße(x):\n  'Says hello.'").accepted.ContextId
	completion, err := g.code.Complete(within(t), &pb.CompleteRequest{ContextId: id, Code: "é = numb", Cursor: 8})
	if err != nil || len(completion.Matches) == 0 || completion.Matches[0] != "number" || completion.CursorStart != 4 || completion.CursorEnd != 8 {
		t.Errorf("Complete: %v, %v", completion, err)
	}
	inspected, err := g.code.Inspect(within(t), &pb.InspectRequest{ContextId: id, Code: "grüße", Cursor: 2})
	if err != nil || !inspected.Found || len(inspected.Parts) == 0 {
		t.Fatalf("Inspect: %v, %v", inspected, err)
	}
	if text := string(inspected.Parts[0].GetInline()); !strings.Contains(text, "Says hello.") || strings.Contains(text, "\x1b") {
		t.Errorf("it is told as %q", text)
	}
	if nothing, err := g.code.Inspect(within(t), &pb.InspectRequest{ContextId: id, Code: "nosuchname", Cursor: 2}); err != nil || nothing.Found {
		t.Errorf("Inspect of nothing: %v, %v", nothing, err)
	}
	_, err = g.code.Complete(within(t), &pb.CompleteRequest{ContextId: id, Code: "é", Cursor: 2})
	wantRefusal(t, err, badField("cursor"))
}
