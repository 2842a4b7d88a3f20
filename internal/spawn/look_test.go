package spawn

import (
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// Who asks while a look is under way gets the next one, together with all others who do.
func TestLooksAreShared(t *testing.T) {
	s := newSpawner(t, Config{CgroupRoot: "none"})
	const callers = 60
	s.looks.reading.Lock() // as if one were under way
	var called, all sync.WaitGroup
	called.Add(callers)
	for range callers {
		all.Go(func() {
			called.Done()
			if len(s.looks.take(s).all) == 0 {
				t.Error("an empty look")
			}
		})
	}
	called.Wait()
	await(t, "somebody to wait", func() bool {
		s.looks.mu.Lock()
		defer s.looks.mu.Unlock()
		return s.looks.next != nil
	})
	s.looks.reading.Unlock()
	all.Wait()
	// One for all who are waiting by now, and a few for those who have been slow to get there.
	if n := s.looks.count.Load(); n > callers/6 {
		t.Errorf("%d looks for %d callers at the same time", n, callers)
	}
}

// Nobody gets a look that had begun before he asked.
func TestLooksBeginAfterTheCall(t *testing.T) {
	s := newSpawner(t, Config{CgroupRoot: "none"})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 10 {
				begun := s.looks.count.Load()
				if l := s.looks.take(s); l.number <= begun {
					t.Errorf("look %d, when %d had begun before the call", l.number, begun)
				}
			}
		})
	}
	all.Wait()
}

// What tells whose a process is is read once in a look, and taken only while the process's
// number is its own.
func TestLooksReadAProcessOnce(t *testing.T) {
	s := newSpawner(t, Config{CgroupRoot: "none"})
	cmd := command(t, "sleep", "1000")
	cmd.Env = append(cmd.Env, IDVariable+"="+cmd.ID)
	c := start(t, s, cmd)
	shown := func() *seen {
		all := s.looks.take(s).all
		i := slices.IndexFunc(all, func(p *seen) bool { return p.pid == c.pid })
		if i < 0 {
			t.Fatal("a process that runs is not shown")
		}
		return all[i]
	}
	p := shown()
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			if got := p.mark(); got != cmd.ID {
				t.Errorf("mark %q, want %q", got, cmd.ID)
			}
			if got := p.auditSession(); got != c.audit {
				t.Errorf("audit session %d, want %d", got, c.audit)
			}
		})
	}
	asking.Wait()
	before := p.process
	before.start-- // whose number is another's now
	if got := stillOf(before, cmd.ID, ""); got != "" {
		t.Errorf("the mark of a number's next owner is taken: %q", got)
	}
	if err := c.KillTree(); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if got := p.mark(); got != cmd.ID {
		t.Errorf("mark %q after the end: it was read again", got)
	}
}

// A look shows what was there before it was asked for, however many others ask.
func TestLooksAreFresh(t *testing.T) {
	s := newSpawner(t, Config{CgroupRoot: "none"})
	quit := make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
					s.looks.take(s)
				}
			}
		})
	}
	for range 40 {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		shows := func() bool {
			return slices.ContainsFunc(s.looks.take(s).all, func(p *seen) bool { return p.pid == cmd.Process.Pid && !p.zombie() })
		}
		if !shows() {
			t.Error("a process that runs is not shown")
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if shows() {
			t.Error("a process that has ended is shown")
		}
	}
	close(quit)
	others.Wait()
}

// manyTrees starts trees whose leaders ignore SIGTERM and have a child each.
func manyTrees(t *testing.T, s *Spawner, n int) (children []*Child) {
	t.Helper()
	for range n {
		children = append(children, start(t, s, command(t, "sh", "-c", `trap "" TERM; sleep 1000 & sleep 1000`)))
	}
	return children
}

// fewLooks is how many looks n trees may cost that end at once: each one makes two passes at
// least, which is two looks for all of them or 2n.
func fewLooks(n int) int64 { return int64(n) / 4 }

func TestManyTreesAreKilledByFewLooks(t *testing.T) {
	s := newSpawner(t, Config{CgroupRoot: "none"})
	const trees = 120
	children := manyTrees(t, s, trees)
	before := s.looks.count.Load()
	var all sync.WaitGroup
	for _, c := range children {
		all.Go(func() {
			if err := c.KillTree(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	n := s.looks.count.Load() - before
	t.Logf("%d looks for %d trees", n, trees)
	if n > fewLooks(trees) {
		t.Errorf("%d looks for %d trees", n, trees)
	}
	for _, c := range children {
		<-c.Done()
	}
}

func TestCloseTakesFewLooks(t *testing.T) {
	s, err := New(Config{CgroupRoot: "none"})
	if err != nil {
		t.Fatal(err)
	}
	const trees = 200
	children := manyTrees(t, s, trees)
	before := s.looks.count.Load()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	n := s.looks.count.Load() - before
	t.Logf("%d looks for %d trees", n, trees)
	if n > fewLooks(trees) {
		t.Errorf("%d looks for %d trees", n, trees)
	}
	for _, c := range children {
		if st := c.Status(); st.Signal != syscall.SIGKILL {
			t.Fatalf("a leader has ended with %+v, want SIGKILL", st)
		}
	}
}
