package proc

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"guestd.internal/internal/spawn"
	"guestd.internal/test/need"
)

func inTerminal(line string, size Size) Spec {
	spec := shell(line)
	spec.Terminal = &size
	return spec
}

func TestTerminalIsReal(t *testing.T) {
	table := newTable(t)
	h := exec(t, table, inTerminal("tty; stty size; echo $TERM; test -t 0 && test -t 1 && test -t 2 && : </dev/tty && echo ok; ps -o tpgid=,pgid= -p $$", Size{Rows: 40, Cols: 100}))
	lines := strings.Split(strings.ReplaceAll(h.text(Terminal), "\r", ""), "\n")
	if len(lines) < 5 || !strings.HasPrefix(lines[0], "/dev/pts/") || lines[1] != "40 100" || lines[2] != "xterm-256color" || lines[3] != "ok" {
		t.Fatalf("got %q", lines)
	}
	if f := strings.Fields(lines[4]); len(f) != 2 || f[0] != f[1] {
		t.Fatalf("not in the foreground: %q", lines[4])
	}
}

func TestLastResizeWinsAndReplaysAtItsOffset(t *testing.T) {
	table := newTable(t)
	p, a, err := table.Exec(t.Context(), inTerminal("stty -echo; echo one; read x; stty size; read x", Size{}), AttachOptions{ReaderID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "one", func() bool { return p.Info().Output[0].Offset == 5 })
	for _, size := range []Size{{Rows: 30, Cols: 90}, {Rows: 31, Cols: 91, XPixels: 5, YPixels: 6}} {
		if err := p.Resize(size); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.WriteInput(t.Context(), 0, []byte("\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two", func() bool { return p.Info().Output[0].Offset == 12 })
	if err := p.Resize(Size{Rows: 50, Cols: 50}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.AppendInput(t.Context(), []byte("\n")); err != nil {
		t.Fatal(err)
	}
	h := listen(t, a)
	if h.text(Terminal) != "one\r\n31 91\r\n" {
		t.Fatalf("got %q", h.text(Terminal))
	}
	want := []Resized{{0, Size{Rows: 24, Cols: 80}}, {5, Size{31, 91, 5, 6}}, {12, Size{Rows: 50, Cols: 50}}}
	if diff := cmp.Diff(want, h.resized); diff != "" {
		t.Fatal(diff)
	}
	a, err = p.Attach(AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, listen(t, a).resized); diff != "" {
		t.Fatalf("replayed: %s", diff)
	}
	if got := *p.Info().Terminal; got.Rows != 50 {
		t.Fatalf("size is %+v", got)
	}
	if h := exec(t, table, shell("true")); h.exit.Code != 0 {
		t.Fatal(h.exit)
	}
}

func TestCloseInputOnATerminalIsAnEndOfFileAnywhereInALine(t *testing.T) {
	table := newTable(t)
	for text, kept := range map[string]string{"": "", "whole\n": "whole\n", "begun": "begun", "a\nb": "a\nb",
		"killed\x15": "", "a\nkilled\x15": "a\n", "killed\x15begun": "begun", "ü\x7f": "", "one two\x17\x17": "", "one größer\x17": "one ",
		"ended\x04": "ended", "\x16\x15": "\x15"} {
		// The second cat must not meet an end of file that was typed for the first.
		p, a, err := table.Exec(t.Context(), inTerminal("stty -echo; echo ready; cat; echo done; cat", Size{}), AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "ready", func() bool { return p.Info().Output[0].Offset >= 7 })
		if _, err := p.WriteInput(t.Context(), 0, []byte(text)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // repeating it does no harm
			if err := p.CloseInput(uint64(len(text))); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the first cat's end", func() bool { return p.Info().Output[0].Offset >= uint64(len("ready\n\rdone\n\r")) })
		if _, err := p.WriteInput(t.Context(), uint64(len(text)), []byte("more\n")); err != nil {
			t.Fatal(err)
		}
		if err := p.EndInput(); err != nil {
			t.Fatal(err)
		}
		h := listen(t, a)
		if got := strings.ReplaceAll(h.text(Terminal), "\r", ""); got != "ready\n"+kept+"done\nmore\n" {
			t.Errorf("%q: got %q", text, got)
		}
	}
}

func TestHangUpEndsWhoeverReadsTheTerminal(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Skip(t, "needs root, to hang up on a program that ignores SIGHUP")
	}
	table := newTable(t)
	p, a, err := table.Exec(t.Context(), inTerminal("trap '' HUP; echo ready; cat; exit 5", Size{}), AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready", func() bool { return p.Info().Output[0].Offset >= 7 })
	if err := p.Signal(syscall.SIGHUP, spawn.Tree); err != nil {
		t.Fatal(err)
	}
	if h := listen(t, a); h.exit.Code != 5 {
		t.Fatalf("%+v, %q", h.exit, h.text(Terminal))
	}
}

func TestBackgroundJobKeepsItsTerminal(t *testing.T) {
	table := newTable(t)
	path := fifo(t)
	p, a, err := table.Exec(t.Context(), inTerminal("trap '' HUP; (read x <"+path+"; echo alive) & echo out", Size{}),
		AttachOptions{FollowAfterExit: true})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.settled:
	case <-within(t).Done():
		t.Fatal("no exit")
	}
	write(t, path, "go\n")
	h := listen(t, a)
	if got := strings.ReplaceAll(h.text(Terminal), "\r", ""); got != "out\nalive\n" {
		t.Fatalf("got %q", got)
	}
}

// TestProgramMayCloseItsTerminalAndOpenItAgain pins that a moment without any open
// slave, which reading the master tells as EIO, is not the terminal's end.
func TestProgramMayCloseItsTerminalAndOpenItAgain(t *testing.T) {
	table := newTable(t)
	got := exec(t, table, inTerminal(
		"t=$(tty); printf before; exec <&- >&- 2>&-; sleep 0.2; exec <$t >$t 2>&1; printf after; exit 3", Size{}))
	if got.exit.Signal != 0 || got.exit.Code != 3 || got.text(Terminal) != "beforeafter" {
		t.Errorf("%+v, %q; want exit code 3 and both words", got.exit, got.text(Terminal))
	}
}

func TestLoginShell(t *testing.T) {
	if shell := mustCurrent(t).Shell; strings.Contains(shell, "nologin") {
		need.Skip(t, "needs a user with a shell; this one has %s", shell)
	}
	table := newTable(t)
	p, a, err := table.Exec(t.Context(), Spec{LoginShell: true, Terminal: &Size{}}, AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.WriteInput(t.Context(), 0, []byte("echo $((6*7)); exit 9\n")); err != nil {
		t.Fatal(err)
	}
	if h := listen(t, a); h.exit.Code != 9 || !strings.Contains(h.text(Terminal), "42") {
		t.Fatalf("%+v, %q", h.exit, h.text(Terminal))
	}
}

func TestOnlyTerminalsAreResized(t *testing.T) {
	table := newTable(t)
	p, err := table.Start(t.Context(), shell("sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Resize(Size{}); !errors.Is(err, ErrNoTerminal) {
		t.Fatalf("got %v", err)
	}
}

// TestResizeMemoryIsBounded keeps the newest resizes.
func TestResizeMemoryIsBounded(t *testing.T) {
	term, err := openTerminal(Size{}, mustCurrent(t))
	if err != nil {
		t.Fatal(err)
	}
	defer term.slave.Close()
	defer term.master.Close()
	for i := range uint64(3 * maxResizes) {
		if err := term.resize(Size{Rows: uint16(i%1000) + 1}, func() uint64 { return i * 10 }); err != nil {
			t.Fatal(err)
		}
	}
	if len(term.resizes) != maxResizes || term.resizes[maxResizes-1].Offset != (3*maxResizes-1)*10 {
		t.Fatalf("%d kept, the last %+v", len(term.resizes), term.resizes[len(term.resizes)-1])
	}
	if now, next := term.sizeAt(term.resizes[5].Offset + 1); now != term.resizes[5] || next != term.resizes[6].Offset {
		t.Fatalf("%+v until %d", now, next)
	}
}

// TestMasterUnblocks pins that a pending read ends with its deadline and with
// Close, which it does not with creack/pty's own master.
func TestMasterUnblocks(t *testing.T) {
	term, err := openTerminal(Size{}, mustCurrent(t))
	if err != nil {
		t.Fatal(err)
	}
	defer term.slave.Close()
	read := make(chan error)
	go func() {
		for range 2 {
			_, err := term.master.Read(make([]byte, 1))
			read <- err
			_ = term.master.SetReadDeadline(time.Time{})
		}
	}()
	if err := term.master.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	<-read
	term.master.Close()
	<-read
}
