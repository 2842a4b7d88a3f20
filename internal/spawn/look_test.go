package spawn

import (
	"os/exec"
	"slices"
	"sync"
	"testing"
)

// Who asks while a look is under way gets the next one, together with all others who do.
func TestLooksAreShared(t *testing.T) {
	s := newSpawner(t, Config{CgroupRoot: "none"})
	const callers = 60
	s.looks.reading.Lock() // as if one were under way
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if len(s.looks.take(s).all) == 0 {
				t.Error("an empty look")
			}
		})
	}
	await(t, "somebody to wait", func() bool {
		s.looks.mu.Lock()
		defer s.looks.mu.Unlock()
		return s.looks.next != nil
	})
	s.looks.reading.Unlock()
	all.Wait()
	if n := s.looks.count.Load(); n > callers/2 {
		t.Errorf("%d looks for %d callers at the same time", n, callers)
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

// To end many trees at once costs few looks, and not some for each.
func TestManyTreesAreKilledByFewLooks(t *testing.T) {
	s := newSpawner(t, Config{CgroupRoot: "none"})
	const trees = 120
	var children []*Child
	for range trees {
		children = append(children, start(t, s, command(t, "sh", "-c", "sleep 1000 & sleep 1000")))
	}
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
	if n := s.looks.count.Load() - before; n > trees {
		t.Errorf("%d looks for %d trees", n, trees)
	}
	for _, c := range children {
		<-c.Done()
	}
}
