package conformance

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "guestd.internal/proto/guestd/v1"
)

// contextCases are the contract of contexts. Most are of bash, which is there at
// once; what matters of kernels is asked of Python.
type contextCases struct{ *guest }

// context makes one that ends with the case.
func (g contextCases) context(t *testing.T, request *pb.CreateContextRequest) *pb.Context {
	t.Helper()
	response, err := g.code.CreateContext(within(t), request)
	if err != nil {
		t.Fatalf("CreateContext: %v", err)
	}
	id := response.Context.ContextId
	t.Cleanup(func() {
		_, err := g.code.DeleteContext(afterwards(t), &pb.DeleteContextRequest{ContextId: id})
		if err != nil && errorReason(err) != "CONTEXT_NOT_FOUND" {
			t.Errorf("DeleteContext: %v", err)
		}
	})
	return response.Context
}

// in runs code in a context.
func (g contextCases) in(t *testing.T, id, code string) *execution {
	t.Helper()
	e := g.execute(t, &pb.ExecuteRequest{ContextId: id, Code: code})
	wantStatus(t, e, pb.ExecutionStatus_EXECUTION_STATUS_OK)
	return e
}

func (g contextCases) NewOneIsReadyAndAsAskedFor(t *testing.T) {
	dir := g.folder(t)
	c := g.context(t, &pb.CreateContextRequest{
		Cwd: []byte(dir), Env: []*pb.EnvVar{env("KEY", "it's")}, Name: "name", Labels: map[string]string{"a": "1"},
	})
	if c.State != pb.ContextState_CONTEXT_STATE_IDLE || c.Language != "python" || c.Name != "name" || c.Labels["a"] != "1" ||
		string(c.Cwd) != dir || c.IsDefault || c.KernelGeneration != 1 || c.Pid == 0 || c.User == "" || c.CreateTime.AsTime().Unix() == 0 {
		t.Errorf("it is described as %v", c)
	}
	e := g.in(t, c.ContextId, "import os\n(os.getcwd(), os.environ['KEY'])")
	wantText(t, "the value", e.value(), fmt.Sprintf(`('%s', "it's")`, dir))
	g.in(t, c.ContextId, "kept = 1; os.chdir('/')")
	got, err := g.code.GetContext(within(t), &pb.GetContextRequest{ContextId: c.ContextId})
	if err != nil || got.Context.ContextId != c.ContextId || string(got.Context.Cwd) != dir {
		t.Errorf("GetContext: %v, %v", got, err)
	}
	restarted, err := g.code.RestartContext(within(t), &pb.RestartContextRequest{ContextId: c.ContextId})
	if err != nil || restarted.Context.KernelGeneration != 2 || restarted.Context.State != pb.ContextState_CONTEXT_STATE_IDLE {
		t.Errorf("RestartContext: %v, %v", restarted, err)
	}
	e = g.in(t, c.ContextId, "import os\n(os.getcwd(), 'kept' in globals())")
	wantText(t, "the value after the restart", e.value(), fmt.Sprintf("('%s', False)", dir))
	if s := e.started; !s.FreshKernel || s.PreviousEnd == "" {
		t.Errorf("the first one after the restart is told %v", s)
	}
}

func (g contextCases) ContextsShareNothingAndRunSideBySide(t *testing.T) {
	a := g.context(t, &pb.CreateContextRequest{})
	b := g.context(t, &pb.CreateContextRequest{})
	dir := g.folder(t)
	code := `import os, time
open(%q, "w").close()
while not os.path.exists(%q): time.sleep(0.02)
name = %[3]q; name`
	first := g.begin(t, &pb.ExecuteRequest{ContextId: a.ContextId, Code: fmt.Sprintf(code, dir+"/a", dir+"/b", "a")})
	second := g.begin(t, &pb.ExecuteRequest{ContextId: b.ContextId, Code: fmt.Sprintf(code, dir+"/b", dir+"/a", "b")})
	wantText(t, "the first's value", first.wait(t).value(), "'a'")
	wantText(t, "the second's value", second.wait(t).value(), "'b'")
	wantText(t, "the first's value later", g.in(t, a.ContextId, "name").value(), "'a'")
}

func (g contextCases) RunsAsItsUser(t *testing.T) {
	g.needRoot(t)
	c := g.context(t, &pb.CreateContextRequest{Language: "bash", User: g.OtherUser, Cwd: []byte("/")})
	e := g.in(t, c.ContextId, "id -un")
	wantText(t, "its user", e.stdout, g.OtherUser+"\n")
	wantText(t, "the user told", c.User, g.OtherUser)
}

