package conformance

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "guestd.internal/proto/guestd/v1"
)

// command is the spec of an argument list.
func command(args ...string) *pb.ProcessSpec {
	list := &pb.Arguments{}
	for _, arg := range args {
		list.Values = append(list.Values, []byte(arg))
	}
	return &pb.ProcessSpec{Command: &pb.ProcessSpec_Arguments{Arguments: list}}
}

// script is the spec of a POSIX shell script with positional parameters.
func script(text string, params ...string) *pb.ProcessSpec {
	return command(append([]string{"sh", "-c", text, "sh"}, params...)...)
}

// shellLine is the spec of one line for guestd's shell.
func shellLine(line string) *pb.ProcessSpec {
	return &pb.ProcessSpec{Command: &pb.ProcessSpec_Shell{Shell: &pb.ShellLine{Line: []byte(line)}}}
}

// piped gives a spec a stdin that the call feeds.
func piped(spec *pb.ProcessSpec) *pb.ProcessSpec {
	spec.Stdin = pb.StdinMode_STDIN_MODE_PIPE
	return spec
}

// as makes a spec another user's.
func as(user string, spec *pb.ProcessSpec) *pb.ProcessSpec {
	spec.User = user
	return spec
}

// in gives a spec a working directory.
func in(dir string, spec *pb.ProcessSpec) *pb.ProcessSpec {
	spec.Cwd = []byte(dir)
	return spec
}

// onTerminal gives a spec a terminal of 40 rows and 100 columns.
func onTerminal(spec *pb.ProcessSpec) *pb.ProcessSpec {
	spec.Terminal = &pb.TerminalSize{Rows: 40, Columns: 100}
	return spec
}

// limited gives a spec a time-out and a grace after it.
func limited(spec *pb.ProcessSpec, timeout, grace time.Duration) *pb.ProcessSpec {
	spec.Timeout, spec.KillGrace = durationpb.New(timeout), durationpb.New(grace)
	return spec
}

// killedAtOnce is the start of a process that dies with its connection, without a
// grace for coming back.
func killedAtOnce(spec *pb.ProcessSpec) *pb.ExecStart {
	spec.OnDisconnect, spec.KillGrace = pb.OnDisconnect_ON_DISCONNECT_KILL, durationpb.New(0)
	return &pb.ExecStart{Spec: spec, Reader: &pb.OutputReader{ReconnectGrace: durationpb.New(0)}}
}

// env is an environment variable to set.
func env(name, value string) *pb.EnvVar {
	return &pb.EnvVar{Name: []byte(name), Value: []byte(value)}
}

// sh runs a script of the case's own as the default user, whose files are then
// that user's, and returns its stdout without the last line end.
func (g *guest) sh(t *testing.T, text string, params ...string) string {
	t.Helper()
	return g.shAs(t, "", text, params...)
}

// ownerSh is sh with the rights to do everything that guestd can have done.
func (g *guest) ownerSh(t *testing.T, text string, params ...string) string {
	t.Helper()
	return g.shAs(t, g.owner(), text, params...)
}

func (g *guest) shAs(t *testing.T, user, text string, params ...string) string {
	t.Helper()
	response, err := g.process.Run(afterwards(t), &pb.RunRequest{Spec: as(user, script(text, params...))})
	if err != nil {
		t.Fatalf("running %q: %v", text, err)
	}
	if response.Exit.GetExitCode() != 0 || response.Exit.GetStatus() == nil {
		t.Fatalf("running %q: %v: %s", text, response.Exit, captured(response, pb.OutputStream_OUTPUT_STREAM_STDERR))
	}
	return strings.TrimSuffix(captured(response, pb.OutputStream_OUTPUT_STREAM_STDOUT), "\n")
}

// captured is what a Run captured of a stream.
func captured(response *pb.RunResponse, stream pb.OutputStream) string {
	for _, output := range response.Outputs {
		if output.Stream == stream {
			return string(output.Head) + string(output.Tail)
		}
	}
	return ""
}

// alive says whether a process of the guest runs; a zombie does not.
func (g *guest) alive(t *testing.T, pid string) bool {
	t.Helper()
	const state = `while read -r key value rest; do
		if [ "$key" = State: ]; then echo "$value"; fi
	done 2>/dev/null </proc/"$1"/status || true`
	letter := g.sh(t, "{ "+state+"; } 2>/dev/null; true", pid)
	return letter != "" && letter != "Z" && letter != "X"
}

// kill ends a process and its group, if there is still something to end.
func (g *guest) kill(t *testing.T, pid uint32) {
	t.Helper()
	g.ownerSh(t, `kill -9 -"$1" 2>/dev/null; kill -9 "$1" 2>/dev/null; true`, strconv.FormatUint(uint64(pid), 10))
}

// killLater ends a process that a case leaves behind, when the case ends.
func (g *guest) killLater(t *testing.T, pid string) {
	t.Helper()
	t.Cleanup(func() { g.ownerSh(t, `kill -9 "$1" 2>/dev/null; true`, pid) })
}

// exists says whether there is a file.
func (g *guest) exists(t *testing.T, path string) bool {
	t.Helper()
	return g.sh(t, `if [ -e "$1" ]; then echo yes; fi`, path) == "yes"
}

// touch makes an empty file, as a sign for a process that waits for it.
func (g *guest) touch(t *testing.T, path string) {
	t.Helper()
	g.sh(t, `: >"$1"`, path)
}

// numbers is what `seq 1 n` prints.
func numbers(n int) string {
	var text []byte
	for i := 1; i <= n; i++ {
		text = append(strconv.AppendInt(text, int64(i), 10), '\n')
	}
	return string(text)
}

// pattern is n bytes that hold every byte value and do not repeat with a period
// that buffers have.
func pattern(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i ^ i>>8 ^ i>>16*31)
	}
	return data
}

// wantText fails the case unless what came is what was written.
func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %s, want %s", what, excerpt(got), excerpt(want))
	}
}

// wantExitCode fails the case unless the process exited with the code.
func wantExitCode(t *testing.T, exit *pb.ProcessExit, want uint32) {
	t.Helper()
	status, ok := exit.GetStatus().(*pb.ProcessExit_ExitCode)
	if !ok || status.ExitCode != want {
		t.Errorf("it ended with %v, want exit code %d", exit, want)
	}
}

// wantSignal fails the case unless the process was ended by the signal.
func wantSignal(t *testing.T, exit *pb.ProcessExit, want uint32) {
	t.Helper()
	status, ok := exit.GetStatus().(*pb.ProcessExit_Signal)
	if !ok || status.Signal != want {
		t.Errorf("it ended with %v, want signal %d", exit, want)
	}
}
