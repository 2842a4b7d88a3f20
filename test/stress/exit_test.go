package stress

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"guestd.internal/client"
)

// A child is what a command leaves behind.
type child struct {
	name, script string
	// outlives says whether it does outlive its leader: with the terminal gone, those who
	// are left in its foreground are hung up.
	outlives, outlivesTerminal bool
}

// The leader waits until its child has come as far as it is to: $R is then there.
var children = []child{
	{"none", "", false, false},
	{"holds stdout", "sleep 1000 & ", true, false},
	{"setsid", `setsid sh -c ': >"$R"; exec sleep 1000' & ` + ready, true, true},
	{"daemon", `(setsid sh -c ': >"$R"; exec sleep 1000' >/dev/null 2>&1 </dev/null &) ; ` + ready, true, true},
	{"ignores TERM", `(trap '' TERM HUP; : >"$R"; while :; do sleep 1000; done) & ` + ready, true, true},
	{"writes", `(trap '' TERM HUP; : >"$R"; while :; do echo noise; done) & ` + ready, true, true},
}

const ready = `until [ -e "$R" ]; do sleep 0.01; done; `

// An ending is how a leader ends.
type ending struct {
	name, script string
	timeout      time.Duration
	right        func(*client.ExitStatus) bool
}

var endings = []ending{
	{"exits", "exit 7", 0, func(s *client.ExitStatus) bool { return s.ExitCode == 7 && !s.TimedOut }},
	{"is killed", "kill -9 $$", 0, func(s *client.ExitStatus) bool { return s.Signal == syscall.SIGKILL && !s.TimedOut }},
	// Long enough for the output to be written on a machine that is busy.
	{"times out", "exec sleep 1000", 4 * time.Second, func(s *client.ExitStatus) bool { return s.TimedOut && s.Signal != 0 }},
}

// kinds are how a command is connected.
var kinds = []struct {
	name  string
	apply func(*client.Cmd)
}{
	{"pipe", func(*client.Cmd) {}},
	{"merged", func(c *client.Cmd) { c.Merge = true }},
	{"terminal", func(c *client.Cmd) { c.Terminal = &client.Size{} }},
}

// TestExitMatrix ends leaders in every way, with every kind of child left, connected in
// every way, many at once and again and again: the exit comes with all that the
// leader wrote, survivors are who should survive, and a kill leaves nobody.
func TestExitMatrix(t *testing.T) {
	g := startGuestd(t)
	c := g.client
	before := g.settle(t)
	var running sync.WaitGroup
	slots := make(chan struct{}, 16)
	count := rounds(2, 60)
	for round := range count {
		for _, left := range children {
			for _, end := range endings {
				for kind := range kinds {
					slots <- struct{}{}
					running.Go(func() {
						defer func() { <-slots }()
						if err := checkEnd(t, c, left, end, kind); err != nil {
							t.Errorf("round %d: %s, %s, %s: %v", round, left.name, end.name, kinds[kind].name, err)
						}
					})
				}
			}
		}
	}
	running.Wait()
	t.Logf("%d ends", count*len(children)*len(endings)*len(kinds))
	// A daemon's end is noticed when somebody looks for it.
	eventually(t, "the daemons are given back", func() bool { return g.descriptors(t) <= before.descriptors })
	g.gaveBack(t, before)
}

func checkEnd(t *testing.T, c *client.Client, left child, end ending, kind int) error {
	// stdout's tail is more than one read, right before the end.
	cmd := c.Shell(left.script + "seq 1 5000; printf LAST; " + end.script)
	kinds[kind].apply(cmd)
	cmd.Env = []string{"R=" + filepath.Join(t.TempDir(), "ready")}
	cmd.Timeout, cmd.KillGrace = end.timeout, 100*time.Millisecond
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run(within(t, time.Minute))
	status := cmd.Status()
	if status == nil || !end.right(status) {
		return fmt.Errorf("ended with %v", err)
	}
	text := strings.ReplaceAll(strings.ReplaceAll(out.String(), "\r", ""), "noise\n", "")
	if n := strings.Count(text, "\n"); n != 5000 || !strings.Contains(text, "LAST") {
		return fmt.Errorf("%d lines, ending in %q", n, text[max(0, len(text)-20):])
	}
	outlives := left.outlives && end.timeout == 0
	if kinds[kind].name == "terminal" {
		outlives = left.outlivesTerminal && end.timeout == 0
	}
	// A process that is just executing another program has no environment for a moment.
	for deadline := time.Now().Add(10 * time.Second); outlives && len(marked(cmd.ID())) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("the child is gone, and nobody has killed it")
		}
	}
	err = c.SignalProcess(within(t, time.Minute), cmd.ID(), syscall.SIGKILL)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing what is left: %w", err)
	}
	for deadline := time.Now().Add(30 * time.Second); len(marked(cmd.ID())) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%v survive", marked(cmd.ID()))
		}
	}
	return nil
}

// marked returns the living processes of a process's tree, which all have its id in
// their environment.
func marked(id string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		data, _ := os.ReadFile(file)
		if bytes.Contains(data, []byte("GUESTD_PROCESS_ID="+id+"\x00")) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}
