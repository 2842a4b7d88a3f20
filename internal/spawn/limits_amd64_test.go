package spawn

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Lower limits need no right, whoever they are for, and are there before the first instruction.
// That its user has more processes already than it may have does not keep a command from starting.
func TestLimitsOfAnotherUser(t *testing.T) {
	acc := user(t)
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		for range 3 {
			other := command(t, "sleep", "1000")
			other.Account = acc
			start(t, s, other)
		}
		before := len(s.Degraded())
		for name, change := range map[string]func(*Command){
			"plain": func(*Command) {}, "with a score": score, "held": func(c *Command) { hold(s, c) },
		} {
			cmd := command(t, "/bin/sh", "-c", "trap 'echo $made; exit 0' EXIT; made=none; ulimit -n; ulimit -Hn; ulimit -c; ulimit -t; (exit 0); made=one")
			cmd.Account = acc
			cmd.Rlimits = []Rlimit{
				{unix.RLIMIT_NOFILE, 100, 200}, {unix.RLIMIT_CORE, 0, 0}, {unix.RLIMIT_CPU, 3, 4}, {unix.RLIMIT_NPROC, 2, 2},
			}
			change(&cmd)
			got := strings.Fields(output(t, s, cmd))
			if want := []string{"100", "200", "0", "3", "none"}; !slices.Equal(got, want) {
				t.Errorf("%s: limits and children %q, want %q", name, got, want)
			}
		}
		if got := s.Degraded()[before:]; len(got) > 0 {
			t.Errorf("Degraded grew by %q", got)
		}
	})
}

// A hard limit above guestd's own takes a right: with it the child has the limit, without it keeps
// what it has, and that is told.
func TestRaisingLimits(t *testing.T) {
	acc := user(t)
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &own); err != nil {
		t.Fatal(err)
	}
	if own.Max == unix.RLIM_INFINITY { // and so nothing is above it
		own.Max = 1 << 40
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: min(own.Cur, own.Max), Max: own.Max}); err != nil {
			t.Fatal(err)
		}
	}
	above := Rlimit{unix.RLIMIT_MEMLOCK, own.Max, own.Max + 4096}
	err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: own.Cur, Max: above.Hard}, nil)
	allowed := err == nil
	if allowed {
		defer func() { _ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &own) }()
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &own); err != nil {
			t.Fatal(err)
		}
	}
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		before := len(s.Degraded())
		for range 2 {
			cmd := command(t, "grep", "locked memory", "/proc/self/limits")
			cmd.Account, cmd.Rlimits = acc, []Rlimit{above}
			hard := strings.Fields(output(t, s, cmd))[4]
			if want := map[bool]uint64{false: own.Max, true: above.Hard}[allowed]; hard != fmt.Sprint(want) {
				t.Errorf("hard limit %s, want %d", hard, want)
			}
		}
		if got := s.Degraded()[before:]; len(got) != map[bool]int{false: 1, true: 0}[allowed] {
			t.Errorf("raising is allowed: %v; Degraded grew by %q", allowed, got)
		}
	})
}

// What guestd ignores, as after nohup, its children do not.
func TestNoSignalIsIgnored(t *testing.T) {
	jobControl := []unix.Signal{unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} // of which os/signal does not know
	for _, sig := range append(jobControl, unix.SIGHUP, unix.SIGUSR2) {
		var before sigaction
		if err := setAction(uintptr(sig), nil, &before); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(jobControl, sig) { // as a shell without job control starts what is in its background
			if err := setAction(uintptr(sig), &sigaction{handler: sigIgnore}, nil); err != nil {
				t.Fatal(err)
			}
		} else {
			signal.Ignore(sig)
		}
		defer func() {
			signal.Notify(make(chan os.Signal, 1), sig) // or os/signal would take it for ignored
			signal.Reset(sig)
			if err := setAction(uintptr(sig), &before, nil); err != nil {
				t.Error(err)
			}
		}()
	}
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		for _, change := range []func(*Command){func(*Command) {}, score, func(c *Command) { hold(s, c) }} {
			cmd := command(t, "grep", "SigIgn", "/proc/self/status")
			change(&cmd)
			if got := strings.Fields(output(t, s, cmd)); len(got) != 2 || strings.Trim(got[1], "0") != "" {
				t.Errorf("signals: %q", got)
			}
		}
	})
}

// What stops a child before its exec stops nobody for good: SIGCONT lets it go on, and none that has no
// tracer waits for one.
func TestStopsBeforeExecAreNotForEver(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		quit := make(chan struct{})
		var sender sync.WaitGroup
		sender.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
				}
				for _, pid := range childPIDs() {
					for _, sig := range []syscall.Signal{syscall.SIGTRAP, syscall.SIGSTOP, syscall.SIGCONT} {
						_ = syscall.Kill(pid, sig)
					}
				}
			}
		})
		for range 150 {
			cmd := command(t, "true")
			score(&cmd)
			c, err := s.Start(cmd)
			if err != nil {
				t.Error(err)
				break
			}
			<-c.Done()
			if st := c.Status(); st.Signal != syscall.SIGTRAP && (st.Signal != 0 || st.Code != 0) {
				t.Errorf("ended with %+v", st)
			}
			c.Release()
		}
		close(quit)
		sender.Wait()
		for _, pid := range childPIDs() {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	})
}

// A child that shares guestd's memory until its exec has a score of its own.
func TestScoreIsTheChildsAlone(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		before := ownOOMScoreAdj()
		for range 3 {
			cmd := command(t, "cat", "/proc/self/oom_score_adj")
			score(&cmd)
			if got, want := output(t, s, cmd), fmt.Sprintln(before+1); got != want {
				t.Errorf("the child has %s, want %s", got, want)
			}
			if now := ownOOMScoreAdj(); now != before {
				t.Errorf("guestd has %d now, and had %d", now, before)
			}
		}
	})
}
