package spawn

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/test/need"
)

func TestCloseKillsWhatIsLeft(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		file := filepath.Join(t.TempDir(), "pids")
		for range 3 {
			cmd := command(t, "/bin/sh", "-c", `trap "" TERM; setsid sh -c 'echo $$ >>$F; exec sleep 1000' & echo $$ >>$F; wait`)
			cmd.Env = append(cmd.Env, "F="+file)
			start(t, s, cmd)
		}
		pids := pidsIn(t, file, 6)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		awaitDead(t, pids)
		if s.cgroups != nil {
			if _, err := os.Stat(s.cgroups.path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the cgroup folder is still there: %v", err)
			}
		}
		if _, err := s.Start(command(t, "true")); !errors.Is(err, ErrClosed) {
			t.Errorf("starting after Close: %v, want ErrClosed", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("closing twice: %v", err)
		}
	})
}

// Starts race with Close: each either fails with ErrClosed or is killed.
func TestCloseWhileStarting(t *testing.T) {
	for range 10 {
		s := newSpawner(t, Config{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					c, err := s.Start(command(t, "sleep", "1000"))
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					defer func() { <-c.Done() }()
				}
			})
		}
		await(t, "children", func() bool { return len(s.unreleased()) > 4 })
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

func cgroupSpawner(t *testing.T) *Spawner {
	t.Helper()
	s := newSpawner(t, Config{})
	if s.cgroups == nil {
		need.Skip(t, "no writable cgroup v2 mount; try: mount -t cgroup2 none /sys/fs/cgroup")
	}
	return s
}

// awaitNoTrees waits until a Spawner has no folders but those that it has made in
// advance.
func awaitNoTrees(t *testing.T, s *Spawner) {
	t.Helper()
	await(t, "the cgroup folders to be removed", func() bool {
		return len(subfolders(s.cgroups.path)) <= len(s.cgroups.ready)
	})
}

func TestACgroupGoesWithItsLastProcess(t *testing.T) {
	s := cgroupSpawner(t)
	cmd, file := treeCommand(t, `setsid sh -c 'echo $$ >>$F; exec sleep 1000' & while [ ! -s $F ]; do sleep 0.01; done`)
	c := start(t, s, cmd)
	<-c.Done()
	pid := pidsIn(t, file, 1)[0]
	c.Release()
	c.Release()
	if _, err := os.Stat(c.cgroup.path); err != nil {
		t.Fatalf("a cgroup with a process in it: %v", err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitNoTrees(t, s)
}

// A leader that root has moved to another cgroup, as systemd-run and containers' tools do,
// is still the leader.
func TestALeaderThatHasLeftItsCgroup(t *testing.T) {
	for name, end := range map[string]func(*Child) error{
		"killed": (*Child).KillTree,
		"told":   func(c *Child) error { return c.Signal(unix.SIGTERM, Tree) },
	} {
		t.Run(name, func(t *testing.T) {
			s := cgroupSpawner(t)
			cmd, file := treeCommand(t, `echo $$ >$M/cgroup.procs; echo $$ >>$F; exec sleep 1000`)
			cmd.Env = append(cmd.Env, "M="+cgroupMounts()[0])
			c := start(t, s, cmd)
			defer c.Release()
			pidsIn(t, file, 1)
			if err := end(c); err != nil {
				t.Fatal(err)
			}
			<-c.Done()
			if c.Status().Signal == 0 {
				t.Errorf("%+v", c.Status())
			}
		})
	}
}

func TestCgroupsMadeInsideAreRemovedAndKilled(t *testing.T) {
	s := cgroupSpawner(t)
	cmd, file := treeCommand(t, `G=$M/$(sed -n 's,^0::/,,p' /proc/self/cgroup)
		mkdir -p $G/a/b; sh -c 'echo $$ >'$G'/a/b/cgroup.procs; echo $$ >>$F; exec sleep 1000' & wait`)
	cmd.Env = append(cmd.Env, "M="+cgroupMounts()[0])
	c := start(t, s, cmd)
	pids := pidsIn(t, file, 1)
	if n, err := c.signalCgroup(0); n < 2 || err != nil {
		t.Errorf("%d processes found, %v, want those below, too", n, err)
	}
	if err := c.KillTree(); err != nil {
		t.Fatal(err)
	}
	awaitDead(t, pids)
	<-c.Done()
	c.Release()
	awaitNoTrees(t, s)
}

// A tree whose leader has ended may go on in cgroups of its own: those that are empty
// at the moment are its, too.
func TestCgroupsInsideALivingTreeStay(t *testing.T) {
	s := cgroupSpawner(t)
	cmd, file := treeCommand(t, `G=$M/$(sed -n 's,^0::/,,p' /proc/self/cgroup); mkdir -p $G/empty
		setsid sh -c 'echo $$ >>$F; exec sleep 1000' & while [ ! -s $F ]; do sleep 0.01; done`)
	cmd.Env = append(cmd.Env, "M="+cgroupMounts()[0])
	c := start(t, s, cmd)
	<-c.Done()
	pids := pidsIn(t, file, 1)
	if c.ReleaseIfEmpty() {
		t.Fatal("a tree with a process in it was released")
	}
	if _, err := os.Stat(filepath.Join(c.cgroup.path, "empty")); err != nil {
		t.Errorf("the tree's own folder: %v", err)
	}
	if err := c.KillTree(); err != nil {
		t.Fatal(err)
	}
	awaitDead(t, pids)
	await(t, "the tree to be released", c.ReleaseIfEmpty)
	awaitNoTrees(t, s)
}

func TestReleaseIfEmpty(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		cmd, file := treeCommand(t, `setsid sh -c 'echo $$ >>$F; exec sleep 1000' & while [ ! -s $F ]; do sleep 0.01; done`)
		c := start(t, s, cmd)
		<-c.Done()
		pids := pidsIn(t, file, 1)
		if c.ReleaseIfEmpty() {
			t.Error("a tree with a process in it was released")
		}
		if err := c.KillTree(); err != nil {
			t.Fatal(err)
		}
		awaitDead(t, pids)
		await(t, "the tree to be released", c.ReleaseIfEmpty)
		if err := c.Signal(syscall.SIGTERM, Tree); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("Signal afterwards: %v", err)
		}
		// Its own goroutine may have to collect the leader first.
		await(t, "no child to be left", func() bool { return len(s.unreleased()) == 0 })
	})
}

