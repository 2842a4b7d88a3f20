package conformance

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "guestd.internal/proto/guestd/v1"
)

// startCases are the contract of Start and of the calls that take a process's id.
type startCases struct{ *guest }

// noProcess is how a call answers an id that nothing has.
var noProcess = refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND}

// start starts a detached process, which is killed when the case ends.
func (g *guest) start(t *testing.T, spec *pb.ProcessSpec) *pb.StartResponse {
	t.Helper()
	response, err := g.process.Start(within(t), &pb.StartRequest{Spec: spec})
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		kill := &pb.SignalRequest{ProcessId: response.ProcessId, Signal: &pb.ProcessSignal{Signal: 9}}
		// It may have ended long ago.
		_, _ = g.process.Signal(afterwards(t), kill)
	})
	return response
}

func (g *guest) waitFor(t *testing.T, id string) *pb.ProcessExit {
	t.Helper()
	response, err := g.process.Wait(within(t), &pb.WaitRequest{ProcessId: id})
	if err != nil {
		t.Fatalf("Wait: %v", err)
	}
	return response.Exit
}

func (g startCases) WaitTellsTheExitAgainAndAgain(t *testing.T) {
	id := g.start(t, script(`exit 9`)).ProcessId
	first := g.waitFor(t, id)
	wantExitCode(t, first, 9)
	if again := g.waitFor(t, id); !proto.Equal(first, again) {
		t.Errorf("first %v, then %v", first, again)
	}
}

func (g startCases) WaitDependsOnNoReaderAndNoPipe(t *testing.T) {
	dir := g.folder(t)
	spec := script(`(sleep 300 & echo $! >"$1/pid"); seq 1 "$2"; exit 3`, dir, fmt.Sprint(g.amount(2_000_000)))
	wantExitCode(t, g.waitFor(t, g.start(t, spec).ProcessId), 3)
	g.killLater(t, g.sh(t, `cat "$1/pid"`, dir))
}

func (g startCases) InputIsWrittenAndClosedByCalls(t *testing.T) {
	file := g.folder(t) + "/copy"
	id := g.start(t, piped(script(`cat >"$1"`, file))).ProcessId
	data := pattern(300_000)
	for i, piece := range [][]byte{data[:100_000], data[100_000:]} {
		response, err := g.process.WriteInput(within(t), &pb.WriteInputRequest{ProcessId: id, Data: piece})
		if err != nil {
			t.Fatalf("WriteInput: %v", err)
		}
		if want := []uint64{100_000, 300_000}[i]; response.AcceptedOffset != want {
			t.Errorf("accepted %d, want %d", response.AcceptedOffset, want)
		}
	}
	for range 2 {
		if _, err := g.process.CloseInput(within(t), &pb.CloseInputRequest{ProcessId: id}); err != nil {
			t.Errorf("CloseInput: %v", err)
		}
	}
	wantExitCode(t, g.waitFor(t, id), 0)
	wantText(t, "the file", string(g.contents(t, file)), string(data))
}

func (g startCases) SignalEndsTheTree(t *testing.T) {
	dir := g.folder(t)
	id := g.start(t, script(`sleep 300 & echo $! >"$1/new"; mv "$1/new" "$1/pid"; wait`, dir)).ProcessId
	eventually(t, "the child starts", func() bool { return g.exists(t, dir+"/pid") })
	child := g.sh(t, `cat "$1/pid"`, dir)
	g.killLater(t, child)
	if _, err := g.process.Signal(within(t), &pb.SignalRequest{ProcessId: id, Signal: &pb.ProcessSignal{Signal: 15}}); err != nil {
		t.Fatalf("Signal: %v", err)
	}
	wantSignal(t, g.waitFor(t, id), 15)
	eventually(t, "the child dies too", func() bool { return !g.alive(t, child) })
}

func (g startCases) SignalAfterTheEndIsTold(t *testing.T) {
	id := g.start(t, command("true")).ProcessId
	g.waitFor(t, id)
	_, err := g.process.Signal(within(t), &pb.SignalRequest{ProcessId: id, Signal: &pb.ProcessSignal{Signal: 15}})
	wantRefusal(t, err, refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_PROCESS_ENDED})
}

func (g startCases) ResizeReachesTheTerminal(t *testing.T) {
	file := g.folder(t) + "/size"
	id := g.start(t, onTerminal(script(`read -r line; stty size >"$1"`, file))).ProcessId
	request := &pb.ResizeRequest{ProcessId: id, Size: &pb.TerminalSize{Rows: 7, Columns: 77}}
	if _, err := g.process.Resize(within(t), request); err != nil {
		t.Fatalf("Resize: %v", err)
	}
	if _, err := g.process.WriteInput(within(t), &pb.WriteInputRequest{ProcessId: id, Data: []byte("\n")}); err != nil {
		t.Fatalf("WriteInput: %v", err)
	}
	wantExitCode(t, g.waitFor(t, id), 0)
	wantText(t, "the size", string(g.contents(t, file)), "7 77\n")
}

