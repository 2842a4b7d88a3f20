package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"guestd.internal/internal/spawn"
)

// children are what a command may leave behind. Each waits for its child to be
// there, so that nothing depends on timing.
var children = map[string]string{
	"none":         "",
	"holds stdout": "sleep 1000 & ",
	"setsid":       "setsid sleep 1000 & ",
	"daemon":       "(setsid sleep 1000 >/dev/null 2>&1 </dev/null &) ; ",
	"ignores TERM": "(trap '' TERM HUP; while :; do sleep 1000; done) & ",
	"writes":       "(trap '' TERM HUP; while :; do echo noise; done) & ",
}

// TestExitMatrix ends leaders in three ways with all kinds of children left,
// with pipes, merged and in a terminal: the exit comes with all that the leader
// wrote, however long the children live, and a kill leaves nothing.
func TestExitMatrix(t *testing.T) {
	table := newTable(t)
	grace := 100 * time.Millisecond
	ends := map[string]struct {
		line  string
		check func(Exit) bool
	}{
		"exits":     {"exit 7", func(e Exit) bool { return e.Code == 7 && !e.TimedOut }},
		"is killed": {"kill -9 $$", func(e Exit) bool { return e.Signal == syscall.SIGKILL && e.Code == -1 && !e.TimedOut }},
		"times out": {"exec sleep 1000", func(e Exit) bool { return e.TimedOut && e.Signal != 0 }},
	}
	kinds := map[string]func(*Spec){
		"pipe":     func(*Spec) {},
		"merged":   func(s *Spec) { s.Merge = true },
		"terminal": func(s *Spec) { s.Terminal = &Size{} },
	}
	for childName, child := range children {
		for endName, end := range ends {
			for kindName, kind := range kinds {
				t.Run(childName+"/"+endName+"/"+kindName, func(t *testing.T) {
					t.Parallel()
					spec := shell(child + "seq 1 5000; printf LAST; " + end.line)
					spec.KillGrace = &grace
					kind(&spec)
					checkEnd(t, table, spec, endName == "times out", end.check)
				})
			}
		}
	}
}

