package kernel

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"guestd.internal/internal/spawn"
	"guestd.internal/kernel/internal/jupyter"
	"guestd.internal/kernel/internal/zmtp"
)

// withFake makes the test binary, in the given role, the user's python3 kernel.
func withFake(t *testing.T, role string) func(*Config) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(map[string]any{
		"argv": []string{binary, "{connection_file}"}, "language": "python", "display_name": "fake",
		"env": map[string]string{"KERNEL_TEST_ROLE": role},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "kernels/python3"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kernels/python3/kernel.json"), spec, 0o644); err != nil {
		t.Fatal(err)
	}
	return func(cfg *Config) {
		cfg.Environment = func() []spawn.EnvVar { return []spawn.EnvVar{{Name: "JUPYTER_PATH", Value: dir}} }
	}
}

// fake is a kernel that does what the code of an execution says, by name.
type fake struct {
	prefix string
	codec  *jupyter.Codec
	raw    net.Conn // below iopub
	iopub  *zmtp.Conn
	shell  *zmtp.Conn
	others chan *zmtp.Conn // kept, or the garbage collector would close them
	order  string          // in which its sockets begin to listen
	unseen int             // how many idles after a kernel_info are lost on the way
}

// fakeKernel is what the test binary does as a kernel of its own.
func fakeKernel(role string) {
	signal.Ignore(os.Interrupt)
	data, err := os.ReadFile(os.Args[1])
	must(err)
	var file struct{ IP, Key string }
	must(json.Unmarshal(data, &file))
	f := &fake{prefix: file.IP, codec: jupyter.NewCodec(file.Key)}
	switch role {
	case "exits":
		fmt.Fprintln(os.Stderr, "first line\nsomething is missing")
		os.Exit(7)
	case "no-module":
		fmt.Fprintln(os.Stderr, "/usr/bin/python3: No module named ipykernel_launcher")
		os.Exit(1)
	case "mute":
		f.accept(jupyter.IOPub)
	case "bad-greeting":
		conn := f.accept(jupyter.IOPub)
		_, _ = conn.Write(make([]byte, 200))
	case "bad-ready":
		conn := f.accept(jupyter.IOPub)
		greeting := make([]byte, 64)
		greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
		copy(greeting[12:], "NULL")
		_, _ = conn.Write(greeting)
		_, _ = conn.Write(append([]byte{4, 9}, "\x05READY\xffxy"...))
	case "iopub-first", "iopub-last":
		f.order = role
		f.serve()
	case "late-subscription":
		f.unseen = 3
		f.serve()
	default:
		f.serve()
	}
	select {}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "fake kernel:", err)
		os.Exit(99)
	}
}

// accept waits for the client of one channel.
func (f *fake) accept(channel jupyter.Channel) net.Conn {
	if iopub := channel == jupyter.IOPub; iopub && f.order == "iopub-last" || !iopub && f.order == "iopub-first" {
		time.Sleep(time.Duration(channel+1) * 20 * time.Millisecond)
	}
	l, err := net.Listen("unix", fmt.Sprintf("%s-%d", f.prefix, channel))
	must(err)
	conn, err := l.Accept()
	must(err)
	return conn
}

func (f *fake) open(conn net.Conn, typ zmtp.SocketType) *zmtp.Conn {
	c, err := zmtp.Open(context.Background(), conn, typ, "", zmtp.Limits{})
	must(err)
	return c
}

