package spawn

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"guestd.internal/test/need"
)

func TestAChildStartsWithADaemonsNothing(t *testing.T) {
	t.Setenv("SPAWN_TEST_SECRET", "guestd's own")
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		var id string
		r := reportOf(t, s, func(c *Command) {
			c.Env = []string{"A=1", "B=2", "A=3", IDVariable + "=forged"}
			c.Dir, id = "/usr", c.ID
		})
		if diff := cmp.Diff([]string{IDVariable + "=" + id, "B=2", "A=3"}, r.Env); diff != "" {
			t.Errorf("environment (-want +got):\n%s", diff)
		}
		if r.SID != r.PID || r.PGID != r.PID {
			t.Errorf("pid %d has session %d and group %d, want its own", r.PID, r.SID, r.PGID)
		}
		if r.Dir != "/usr" {
			t.Errorf("working directory %s", r.Dir)
		}
		if r.Umask != "0022" || r.OOMScoreAdj < 0 {
			t.Errorf("umask %s, oom_score_adj %d", r.Umask, r.OOMScoreAdj)
		}
	})
}

// Signals are looked at from a program that handles none itself.
func TestAChildHasDefaultSignals(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		text := output(t, s, command(t, "grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"))
		for line := range strings.Lines(text) {
			_, mask, _ := strings.Cut(line, ":")
			if strings.Trim(mask, "\t\n 0") != "" {
				t.Errorf("signals: %s", line)
			}
		}
	})
}

// Some of guestd's threads are woken up late on purpose; what is started from them is not.
func TestTimerSlackIsThatOfTheMainThread(t *testing.T) {
	main, err := os.ReadFile("/proc/self/timerslack_ns")
	if err != nil {
		t.Skip("the kernel does not tell timer slacks (Linux before 4.6): ", err)
	}
	umask := uint32(0o027)
	var held Command
	score(&held)
	for name, cmd := range map[string]Command{
		"plain":                   {},
		"from a fresh thread":     {Umask: &umask},
		"with a score of its own": held,
	} {
		t.Run(name, func(t *testing.T) {
			eachTreeMode(t, func(t *testing.T, s *Spawner) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				const late = 3_000_000
				if err := unix.Prctl(unix.PR_SET_TIMERSLACK, late, 0, 0, 0); err != nil {
					t.Fatal(err)
				}
				asked := command(t, "cat", "/proc/self/timerslack_ns")
				asked.Umask, asked.OOMScoreAdj = cmd.Umask, cmd.OOMScoreAdj
				if got := output(t, s, asked); got != string(main) {
					t.Errorf("the child has %s, want %s", strings.TrimSpace(got), main)
				}
			})
		})
	}
}

// Whoever starts guestd may give it a nice value, which is its own.
func TestNiceValueIsNotInherited(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Skip(t, "to lower a nice value needs root; try: sudo go test")
	}
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		if s.nice != ownNice() {
			t.Errorf("guestd's nice value is %d, and taken for %d", ownNice(), s.nice)
		}
		s.nice = 7
		done := make(chan struct{})
		go func() { // whose thread ends with it
			defer close(done)
			runtime.LockOSThread()
			if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 7); err != nil {
				t.Error(err)
				return
			}
			if got := output(t, s, command(t, "nice")); got != "0\n" {
				t.Errorf("the child has nice value %s", got)
			}
		}()
		<-done
	})
}

func TestNoDescriptorLeaks(t *testing.T) {
	for range 50 { // as inherited by guestd: not close-on-exec
		fd, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
	}
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		for range 20 {
			start(t, s, command(t, "sleep", "1000"))
		}
		got := strings.Split(strings.TrimSpace(output(t, s, helper(t, "fds"))), "\n")
		slices.Sort(got)
		if len(got) != 3 || got[0] != "0 /dev/null" || got[2] != "2 /dev/null" {
			t.Errorf("the child has descriptors %q, want /dev/null, a file and /dev/null", got)
		}
	})
}

// The Go runtime raises its own soft limit of open files. Children must not get
// that: select(2) fails with descriptors over 1,023.
func TestLimitsAreThoseGuestdWasStartedWith(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		// The inner start is the one looked at: the outer sets up a guestd that was
		// started with a low limit.
		got := output(t, s, command(t, "/bin/sh", "-c", fmt.Sprintf("ulimit -Sn 777; exec %s -test.run '^TestInnerLimit$' -test.v", exe)))
		if !strings.Contains(got, "inner soft limit 777\n") {
			t.Errorf("%s", got)
		}
	})
}

func TestInnerLimit(t *testing.T) {
	if os.Getenv(IDVariable) == "" {
		t.Skip("runs from TestLimitsAreThoseGuestdWasStartedWith")
	}
	s := newSpawner(t, Config{})
	fmt.Print("inner soft limit ", output(t, s, command(t, "sh", "-c", "ulimit -Sn")))
}