// What Features names is there, and what it does not Degraded tells.
func TestFeaturesAreWhatIsThere(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		has := make(map[string]bool)
		for _, name := range s.Features() {
			has[name] = true
		}
		if has["cgroup"] != (s.cgroups != nil) || has["audit.session"] != s.audit || has["cgroup"] && has["audit.session"] {
			t.Errorf("features %v", s.Features())
		}
		if s.cgroups == nil {
			return
		}
		g, err := s.cgroups.make()
		if err != nil {
			t.Fatal(err)
		}
		defer g.remove()
		_, err = os.Stat(filepath.Join(g.path, "memory.events"))
		if has["cgroup.memory"] != (err == nil) {
			t.Errorf("features %v, memory.events: %v", s.Features(), err)
		}
		if told := strings.Contains(strings.Join(s.Degraded(), "\n"), "memory controller"); told == has["cgroup.memory"] {
			t.Errorf("features %v, degraded %q", s.Features(), s.Degraded())
		}
	})
}

// Each tree has a cgroup that nothing was in before, and what is made in advance follows
// the demand.
func TestCgroupsAreMadeInAdvanceAndUsedOnce(t *testing.T) {
	s := cgroupSpawner(t)
	seen := make(map[string]bool)
	for range 2 * mostReady {
		c := start(t, s, command(t, "true"))
		if seen[c.cgroup.path] {
			t.Fatalf("%s was used twice", c.cgroup.path)
		}
		seen[c.cgroup.path] = true
		<-c.Done()
		c.Release()
	}
	expectReady := func(want int) {
		t.Helper()
		await(t, fmt.Sprint(want, " folders made in advance"), func() bool { return len(s.cgroups.ready) == want })
		awaitNoTrees(t, s)
		if n := len(subfolders(s.cgroups.path)); n != want {
			t.Errorf("%d folders, want %d", n, want)
		}
	}
	demandIs := func(d demand) {
		s.cgroups.mu.Lock()
		s.cgroups.demand = d
		s.cgroups.arm(0)
		s.cgroups.mu.Unlock()
	}
	demandIs(demand{mostReady, time.Now()})
	expectReady(mostReady)
	demandIs(demand{mostReady, time.Now().Add(-demandTime)})
	expectReady(fewestReady)
}