func (f *fake) serve() {
	f.others = make(chan *zmtp.Conn, 2)
	for _, channel := range []jupyter.Channel{jupyter.Stdin, jupyter.Control} {
		go func() { f.others <- f.open(f.accept(channel), "ROUTER") }()
	}
	shell := make(chan *zmtp.Conn, 1)
	go func() { shell <- f.open(f.accept(jupyter.Shell), "ROUTER") }()
	f.raw = f.accept(jupyter.IOPub)
	f.iopub = f.open(f.raw, "XPUB")
	f.shell = <-shell
	for {
		raw, err := f.shell.Recv()
		must(err)
		msg, err := f.codec.Decode(raw.Frames, raw.Skipped)
		must(err)
		switch msg.Header.MsgType {
		case jupyter.TypeKernelInfoRequest:
			f.reply(jupyter.TypeKernelInfoReply, map[string]string{"status": "ok"}, &msg.Header)
			if f.unseen > 0 {
				f.unseen--
				continue
			}
			f.status("idle", &msg.Header)
		case jupyter.TypeCompleteRequest:
			time.Sleep(pastEvents)
			f.reply("complete_reply", jupyter.CompleteReply{Matches: []string{time.Now().Format(time.RFC3339Nano)}}, &msg.Header)
			f.status("idle", &msg.Header)
		case jupyter.TypeExecuteRequest:
			var request jupyter.ExecuteRequest
			must(msg.DecodeContent(&request))
			if request.Code == toldLate {
				time.Sleep(pastEvents)
			}
			f.status("busy", &msg.Header)
			f.execute(request.Code, &msg.Header)
		}
	}
}

func (f *fake) frames(msgType string, content any, parent *jupyter.Header) [][]byte {
	_, frames, err := f.codec.Encode(msgType, content, parent)
	must(err)
	return append([][]byte{[]byte("topic")}, frames...)
}

func (f *fake) publish(msgType string, content any, parent *jupyter.Header) {
	must(f.iopub.Send(f.frames(msgType, content, parent)...))
}

func (f *fake) status(state string, parent *jupyter.Header) {
	f.publish(jupyter.TypeStatus, jupyter.Status{ExecutionState: state}, parent)
}

func (f *fake) print(text string, parent *jupyter.Header) {
	f.publish(jupyter.TypeStream, jupyter.Stream{Name: "stdout", Text: text}, parent)
}

func (f *fake) reply(msgType string, content any, parent *jupyter.Header) {
	_, frames, err := f.codec.Encode(msgType, content, parent)
	must(err)
	must(f.shell.Send(frames...))
}

func (f *fake) done(parent *jupyter.Header) {
	f.status("idle", parent)
	f.reply(jupyter.TypeExecuteReply, map[string]any{"status": "ok", "execution_count": 1}, parent)
}

