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

// terminalCases are the contract of Exec for processes with a terminal.
type terminalCases struct{ *guest }

func (g terminalCases) AllThreeDescriptorsAreOneTerminal(t *testing.T) {
	out := g.complete(t, onTerminal(script(`tty; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all; echo err >&2`)))
	lines := strings.Split(out.terminal(), "\r\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "/dev/pts/") || lines[1] != "all" || lines[2] != "err" {
		t.Errorf("%v, want a terminal on all descriptors", out)
	}
	if out.stdout() != "" || out.stderr() != "" {
		t.Errorf("%v, want output of the terminal alone", out)
	}
}

func (g terminalCases) ItIsTheControllingTerminal(t *testing.T) {
	out := g.complete(t, onTerminal(script(`echo here >/dev/tty; echo "$TERM"`)))
	wantText(t, "the terminal", out.terminal(), "here\r\nxterm-256color\r\n")
}

func (g terminalCases) SizeIsRightFromTheFirstInstruction(t *testing.T) {
	wantText(t, "the size", g.complete(t, onTerminal(command("stty", "size"))).terminal(), "40 100\r\n")
	spec := command("stty", "size")
	spec.Terminal = &pb.TerminalSize{}
	wantText(t, "the default size", g.complete(t, spec).terminal(), "24 80\r\n")
}

func (g terminalCases) LastResizeWins(t *testing.T) {
	call := g.exec(t, onTerminal(script(`stty -echo; echo ready; read -r line; stty size`)))
	call.until(t, "the program", func(out *outcome) bool { return out.terminal() == "ready\r\n" })
	for rows := range uint32(20) {
		call.resize(10+rows, 50)
	}
	call.resize(33, 132)
	call.input([]byte("\n"), 1)
	out := call.wait(t)
	wantText(t, "the terminal", out.terminal(), "ready\r\n33 132\r\n")
	if n := len(out.resized); n == 0 || out.resized[n-1].Size.GetRows() != 33 || out.resized[n-1].Size.GetColumns() != 132 {
		t.Errorf("resized events %v, want the last to be 33 x 132", out.resized)
	}
	for _, resized := range out.resized {
		// The first size may be told at the stream's start.
		if resized.Size.GetRows() != 40 && resized.Offset != uint64(len("ready\r\n")) {
			t.Errorf("resized at offset %d, want %d", resized.Offset, len("ready\r\n"))
		}
	}
}

func (g terminalCases) ResizeIsSignalledToTheProgram(t *testing.T) {
	call := g.exec(t, onTerminal(script(`trap 'stty size; exit 0' WINCH; echo ready; while :; do :; done`)))
	call.until(t, "the program", func(out *outcome) bool { return out.terminal() == "ready\r\n" })
	call.resize(50, 60)
	wantText(t, "the terminal", call.wait(t).terminal(), "ready\r\n50 60\r\n")
}

func (g terminalCases) ControlCGoesThroughTheLineDiscipline(t *testing.T) {
	call := g.exec(t, onTerminal(script(`trap 'echo caught; exit 5' INT; echo ready; while :; do :; done`)))
	call.until(t, "the program", func(out *outcome) bool { return out.terminal() == "ready\r\n" })
	call.input([]byte{3}, 1)
	out := call.wait(t)
	wantExitCode(t, out.exit, 5)
	wantText(t, "the terminal", out.terminal(), "ready\r\n^Ccaught\r\n")
}

func (g terminalCases) InputIsEchoedAndEndsWithVEOF(t *testing.T) {
	call := g.exec(t, onTerminal(command("cat")))
	call.input([]byte("a line\n"), 7)
	call.closeInput()
	out := call.wait(t)
	wantExitCode(t, out.exit, 0)
	wantText(t, "the terminal", out.terminal(), "a line\r\na line\r\n")
}

func (g terminalCases) VEOFIsTheCharacterThatTheTerminalHas(t *testing.T) {
	call := g.exec(t, onTerminal(script(`stty eof '^X' -echo; echo ready; cat; echo end`)))
	call.until(t, "the program", func(out *outcome) bool { return out.terminal() == "ready\r\n" })
	call.closeInput()
	wantText(t, "the terminal", call.wait(t).terminal(), "ready\r\nend\r\n")
}