func checkEnd(t *testing.T, table *Table, spec Spec, timesOut bool, check func(Exit) bool) {
	p, a, err := table.Exec(t.Context(), spec, AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	last := make(chan error, 1)
	if timesOut { // as soon as it has written all, however slow the machine is
		go func() {
			last <- waitFor(within(t), p, "LAST")
			p.timeOut()
		}()
	}
	h := listen(t, a)
	if timesOut {
		if err := <-last; err != nil {
			t.Fatal(err)
		}
	}
	if !check(*h.exit) {
		t.Errorf("ended %+v", h.exit)
	}
	stream := p.outputs[0].stream
	text := strings.ReplaceAll(strings.ReplaceAll(h.text(stream), "\r", ""), "noise\n", "")
	if n := strings.Count(text, "\n"); n != 5000 || !strings.Contains(text, "LAST") {
		t.Errorf("%d lines, ending in %q", n, text[max(0, len(text)-20):])
	}
	if err := p.Signal(syscall.SIGKILL, spawn.Tree); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	// Nothing of the tree is left to hold a stream.
	select {
	case <-p.done:
	case <-within(t).Done():
		t.Fatal("its streams are still held")
	}
}

// waitFor reads the process's first stream until text is there.
func waitFor(ctx context.Context, p *Process, text string) error {
	a, err := p.Attach(AttachOptions{})
	if err != nil {
		return err
	}
	defer a.Close()
	var seen []byte
	for !bytes.Contains(seen, []byte(text)) {
		event, err := a.Next(ctx)
		if err != nil {
			return err
		}
		if out, ok := event.(Output); ok {
			seen = append(seen[max(0, len(seen)-len(text)):], out.Data...)
			out.Release()
		}
	}
	return nil
}

// A tree that closes its output and goes on is given back after its end, though nobody
// tells of that.
func TestStraysAreGivenBack(t *testing.T) {
	table := newTable(t)
	p, err := table.Start(t.Context(), shell("setsid sleep 1000 >/dev/null 2>&1 & echo $!"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "its output is closed", func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
	if len(table.alive()) != 1 {
		t.Fatal("the tree was given up while it lives")
	}
	if err := p.Signal(syscall.SIGKILL, spawn.Tree); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is given back", func() bool { return len(table.alive()) == 0 })
}

// TestTailsSurviveLoad runs many short commands at once, each of which ends
// right after its output.
func TestTailsSurviveLoad(t *testing.T) {
	table := newTable(t)
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for worker := range 4 {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			for i := range rounds {
				size := 1 + (i*i*977+worker*40_000)%200_000
				line := fmt.Sprintf("head -c %d /dev/zero; printf END; head -c 70000 /dev/zero >&2", size)
				if i%3 == 0 {
					line = "sleep 1000 & " + line
				}
				p, a, err := table.Exec(t.Context(), shell(line), AttachOptions{})
				if err != nil {
					t.Fatal(err)
				}
				h := listen(t, a)
				if got := h.output[Stdout].Len(); got != size+3 || h.output[Stderr].Len() != 70000 {
					t.Fatalf("%d of %d bytes, %d on stderr", got, size+3, h.output[Stderr].Len())
				}
				_ = p.Signal(syscall.SIGKILL, spawn.Tree)
			}
		})
	}
}

func TestExitIsKnownWhileNobodyReads(t *testing.T) {
	table := newTable(t)
	p, a, err := table.Exec(t.Context(), shell("yes & sleep 0.1; exit 3"), AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	exit, err := p.Wait(within(t))
	if err != nil || exit.Code != 3 {
		t.Fatalf("%+v, %v", exit, err)
	}
	if info := p.Info(); info.State != Ended || info.Exit == nil || info.Exit.Code != 3 {
		t.Fatalf("%+v", info)
	}
}

func TestOutputAfterTheExitCanBeFollowed(t *testing.T) {
	table := newTable(t)
	path := fifo(t)
	p, a, err := table.Exec(t.Context(), shell("(read x; echo $x; echo later >&2) <"+path+" & echo now"),
		AttachOptions{FollowAfterExit: true})
	if err != nil {
		t.Fatal(err)
	}
	<-p.settled // what is written before the mark is no later output
	write(t, path, "then\n")
	h := listen(t, a)
	if h.text(Stdout) != "now\nthen\n" || h.text(Stderr) != "later\n" || h.afterEnd != len("then\nlater\n") {
		t.Fatalf("%q, %q, %d after the exit", h.text(Stdout), h.text(Stderr), h.afterEnd)
	}
}

func fifo(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/fifo"
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTimeoutRunsWhateverReadersDo(t *testing.T) {
	table := newTable(t)
	spec := shell("trap '' TERM; yes")
	grace := time.Duration(0)
	spec.Timeout, spec.KillGrace = 100*time.Millisecond, &grace
	p, a, err := table.Exec(t.Context(), spec, AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close() // never reads
	exit, err := p.Wait(within(t))
	if err != nil || !exit.TimedOut || exit.Signal != syscall.SIGKILL {
		t.Fatalf("%+v, %v", exit, err)
	}
}

// A process is over with the last of its tree, however much of the grace is left.
func TestTerminationEndsWithTheLastOfTheTree(t *testing.T) {
	table := newTable(t)
	spec := shell("sh -c 'trap \"sleep 0.2; exit\" TERM; echo ready; while :; do sleep 0.01; done' & trap exit TERM; wait")
	grace := time.Hour
	spec.KillGrace = &grace
	p, a, err := table.Exec(t.Context(), spec, AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := waitFor(within(t), p, "ready"); err != nil {
		t.Fatal(err)
	}
	p.timeOut()
	select {
	case <-p.done:
	case <-within(t).Done():
		t.Fatal("it is not over")
	}
}

func TestSignalsReachTheTreeOrTheLeader(t *testing.T) {
	table := newTable(t)
	p, a, err := table.Exec(t.Context(), shell("trap 'echo leader; exit' USR1; sh -c 'trap \"echo child; exit\" USR1; echo ready; while :; do :; done' & while :; do :; done"), AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready", func() bool { return p.Info().Output[0].Offset > 0 })
	if err := p.Signal(syscall.SIGUSR1, spawn.Leader); err != nil {
		t.Fatal(err)
	}
	if h := listen(t, a); h.text(Stdout) != "ready\nleader\n" {
		t.Fatalf("got %q", h.text(Stdout))
	}
	a, err = p.Attach(AttachOptions{FromNow: true, FollowAfterExit: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGUSR1, spawn.Tree); err != nil {
		t.Fatal(err)
	}
	if h := listen(t, a); h.text(Stdout) != "child\n" {
		t.Fatalf("got %q", h.text(Stdout))
	}
	var invalid *InvalidError
	if err := p.Signal(65, spawn.Tree); !errors.As(err, &invalid) {
		t.Fatalf("got %v", err)
	}
}