func (g startCases) GetDescribesAProcess(t *testing.T) {
	spec := script(`exec sleep 300`, "secret-free")
	spec.Labels = map[string]string{"purpose": "to be described"}
	spec.Env = []*pb.EnvVar{env("SECRET", "not-to-be-shown")}
	started := g.start(t, in("/", spec))
	response, err := g.process.Get(within(t), &pb.GetRequest{ProcessId: started.ProcessId})
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	got := response.Process
	if got.State != pb.ProcessState_PROCESS_STATE_RUNNING || got.Exit != nil || got.Pid != started.Pid {
		t.Errorf("%v, want a running process of pid %d", got, started.Pid)
	}
	if len(got.Arguments) != 5 || string(got.Arguments[4]) != "secret-free" || string(got.Cwd) != "/" {
		t.Errorf("arguments %q, cwd %q", got.Arguments, got.Cwd)
	}
	if got.Labels["purpose"] != "to be described" || got.User == "" {
		t.Errorf("labels %v, user %q", got.Labels, got.User)
	}
	if strings.Contains(got.String(), "not-to-be-shown") {
		t.Errorf("%v shows the environment", got)
	}
}

func (g startCases) ListFiltersAndPages(t *testing.T) {
	label := map[string]string{"batch": g.folder(t)}
	var ids []string
	for i := range 5 {
		spec := command("true")
		if i == 4 {
			spec = command("sleep", "300")
		}
		spec.Labels = label
		ids = append(ids, g.start(t, spec).ProcessId)
		if i < 4 {
			g.waitFor(t, ids[i])
		}
	}
	wantText(t, "all", g.listed(t, &pb.ProcessServiceListRequest{Labels: label}), strings.Join(ids, " "))
	wantText(t, "pages of two", g.listed(t, &pb.ProcessServiceListRequest{Labels: label, PageSize: 2}), strings.Join(ids, " "))
	running := &pb.ProcessServiceListRequest{Labels: label, State: pb.ProcessState_PROCESS_STATE_RUNNING}
	wantText(t, "the running", g.listed(t, running), ids[4])
	exited := &pb.ProcessServiceListRequest{Labels: label, State: pb.ProcessState_PROCESS_STATE_EXITED}
	wantText(t, "the exited", g.listed(t, exited), strings.Join(ids[:4], " "))
}

// listed is the ids of all pages of a list.
func (g startCases) listed(t *testing.T, request *pb.ProcessServiceListRequest) string {
	t.Helper()
	var ids []string
	for {
		page, err := g.process.List(within(t), request)
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		if request.PageSize != 0 && len(page.Processes) > int(request.PageSize) {
			t.Errorf("a page of %d, want at most %d", len(page.Processes), request.PageSize)
		}
		for _, process := range page.Processes {
			ids = append(ids, process.ProcessId)
		}
		if page.NextPageToken == "" {
			return strings.Join(ids, " ")
		}
		request.PageToken = page.NextPageToken
	}
}

func (g startCases) MalformedListsAreRefused(t *testing.T) {
	for field, request := range map[string]*pb.ProcessServiceListRequest{
		"page_size":  {PageSize: 1001},
		"page_token": {PageToken: "never given"},
		"state":      {State: 99},
	} {
		_, err := g.process.List(within(t), request)
		wantRefusal(t, err, badField(field))
	}
}

func (g startCases) UnknownProcessIsTold(t *testing.T) {
	const id = "p-aaaaaaaaaaaaa"
	for name, call := range map[string]func() error{
		"Wait": func() error { _, err := g.process.Wait(within(t), &pb.WaitRequest{ProcessId: id}); return err },
		"Get":  func() error { _, err := g.process.Get(within(t), &pb.GetRequest{ProcessId: id}); return err },
		"Signal": func() error {
			_, err := g.process.Signal(within(t), &pb.SignalRequest{ProcessId: id, Signal: &pb.ProcessSignal{Signal: 9}})
			return err
		},
		"WriteInput": func() error {
			_, err := g.process.WriteInput(within(t), &pb.WriteInputRequest{ProcessId: id, Data: []byte("x")})
			return err
		},
		"CloseInput": func() error {
			_, err := g.process.CloseInput(within(t), &pb.CloseInputRequest{ProcessId: id})
			return err
		},
		"Resize": func() error {
			_, err := g.process.Resize(within(t), &pb.ResizeRequest{ProcessId: id, Size: &pb.TerminalSize{Rows: 1}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { wantRefusal(t, call(), noProcess) })
	}
}