func TestSettingsOnRequest(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		before := reportOf(t, s, nil)
		umask, nice, oom := uint32(0o077), before.Nice+5, before.OOMScoreAdj+100
		r := reportOf(t, s, func(c *Command) {
			c.Umask, c.Nice, c.OOMScoreAdj = &umask, &nice, &oom
			c.Rlimits = []Rlimit{
				{Resource: unix.RLIMIT_NOFILE, Soft: 100, Hard: 200},
				{Resource: unix.RLIMIT_CORE, Soft: 0, Hard: 0},
			}
		})
		if r.Umask != "0077" || r.Nice != nice || r.OOMScoreAdj != oom {
			t.Errorf("umask %s, nice %d, oom_score_adj %d", r.Umask, r.Nice, r.OOMScoreAdj)
		}
		if r.NoFile[1] != 200 || r.Core != [2]uint64{} {
			t.Errorf("limits: files %v, core %v", r.NoFile, r.Core)
		}
		// None of it stays behind, with guestd or with the next child.
		after := reportOf(t, s, nil)
		if after.Umask != "0022" || after.Nice != before.Nice || after.OOMScoreAdj != before.OOMScoreAdj || after.NoFile != before.NoFile {
			t.Errorf("the next child got %+v, the one before %+v", after, before)
		}
	})
}

// What a child must have, it has before its first instruction: the shell's very
// first builtin sees it.
func TestLimitsAreThereFromTheFirstInstruction(t *testing.T) {
	s := newSpawner(t, Config{})
	for range 50 {
		cmd := command(t, "/bin/sh", "-c", "ulimit -n")
		cmd.Rlimits = []Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 123, Hard: 123}}
		if got := output(t, s, cmd); got != "123\n" {
			t.Fatalf("limit %q, want 123", got)
		}
	}
}

// A daemon that protects itself from the out-of-memory killer must not protect
// its children.
func TestOOMScoreIsNotInherited(t *testing.T) {
	s := newSpawner(t, Config{})
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-1"), 0); err != nil {
		t.Skip("oom_score_adj may not be lowered here: needs CAP_SYS_RESOURCE")
	}
	defer os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0)
	if r := reportOf(t, s, nil); r.OOMScoreAdj != 0 {
		t.Errorf("oom_score_adj %d, want 0", r.OOMScoreAdj)
	}
}

// The same where oom_score_adj may not be lowered: guestd is made to believe that
// it has a negative one, and children inherit one that is not 0.
func TestOOMScoreIsWrittenWhileHeld(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		believed, err := os.Open(write(t, filepath.Join(t.TempDir(), "oom_score_adj"), "-1000\n", 0o644))
		if err != nil {
			t.Fatal(err)
		}
		s.oomScore.file.Close()
		s.oomScore.file = believed
		if err := os.WriteFile("/proc/self/oom_score_adj", []byte("300"), 0); err != nil {
			t.Fatal(err)
		}
		defer os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0)
		for range 20 {
			if got := output(t, s, command(t, "cat", "/proc/self/oom_score_adj")); got != "0\n" {
				t.Fatalf("oom_score_adj %q, want 0", got)
			}
		}
	})
}

// A child that is killed while it is held must neither block its start nor be
// lost: its end is told as any other.
func TestKilledWhileHeld(t *testing.T) {
	s := newSpawner(t, Config{})
	stop := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, pid := range childPIDs() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	killed := 0
	for range 300 {
		cmd := command(t, "true")
		hold(s, &cmd)
		c, err := s.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		<-c.Done()
		switch st := c.Status(); {
		case st.Signal == syscall.SIGKILL:
			killed++
		case st.Code != 0:
			t.Errorf("ended with %+v", st)
		}
		c.Release()
	}
	close(stop)
	killer.Wait()
	if killed == 0 {
		t.Error("none was killed: nothing was tested")
	}
}

func TestAnExtraDescriptor(t *testing.T) {
	s := newSpawner(t, Config{})
	extra, err := os.Open(write(t, filepath.Join(t.TempDir(), "script"), "echo from descriptor 3", 0o644))
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	cmd := command(t, "sh", "/proc/self/fd/3")
	cmd.Extra = extra
	if got := output(t, s, cmd); got != "from descriptor 3\n" {
		t.Errorf("got %q", got)
	}
}

func TestRefusedRightsAreNotedOnce(t *testing.T) {
	if os.WriteFile("/proc/self/oom_score_adj", []byte("-1"), 0) == nil {
		_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0)
		t.Skip("nothing is refused here")
	}
	s := newSpawner(t, Config{})
	before := len(s.Degraded())
	lower := -500
	for range 3 {
		r := reportOf(t, s, func(c *Command) { c.OOMScoreAdj = &lower })
		if r.OOMScoreAdj != 0 {
			t.Fatalf("oom_score_adj %d", r.OOMScoreAdj)
		}
	}
	if got := s.Degraded()[before:]; len(got) != 1 || !strings.Contains(got[0], "oom_score_adj") {
		t.Errorf("Degraded grew by %q, want one line about oom_score_adj", got)
	}
}

func TestAnotherUser(t *testing.T) {
	acc := user(t)
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		copyOfUs := filepath.Join(openDir(t), "helper")
		exe, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		write(t, copyOfUs, string(exe), 0o755)
		r := reportOf(t, s, func(c *Command) {
			c.Account = acc
			c.Args[0] = copyOfUs
		})
		if r.UID != int(acc.UID) || r.GID != int(acc.GID) || strings.Trim(r.CapEff, "0") != "" {
			t.Errorf("uid %d gid %d capabilities %s", r.UID, r.GID, r.CapEff)
		}
		slices.Sort(r.Groups)
		if !slices.Equal(r.Groups, []int{54322, 54323}) {
			t.Errorf("groups %v", r.Groups)
		}
	})
}
