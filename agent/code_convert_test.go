package agent

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"guestd.internal/internal/spawn"
	"guestd.internal/kernel"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

func TestExecuteRequestIsConvertedWhole(t *testing.T) {
	in := &guestdv1.ExecuteRequest{
		RequestId: "r", ContextId: "c", Language: "l", Code: "x", Timeout: durationpb.New(time.Second), AllowStdin: true,
		Env: []*guestdv1.EnvVar{{Name: []byte("A"), Value: []byte("\xff")}, {Name: []byte("B"), Unset: true}}, Cwd: []byte("/\xff"),
		Reader: &guestdv1.EventReader{ReaderId: "reader"},
	}
	wantAllSet(t, in)
	got, err := executeRequest(in)
	if err != nil {
		t.Fatal(err)
	}
	if got.RequestID != "r" || got.ContextID != "c" || got.Language != "l" || got.Code != "x" || *got.Timeout != time.Second || !got.AllowStdin || got.Dir != "/\xff" {
		t.Errorf("%+v", got)
	}
	want := []spawn.EnvVar{{Name: "A", Value: "\xff"}, {Name: "B", Unset: true}}
	if len(got.Env) != 2 || got.Env[0] != want[0] || got.Env[1] != want[1] {
		t.Errorf("environment %+v", got.Env)
	}
	in.Timeout = durationpb.New(-1)
	if _, err := executeRequest(in); err == nil {
		t.Error("a negative time-out is taken")
	}
}

// wantAllSet fails the test if a field was forgotten, for instance a new one.
func wantAllSet(t *testing.T, m proto.Message) {
	t.Helper()
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); !m.ProtoReflect().Has(fd) && fd.ContainingOneof() == nil {
			t.Errorf("%s is not set", fd.FullName())
		}
	}
}

func TestContextIsConvertedWhole(t *testing.T) {
	m := contextMessage(kernel.Info{
		ID: "c", Language: "l", Name: "n", Labels: map[string]string{"a": "1"}, User: "u", Dir: "/\xff", IsDefault: true,
		Created: time.Unix(1, 0), State: kernel.Busy, Queued: 2, Execution: "x", Generation: 3, PID: 4,
	})
	wantAllSet(t, m)
	if m.State != guestdv1.ContextState_CONTEXT_STATE_BUSY || string(m.Cwd) != "/\xff" || m.Queued != 2 || m.KernelGeneration != 3 || m.Pid != 4 {
		t.Errorf("%v", m)
	}
	reached := make(map[guestdv1.ContextState]bool)
	for _, state := range contextStates {
		reached[state] = true
	}
	wantEvery(t, guestdv1.ContextState(0).Descriptor(), func(n protoreflect.EnumNumber) bool { return reached[guestdv1.ContextState(n)] })
}

// wantEvery fails the test if a value of an enum but its zero is never reached.
func wantEvery(t *testing.T, enum protoreflect.EnumDescriptor, reached func(protoreflect.EnumNumber) bool) {
	t.Helper()
	for i := range enum.Values().Len() {
		if v := enum.Values().Get(i); v.Number() != 0 && !reached(v.Number()) {
			t.Errorf("nothing becomes %s", v.Name())
		}
	}
}

func TestEnumsAreConvertedWhole(t *testing.T) {
	statuses := make(map[guestdv1.ExecutionStatus]bool)
	for _, s := range []kernel.Status{kernel.OK, kernel.Failed, kernel.TimedOut, kernel.Interrupted, kernel.KernelDied} {
		statuses[executionStatus(s)] = true
	}
	wantEvery(t, guestdv1.ExecutionStatus(0).Descriptor(), func(n protoreflect.EnumNumber) bool { return statuses[guestdv1.ExecutionStatus(n)] })
	kinds := make(map[guestdv1.ResultKind]bool)
	for _, k := range []kernel.ResultKind{kernel.Main, kernel.Display, kernel.Update} {
		kinds[resultKind(k)] = true
	}
	wantEvery(t, guestdv1.ResultKind(0).Descriptor(), func(n protoreflect.EnumNumber) bool { return kinds[guestdv1.ResultKind(n)] })
	streams := make(map[guestdv1.TextStream]bool)
	for _, s := range []kernel.Stream{kernel.StreamStdout, kernel.StreamStderr, kernel.StreamResult} {
		streams[textStream(s)] = true
	}
	wantEvery(t, guestdv1.TextStream(0).Descriptor(), func(n protoreflect.EnumNumber) bool { return streams[guestdv1.TextStream(n)] })
}

func TestFinishedTellsAnExitOnlyWhereThereWasOne(t *testing.T) {
	for name, tt := range map[string]struct {
		in     kernel.Finished
		exit   int // -1 is none
		signal int // 0 is none
	}{
		"kernel":  {kernel.Finished{Status: kernel.OK}, -1, 0},
		"process": {kernel.Finished{Status: kernel.OK, HasExit: true}, 0, 0},
		"exit":    {kernel.Finished{Status: kernel.Failed, HasExit: true, ExitCode: 3}, 3, 0},
		"signal":  {kernel.Finished{Status: kernel.KernelDied, HasExit: true, ExitCode: -1, Signal: syscall.SIGKILL}, -1, 9},
	} {
		m := finishedMessage(tt.in)
		exit := -1
		if m.ExitCode != nil {
			exit = int(m.GetExitCode())
		}
		if exit != tt.exit || int(m.GetSignal()) != tt.signal || (m.Signal != nil) != (tt.signal != 0) {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// Parts travel within their result as long as they fit into a message together; an
// empty one is there and is not large, and one that was left out has no contents.
func TestLargePartsFollowTheirResult(t *testing.T) {
	part := func(mime string, n int) kernel.MIMEPart {
		return kernel.MIMEPart{MIME: mime, Data: bytes.Repeat([]byte("x"), n)}
	}
	m, large := resultMessage(kernel.Result{Number: 7, Kind: kernel.Main, Parts: []kernel.MIMEPart{
		part("a", maxInline), part("b", maxInline+1), part("c", maxInline), part("d", 1), part("e", 0),
		{MIME: "f", Truncated: 99},
	}})
	if m.GetResultNumber() != 7 || len(large) != 2 || large[0].MIME != "b" || large[1].MIME != "d" {
		t.Errorf("result %d with %d large parts", m.GetResultNumber(), len(large))
	}
	for i, want := range []struct {
		inline int // -1 is none
		size   uint64
		left   uint64
	}{{maxInline, 0, 0}, {-1, maxInline + 1, 0}, {maxInline, 0, 0}, {-1, 1, 0}, {0, 0, 0}, {-1, 0, 99}} {
		p := m.GetParts()[i]
		inline := -1
		if _, ok := p.GetContent().(*guestdv1.MimePart_Inline); ok {
			inline = len(p.GetInline())
		}
		if inline != want.inline || p.GetSize() != want.size || p.GetTruncatedBytes() != want.left {
			t.Errorf("%s has %d bytes inline, %d to follow and lacks %d", p.GetMime(), inline, p.GetSize(), p.GetTruncatedBytes())
		}
	}
}