func TestGuestdIsInNoneOfItsCgroups(t *testing.T) {
	s := cgroupSpawner(t)
	start(t, s, command(t, "sleep", "1000"))
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(own), parentPrefix) {
		t.Errorf("guestd's cgroups: %s", own)
	}
	if pids, err := os.ReadFile(filepath.Join(s.cgroups.path, "cgroup.procs")); err != nil || len(pids) != 0 {
		t.Errorf("the parent folder itself has processes: %q, %v", pids, err)
	}
}

func TestLeftoversOfADeadInstanceAreRemoved(t *testing.T) {
	living := cgroupSpawner(t)
	c := start(t, living, command(t, "sleep", "1000"))
	dead := filepath.Join(filepath.Dir(living.cgroups.path), parentPrefix+"leftover")
	if err := os.MkdirAll(filepath.Join(dead, "p-leftover"), 0o755); err != nil {
		t.Fatal(err)
	}
	newSpawner(t, Config{})
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dead instance's folder is still there: %v", err)
	}
	if _, err := os.Stat(c.cgroup.path); err != nil {
		t.Errorf("a living instance's folder was touched: %v", err)
	}
}

// Somebody removes the Spawner's folder: processes start all the same, and
// Degraded says what they lack.
func TestStartsGoOnWithoutTheirCgroup(t *testing.T) {
	s := cgroupSpawner(t)
	if err := os.Remove(s.cgroups.path); err != nil {
		t.Fatal(err)
	}
	before := len(s.Degraded())
	c := start(t, s, command(t, "sleep", "1000"))
	if err := c.KillTree(); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if len(s.Degraded()) != before+1 {
		t.Errorf("Degraded: %q", s.Degraded())
	}
}

func TestConfiguredCgroupRoot(t *testing.T) {
	if _, err := New(Config{CgroupRoot: t.TempDir()}); err == nil {
		t.Error("a folder that is no cgroup was taken")
	}
	root := filepath.Join(filepath.Dir(cgroupSpawner(t).cgroups.path), "spawn-test-root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(root) })
	s := newSpawner(t, Config{CgroupRoot: root})
	if filepath.Dir(s.cgroups.path) != root {
		t.Errorf("used %s", s.cgroups.path)
	}
}

func TestOOMKillsAreTold(t *testing.T) {
	g := &cgroup{path: t.TempDir()}
	for text, want := range map[string]bool{
		"": false, "low 0\nhigh 0\nmax 3\noom 1\noom_kill 0\noom_group_kill 0\n": false,
		"low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n": true,
	} {
		write(t, filepath.Join(g.path, "memory.events"), text, 0o644)
		if got := g.oomKilled(); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestPeakMemoryIsTheTrees(t *testing.T) {
	g := &cgroup{path: t.TempDir()}
	if got := g.peakMemory(); got != 0 {
		t.Errorf("without the file: %d", got)
	}
	write(t, filepath.Join(g.path, "memory.peak"), "1052672\n", 0o644)
	if got := g.peakMemory(); got != 1052672 {
		t.Errorf("got %d", got)
	}
}

func TestMountEscapesAndPlaces(t *testing.T) {
	if got := unescapeMount(`/a\040b\134040`); got != `/a b\040` {
		t.Errorf("got %q", got)
	}
}

func TestAControllingTerminal(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		master, slave, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer master.Close()
		cmd := command(t, "/bin/sh", "-c", `stty -echo; tty; ps -o tpgid= -p $$ | tr -d " "; echo $$; exec sleep 1000`)
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Terminal = slave, slave, slave, true
		c := start(t, s, cmd)
		slave.Close()
		var name, group, leader string
		if _, err := fmt.Fscan(master, &name, &group, &leader); err != nil {
			t.Fatal(err)
		}
		if name != slave.Name() || group != leader {
			t.Errorf("terminal %s, foreground group %s, leader %s, want %s and equal", name, group, leader, slave.Name())
		}
		if _, err := master.Write([]byte{3}); err != nil { // Ctrl-C
			t.Fatal(err)
		}
		<-c.Done()
		if st := c.Status(); st.Signal != syscall.SIGINT {
			t.Errorf("after Ctrl-C: %+v", st)
		}
	})
}

// Many at once: each status goes to its own child, and nothing is left.
func TestManyAtOnce(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		var wg sync.WaitGroup
		for worker := range 20 {
			wg.Go(func() {
				for i := range 10 {
					code := (worker*10 + i) % 256
					c, err := s.Start(command(t, "/bin/sh", "-c", fmt.Sprintf("exit %d", code)))
					if err != nil {
						t.Error(err)
						return
					}
					<-c.Done()
					if st := c.Status(); st.Code != code {
						t.Errorf("%+v, want code %d", st, code)
					}
					c.Release()
				}
			})
		}
		wg.Wait()
		await(t, "all to be given back", func() bool { return len(s.unreleased()) == 0 })
		if s.cgroups != nil {
			awaitNoTrees(t, s)
		}
	})
}