func (f *fake) execute(code string, parent *jupyter.Header) {
	foreign := &jupyter.Header{MsgID: "somebody-elses", MsgType: jupyter.TypeExecuteRequest}
	if code != "aborted" {
		f.publish(jupyter.TypeExecuteInput, jupyter.ExecuteInput{ExecutionCount: 1}, parent)
	}
	switch code {
	case "wrong signatures":
		frames := f.frames(jupyter.TypeStream, jupyter.Stream{Name: "stdout", Text: "forged"}, parent)
		frames[2] = []byte(strings.Repeat("0", 64))
		must(f.iopub.Send(frames...))
		frames[2] = []byte("short")
		must(f.iopub.Send(frames...))
	case "garbage":
		must(f.iopub.Send([]byte("no delimiter")))
		must(f.iopub.Send([]byte("<IDS|MSG>")))
		must(f.iopub.Send([]byte("<IDS|MSG>"), nil, []byte("{"), nil, nil, nil))
		f.publish(jupyter.TypeStream, []int{1}, parent)
		f.publish(jupyter.TypeStream, jupyter.Stream{Name: "stdwhat", Text: "x"}, parent)
		f.publish(jupyter.TypeExecuteResult, json.RawMessage(`{"data":`+strings.Repeat("[", 9000)+strings.Repeat("]", 9000)+`}`), parent)
		f.publish("no_such_type", struct{}{}, parent)
		f.publish(jupyter.TypeInputRequest, jupyter.InputRequest{}, parent)
	case "foreign parents":
		f.status("idle", foreign)
		f.status("idle", nil)
		f.print("not mine", foreign)
		f.reply(jupyter.TypeExecuteReply, map[string]any{"status": "ok"}, foreign)
	case "oversized":
		frames := f.frames(jupyter.TypeStream, jupyter.Stream{Name: "stdout", Text: strings.Repeat("x", maxOutput)}, parent)
		must(f.iopub.Send(frames...))
	case "lost reply":
		f.status("idle", parent)
		return
	case "lost idle":
		f.reply(jupyter.TypeExecuteReply, map[string]any{"status": "ok", "execution_count": 1}, parent)
		return
	case "aborted":
		f.status("idle", parent)
		f.reply(jupyter.TypeExecuteReply, map[string]any{"status": "aborted"}, parent)
		return
	case "error in the reply only":
		f.status("idle", parent)
		f.reply(jupyter.TypeExecuteReply, map[string]any{"status": "error", "ename": "E", "evalue": "v", "traceback": []string{"t"}}, parent)
		return
	case "late idle":
		f.reply(jupyter.TypeExecuteReply, map[string]any{"status": "ok", "execution_count": 1}, parent)
		time.Sleep(100 * time.Millisecond)
		f.print("after the reply", parent)
		f.status("idle", parent)
		return
	case "huge frame":
		_, _ = f.raw.Write([]byte{2, 0x3f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		return
	case "reserved bits":
		_, _ = f.raw.Write([]byte{0xf0, 1, 2, 3})
		return
	case "half a frame, then gone":
		_, _ = f.raw.Write([]byte{1, 200, 'x'})
		_ = f.raw.Close()
		return
	case "out of memory":
		outgrowMemory()
	case "flood":
		for {
			f.print(strings.Repeat("flood ", 10_000), parent)
		}
	}
	f.print("done", parent)
	f.done(parent)
}

// outgrowMemory needs more than the cgroup of the process has, which it must be able
// to limit: what test/vm runs this for.
func outgrowMemory() {
	const limit, piece = 32 << 20, 1 << 20
	own, err := os.ReadFile("/proc/self/cgroup")
	must(err)
	path := strings.TrimPrefix(strings.TrimSpace(string(own)), "0::")
	must(os.WriteFile(filepath.Join("/sys/fs/cgroup", path, "memory.max"), []byte(fmt.Sprint(limit)), 0o644))
	var held [][]byte
	for {
		held = append(held, bytes.Repeat([]byte{byte(len(held))}, piece))
	}
}

func TestMessagesOfAHostileKernel(t *testing.T) {
	cs := newContexts(t, withFake(t, "kernel"))
	for _, code := range []string{"nothing", "wrong signatures", "garbage", "foreign parents", "oversized"} {
		out := execute(t, cs, code)
		if out.finished.Status != OK || out.stdout != "done" || out.err != nil {
			t.Errorf("%s: %+v, output %.100q, error %+v", code, out.finished, out.stdout, out.err)
		}
		if gap := code == "oversized"; gap != (len(out.gaps) == 1 && out.gaps[0].Bytes > maxOutput) {
			t.Errorf("%s: gaps %+v", code, out.gaps)
		}
		for _, r := range out.results {
			if size := len(r.Parts); size > 0 {
				t.Errorf("%s: result %.200v", code, r)
			}
		}
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel() // mostly waits
	cs := newContexts(t, withFake(t, "kernel"))
	for code, want := range map[string]Finished{
		"lost reply":              {Status: OK, ExecutionCount: 1},
		"lost idle":               {Status: OK, ExecutionCount: 1, OutputIncomplete: true},
		"late idle":               {Status: OK, ExecutionCount: 1},
		"aborted":                 {Status: Failed},
		"error in the reply only": {Status: Failed, ExecutionCount: 1},
	} {
		out := execute(t, cs, code)
		got := *out.finished
		got.Duration = 0
		if got != want {
			t.Errorf("%s: %+v, want %+v", code, got, want)
		}
		switch {
		case code == "aborted" && (out.err == nil || out.err.Name != ErrorAborted):
			t.Errorf("%s: error %+v", code, out.err)
		case code == "error in the reply only" && (out.err == nil || out.err.Name != "E" || out.err.Value != "v" || len(out.err.Traceback) != 1):
			t.Errorf("%s: error %+v", code, out.err)
		case code == "late idle" && out.stdout != "after the reply":
			t.Errorf("%s: output %q", code, out.stdout)
		}
	}
}

func TestBrokenConnectionCostsTheKernel(t *testing.T) {
	for _, code := range []string{"huge frame", "reserved bits", "half a frame, then gone"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel() // mostly waits
			cs := newContexts(t, withFake(t, "kernel"))
			out := execute(t, cs, code)
			if out.finished.Status != KernelDied || out.finished.Signal != syscall.SIGKILL || out.err == nil || !strings.Contains(out.err.Value, "connection broke") {
				t.Errorf("%+v, error %+v", out.finished, out.err)
			}
			if next := execute(t, cs, "nothing"); next.finished.Status != OK || !next.started.FreshKernel {
				t.Errorf("next: %+v", next.finished)
			}
		})
	}
}

func TestFloodIsBounded(t *testing.T) {
	const limit = 1 << 20
	cs := newContexts(t, withFake(t, "kernel"), func(cfg *Config) { cfg.OutputLimit, cfg.ReconnectGrace = limit, -1 })
	x := start(t, cs, Request{Code: "flood"})
	waitFor(t, "output to be dropped", func() bool {
		x.log.mu.Lock()
		defer x.log.mu.Unlock()
		return x.log.written > 50<<20
	})
	if n := x.log.retained(); n > 2*limit+overrun { // the kernel is not ours, and so always read
		t.Errorf("%d bytes kept, the limit is %d", n, limit)
	}
	reader := events(t, x, 0) // holds the kernel back from now on
	defer reader.Close()
	if event, err := reader.Next(t.Context()); err != nil || event.Number != 1 {
		t.Errorf("first event %+v, %v", event, err)
	}
	if err := cs.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	out := collect(t, x)
	if len(out.gaps) == 0 || out.finished.Status != KernelDied {
		t.Errorf("gaps %v, %+v", out.gaps, out.finished)
	}
}

func TestFailedStarts(t *testing.T) {
	for role, want := range map[string][2]string{
		"exits":        {ErrorKernelStart, "exited with code 7 before it was ready; it wrote:\nfirst line\nsomething is missing"},
		"no-module":    {ErrorLanguageUnavailable, "install"},
		"bad-greeting": {ErrorKernelStart, "greeting"},
		"bad-ready":    {ErrorKernelStart, "ZMTP protocol violation"},
	} {
		t.Run(role, func(t *testing.T) {
			cs := newContexts(t, withFake(t, role))
			x, behind := start(t, cs, Request{Code: "1"}), start(t, cs, Request{Code: "2"})
			for _, x := range []*Execution{x, behind} {
				out := collect(t, x)
				if out.finished.Status != Failed || out.started != nil || out.err == nil || out.err.Name != want[0] || !strings.Contains(out.err.Value, want[1]) {
					t.Errorf("%+v, error %+v", out.finished, out.err)
				}
			}
		})
	}
}

func TestKernelIsAskedUntilItsStatusArrives(t *testing.T) {
	cs := newContexts(t, withFake(t, "late-subscription"), func(cfg *Config) { cfg.StartTimeout = 20 * time.Second })
	if out := execute(t, cs, "nothing"); out.finished.Status != OK || out.stdout != "done" {
		t.Errorf("%+v, output %q, error %+v", out.finished, out.stdout, out.err)
	}
}

func TestStartTimeout(t *testing.T) {
	cs := newContexts(t, withFake(t, "mute"), func(cfg *Config) { cfg.StartTimeout = 300 * time.Millisecond })
	if out := execute(t, cs, "1"); out.err == nil || strings.Count(out.err.Value, errStartTimeout.Error()) != 1 {
		t.Errorf("error %+v, want the reason, and once", out.err)
	}
}