func (g contextCases) ListsHavePagesAndFilters(t *testing.T) {
	label := map[string]string{"case": g.folder(t)}
	var made []string
	for range 3 {
		made = append(made, g.context(t, &pb.CreateContextRequest{Language: "bash", Labels: label}).ContextId)
	}
	var listed []string
	request := &pb.ListContextsRequest{Labels: label, PageSize: 2}
	for {
		page, err := g.code.ListContexts(within(t), request)
		if err != nil {
			t.Fatalf("ListContexts: %v", err)
		}
		for _, c := range page.Contexts {
			listed = append(listed, c.ContextId)
		}
		if request.PageToken = page.NextPageToken; request.PageToken == "" {
			break
		}
		if len(page.Contexts) != 2 {
			t.Errorf("a page of %d before the last", len(page.Contexts))
		}
	}
	wantText(t, "the list", strings.Join(listed, " "), strings.Join(made, " "))
	request = &pb.ListContextsRequest{Labels: label, State: pb.ContextState_CONTEXT_STATE_BUSY}
	if page, err := g.code.ListContexts(within(t), request); err != nil || len(page.Contexts) != 0 {
		t.Errorf("busy ones: %v, %v", page, err)
	}
}

func (g contextCases) RepeatedRequestIDMakesOne(t *testing.T) {
	request := &pb.CreateContextRequest{RequestId: g.folder(t), Language: "bash"}
	first := g.context(t, request)
	second := g.context(t, request)
	wantText(t, "the second", second.ContextId, first.ContextId)
	request.Name = "another"
	_, err := g.code.CreateContext(within(t), request)
	wantRefusal(t, err, refusal{code: codes.AlreadyExists, reason: pb.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED})
}

func (g contextCases) InterruptReachesWhatRuns(t *testing.T) {
	c := g.context(t, &pb.CreateContextRequest{})
	g.in(t, c.ContextId, "import time; kept = 5")
	interrupt := &pb.InterruptRequest{Target: &pb.InterruptRequest_ContextId{ContextId: c.ContextId}}
	if response, err := g.code.Interrupt(within(t), interrupt); err != nil || response.ExecutionId != "" {
		t.Errorf("with nothing running: %v, %v", response, err)
	}
	running := g.begin(t, &pb.ExecuteRequest{ContextId: c.ContextId, Code: "print('on')\ntime.sleep(300)"})
	running.until(t, "output", func() bool { return running.stdout != "" })
	queued := g.begin(t, &pb.ExecuteRequest{ContextId: c.ContextId, Code: "kept"})
	removed := g.begin(t, &pb.ExecuteRequest{ContextId: c.ContextId, Code: "kept = 6"})
	response, err := g.code.Interrupt(within(t), &pb.InterruptRequest{Target: &pb.InterruptRequest_ExecutionId{ExecutionId: removed.id}})
	if err != nil || response.ExecutionId != removed.id {
		t.Errorf("of a queued one: %v, %v", response, err)
	}
	wantStatus(t, removed.wait(t), pb.ExecutionStatus_EXECUTION_STATUS_INTERRUPTED)
	if response, err := g.code.Interrupt(within(t), interrupt); err != nil || response.ExecutionId != running.id {
		t.Errorf("Interrupt: %v, %v, want %s", response, err, running.id)
	}
	wantStatus(t, running.wait(t), pb.ExecutionStatus_EXECUTION_STATUS_INTERRUPTED)
	wantText(t, "the value of what was queued", queued.wait(t).value(), "5")
}

