package spawn

import (
	"os"
	"syscall"
	"testing"
	"time"
)

func TestExitCodeAndSignalAreTold(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		for _, tc := range []struct {
			script string
			code   int
			signal syscall.Signal
		}{
			{"exit 0", 0, 0},
			{"exit 7", 7, 0},
			{"exit 255", 255, 0},
			{"kill -TERM $$", -1, syscall.SIGTERM},
			{"kill -KILL $$", -1, syscall.SIGKILL},
		} {
			c := start(t, s, command(t, "/bin/sh", "-c", tc.script))
			<-c.Done()
			if st := c.Status(); st.Code != tc.code || st.Signal != tc.signal {
				t.Errorf("%q: %+v, want code %d signal %d", tc.script, st, tc.code, tc.signal)
			}
			if st := c.Status(); st.PeakMemory <= 0 || st.Ended.After(time.Now()) || st.Ended.IsZero() {
				t.Errorf("%q: implausible %+v", tc.script, st)
			}
		}
	})
}

func TestSignalReachesTheLeader(t *testing.T) {
	s := newSpawner(t, Config{})
	c := start(t, s, command(t, "sleep", "1000"))
	if err := c.Signal(syscall.SIGUSR1, Leader); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if st := c.Status(); st.Signal != syscall.SIGUSR1 {
		t.Errorf("ended by %v, want SIGUSR1", st.Signal)
	}
	for _, scope := range []Scope{Leader, Tree} {
		if err := c.Signal(syscall.SIGTERM, scope); err != os.ErrProcessDone {
			t.Errorf("signalling %v after the end: %v, want os.ErrProcessDone", scope, err)
		}
	}
	if err := c.KillTree(); err != nil {
		t.Errorf("killing what is gone: %v", err)
	}
}
