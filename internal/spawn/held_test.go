package spawn

import (
	"strings"
	"sync"
	"syscall"
	"testing"
)

// hold has a command be held while it starts, as where the kernel has no close_range(2).
func hold(s *Spawner, cmd *Command) {
	s.closeRange = false
	score(cmd)
}

// score gives a command an oom_score_adj other than guestd's: raised, which needs no rights.
func score(cmd *Command) {
	own := ownOOMScoreAdj() + 1
	cmd.OOMScoreAdj = &own
}

func ownOOMScoreAdj() int {
	own, err := openOwnOOMScore()
	if err != nil {
		panic(err)
	}
	defer own.file.Close()
	return own.read()
}

// A signal that comes between a child's PTRACE_TRACEME and its exec would stop it there, also
// one that is ignored: with nobody to let it go, as its parent waits for the exec.
func TestSignalsBeforeExecDoNotStopTheStart(t *testing.T) {
	s := newSpawner(t, Config{})
	stop := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, pid := range childPIDs() {
				for range 40 {
					_ = syscall.Kill(pid, syscall.SIGWINCH)
				}
			}
		}
	})
	for range 500 {
		cmd := command(t, "true")
		hold(s, &cmd)
		c, err := s.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		<-c.Done()
		if st := c.Status(); st.Signal != 0 || st.Code != 0 {
			t.Errorf("ended with %+v", st)
		}
		c.Release()
	}
	close(stop)
	sender.Wait()
}

func TestHeldChildHasNoSignalsBlocked(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		cmd := command(t, "grep", "SigBlk", "/proc/self/status")
		hold(s, &cmd)
		if got := strings.Fields(output(t, s, cmd)); len(got) != 2 || strings.Trim(got[1], "0") != "" {
			t.Errorf("signals: %q", got)
		}
	})
}