func (g contextCases) WatchTellsStateAndBackground(t *testing.T) {
	c := g.context(t, &pb.CreateContextRequest{})
	stream, err := g.code.WatchContext(within(t), &pb.WatchContextRequest{ContextId: c.ContextId})
	if err != nil {
		t.Fatalf("WatchContext: %v", err)
	}
	header, err := stream.Recv()
	if err != nil || header.GetContext().GetContextId() != c.ContextId {
		t.Fatalf("the header is %v, %v", header, err)
	}
	e := g.in(t, c.ContextId, "import threading, time\ndef late():\n  time.sleep(0.5)\n  print('late')\nthreading.Thread(target=late).start()")
	wantText(t, "the execution's own output", e.stdout, "")
	var states []string
	text := ""
	for text != "late\n" {
		event, err := stream.Recv()
		if err != nil {
			t.Fatalf("after %q: %v", text, err)
		}
		if out := event.GetOutput(); out != nil {
			text += out.Text
			if out.ExecutionId != e.id || out.Stream != pb.TextStream_TEXT_STREAM_STDOUT || out.GapBytes != 0 {
				t.Errorf("output %v, want of %s", out, e.id)
			}
		} else {
			states = append(states, strings.TrimPrefix(event.GetContext().GetState().String(), "CONTEXT_STATE_"))
		}
	}
	wantText(t, "the states", strings.Join(states, " "), "BUSY IDLE")
	next := g.in(t, c.ContextId, "1")
	wantText(t, "output of the next one", next.stdout, "")
	if _, err := g.code.DeleteContext(within(t), &pb.DeleteContextRequest{ContextId: c.ContextId}); err != nil {
		t.Fatalf("DeleteContext: %v", err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the watch ends with %v", err)
	}
}

func (g contextCases) DeletionEndsWhatRuns(t *testing.T) {
	c := g.context(t, &pb.CreateContextRequest{Language: "bash"})
	e := g.begin(t, &pb.ExecuteRequest{ContextId: c.ContextId, Code: "echo $$; sleep 300 & echo $!; wait"})
	e.until(t, "output", func() bool { return strings.Count(e.stdout, "\n") == 2 })
	if _, err := g.code.DeleteContext(within(t), &pb.DeleteContextRequest{ContextId: c.ContextId}); err != nil {
		t.Fatalf("DeleteContext: %v", err)
	}
	wantStatus(t, e.wait(t), pb.ExecutionStatus_EXECUTION_STATUS_KERNEL_DIED)
	for _, pid := range strings.Fields(e.stdout) {
		eventually(t, "process "+pid+" ends", func() bool { return !g.alive(t, pid) })
	}
}

func (g contextCases) CallsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		want    refusal
		request *pb.CreateContextRequest
	}{
		"language": {refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_LANGUAGE_NOT_FOUND}, &pb.CreateContextRequest{Language: "no-such-language"}},
		"folder":   {refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_CWD_NOT_FOUND, path: "/no/such"}, &pb.CreateContextRequest{Cwd: []byte("/no/such")}},
		"user":     {refusal{}, &pb.CreateContextRequest{User: "no-such-user"}},
		"name":     {badField("name"), &pb.CreateContextRequest{Name: strings.Repeat("x", 129)}},
		"env":      {badField("env.name"), &pb.CreateContextRequest{Env: []*pb.EnvVar{env("A=B", "")}}},
		"labels":   {badField("labels"), &pb.CreateContextRequest{Labels: map[string]string{"": "x"}}},
		"id":       {badField("request_id"), &pb.CreateContextRequest{RequestId: "é"}},
	} {
		_, err := g.code.CreateContext(within(t), c.request)
		if name == "user" {
			if err == nil {
				t.Error("a context of no user was made")
			}
			continue
		}
		wantRefusal(t, err, c.want)
	}
	missing := refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_CONTEXT_NOT_FOUND}
	const id = "c-aaaaaaaaaaaaa"
	_, err := g.code.GetContext(within(t), &pb.GetContextRequest{ContextId: id})
	wantRefusal(t, err, missing)
	_, err = g.code.RestartContext(within(t), &pb.RestartContextRequest{ContextId: id})
	wantRefusal(t, err, missing)
	_, err = g.code.DeleteContext(within(t), &pb.DeleteContextRequest{ContextId: id})
	wantRefusal(t, err, missing)
	_, err = g.code.Complete(within(t), &pb.CompleteRequest{ContextId: id})
	wantRefusal(t, err, missing)
	_, err = g.code.ListContexts(within(t), &pb.ListContextsRequest{PageSize: 1001})
	wantRefusal(t, err, badField("page_size"))
	_, err = g.code.ListContexts(within(t), &pb.ListContextsRequest{PageToken: "!"})
	wantRefusal(t, err, badField("page_token"))
}

func (g contextCases) LimitsAreTold(t *testing.T) {
	info, err := g.system.GetInfo(within(t), &pb.GetInfoRequest{})
	if err != nil || info.Limits.MaxContexts < 20 || info.Limits.MaxResultBytes < 50_000_000 {
		t.Errorf("limits %v, %v, want at least 20 contexts and results of 50 MB", info.GetLimits(), err)
	}
}

// errorReason is the reason that an error carries; empty without one.
func errorReason(err error) string { return errorInfo(status.Convert(err)).GetReason() }