func (g terminalCases) HangUpEndsAProgram(t *testing.T) {
	call := g.exec(t, onTerminal(script(`echo ready; exec sleep 300`)))
	call.until(t, "the program", func(out *outcome) bool { return out.terminal() == "ready\r\n" })
	call.signal(1)
	wantSignal(t, call.wait(t).exit, 1)
}

func (g terminalCases) HangUpCanBeCaught(t *testing.T) {
	dir := g.folder(t)
	call := g.exec(t, onTerminal(script(`trap ': >"$1/hung-up"; exit 6' HUP; echo ready; while :; do :; done`, dir)))
	call.until(t, "the program", func(out *outcome) bool { return out.terminal() == "ready\r\n" })
	call.signal(1)
	wantExitCode(t, call.wait(t).exit, 6)
	if !g.exists(t, dir+"/hung-up") {
		t.Error("the program did not get SIGHUP")
	}
}

func (g terminalCases) OutputIsWholeAtTheEnd(t *testing.T) {
	want := strings.ReplaceAll(numbers(5000), "\n", "\r\n")
	for range g.amount(30) {
		if out := g.complete(t, onTerminal(command("seq", "1", "5000"))); out.terminal() != want {
			t.Fatalf("%v, want %s", out, excerpt(want))
		}
	}
}

func (g terminalCases) RawTerminalCarriesBytesExactly(t *testing.T) {
	data := pattern(g.amount(1 << 20))
	call := g.exec(t, onTerminal(script(`stty raw -echo; echo ready; head -c "$1"`, fmt.Sprint(len(data)))))
	call.until(t, "the program", func(out *outcome) bool { return out.terminal() == "ready\n" })
	feed(t, call, data, 64<<10)
	wantText(t, "the terminal", call.wait(t).terminal(), "ready\n"+string(data))
}

func (g terminalCases) ExitArrivesThoughABackgroundChildHoldsTheTerminal(t *testing.T) {
	dir := g.folder(t)
	call := g.exec(t, onTerminal(script(`trap '' HUP; sleep 300 & echo $! >"$1/pid"; echo last; exit 4`, dir)))
	out := call.wait(t)
	child := g.sh(t, `cat "$1/pid"`, dir)
	g.killLater(t, child)
	wantExitCode(t, out.exit, 4)
	wantText(t, "the terminal", out.terminal(), "last\r\n")
}

// A program that closes its descriptors before it exits, as cat does, must not be
// hung up for it.
func (g terminalCases) ProgramMayCloseItsTerminalAndOpenItAgain(t *testing.T) {
	out := g.complete(t, onTerminal(script(`echo before; exec 0<&- 1>&- 2>&-; sleep 0.5; exec >/dev/tty; echo after; exit 3`)))
	wantExitCode(t, out.exit, 3)
	wantText(t, "the terminal", out.terminal(), "before\r\nafter\r\n")
}

func (g terminalCases) TimeOutEndsTheTerminalsProcess(t *testing.T) {
	spec := onTerminal(script(`trap '' TERM HUP; while :; do sleep 0.1; done`))
	out := g.complete(t, limited(spec, 300*time.Millisecond, 200*time.Millisecond))
	wantSignal(t, out.exit, 9)
}

func (g terminalCases) ProcessWithoutATerminalHasNoSize(t *testing.T) {
	call := g.exec(t, command("sleep", "300"))
	call.resize(10, 10)
	want := refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NO_SUCH_STREAM}
	wantRefusal(t, call.failure(t), want)
}

func (g terminalCases) SizeOutOfRangeIsRefused(t *testing.T) {
	call := g.exec(t, onTerminal(command("sleep", "300")))
	call.resize(70_000, 10)
	wantRefusal(t, call.failure(t), badField("resize.rows"))
}

func (g terminalCases) ProcessDiesWithItsClientWhereAskedFor(t *testing.T) {
	spec := onTerminal(script(`trap '' HUP; while :; do sleep 0.1; done`))
	spec.OnDisconnect, spec.KillGrace = pb.OnDisconnect_ON_DISCONNECT_KILL, durationpb.New(0)
	call := g.execStart(t, killedAtOnce(spec))
	pid := fmt.Sprint(call.out.started.Pid)
	call.end()
	eventually(t, "the process dies", func() bool { return !g.alive(t, pid) })
}