func TestADeadMainThreadIsNoDeadProcess(t *testing.T) {
	s := newSpawner(t, Config{CgroupRoot: "none"})
	c := start(t, s, helper(t, "headless"))
	await(t, "the main thread to end", func() bool {
		p, err := readProcess(c.PID())
		return err == nil && p.state == 'Z'
	})
	select {
	case <-c.Done():
		t.Fatalf("told as ended: %+v", c.Status())
	default:
	}
	if !alive(c.PID()) {
		t.Error("taken for dead")
	}
	if err := c.Signal(syscall.SIGTERM, Tree); err != nil {
		t.Errorf("signalling it: %v", err)
	}
	<-c.Done()
}

// Without root everything works for guestd's own user, and nobody else is served.
func TestWithoutRoot(t *testing.T) {
	acc := user(t)
	s := newSpawner(t, Config{})
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	cmd := helper(t, "unprivileged")
	cmd.Args[0] = write(t, filepath.Join(openDir(t), "helper"), string(exe), 0o755)
	cmd.Account = acc
	var got unprivilegedReport
	text := output(t, s, cmd)
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if got.Code != 7 || got.Survivors != 0 || got.OtherUser != "EPERM" || got.Umask != "0077\n" || got.Limit != "99\n" {
		t.Errorf("%+v", got)
	}
}

type unprivilegedReport struct {
	Code, Survivors         int
	OtherUser, Umask, Limit string
	Degraded                []string
}

func helperUnprivileged() {
	var got unprivilegedReport
	s, err := New(Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	acc, _ := account.Open("").Current()
	cmd := Command{ID: "p-1", Args: []string{"sh", "-c", "exit 7"}, Env: []string{"PATH=/bin:/usr/bin"}, Dir: "/", Account: acc}
	run := func(script string, change func(*Command)) (*Child, string) {
		next := cmd
		r, w, _ := os.Pipe()
		next.ID += "x"
		next.Args, next.Stdout = []string{"sh", "-c", script}, w
		change(&next)
		c, err := s.Start(next)
		w.Close()
		if err != nil {
			return nil, err.Error()
		}
		line := make([]byte, 100)
		n, _ := r.Read(line)
		return c, string(line[:n])
	}
	c, _ := run("exit 7", func(*Command) {})
	<-c.Done()
	got.Code = c.Status().Code
	umask := uint32(0o077)
	_, got.Umask = run("umask", func(c *Command) { c.Umask = &umask })
	_, got.Limit = run("ulimit -n", func(c *Command) { c.Rlimits = []Rlimit{{unix.RLIMIT_NOFILE, 99, 99}} })
	c, pid := run("setsid sh -c 'echo $$; exec sleep 1000' & wait", func(*Command) {})
	_ = c.KillTree()
	<-c.Done()
	var survivor int
	if _, err := fmt.Sscan(pid, &survivor); err != nil {
		got.Survivors++
	}
	// SIGKILL is on its way to it when KillTree returns; its parent may be collected first.
	for patience := time.Now().Add(10 * time.Second); alive(survivor); time.Sleep(time.Millisecond) {
		if time.Now().After(patience) {
			got.Survivors++
			break
		}
	}
	cmd.Account.UID++
	if _, err := s.Start(cmd); errors.Is(err, unix.EPERM) {
		got.OtherUser = "EPERM"
	}
	got.Degraded = s.Degraded()
	_ = json.NewEncoder(os.Stdout).Encode(got)
}
