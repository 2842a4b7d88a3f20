package spawn

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// A start may go on for longer than Close waits for it.
func TestCgroupParentThatClosesUnderAStart(t *testing.T) {
	s := cgroupSpawner(t)
	var starts sync.WaitGroup
	closed := make(chan struct{})
	for range 4 {
		starts.Go(func() {
			for over := false; !over; {
				select {
				case <-closed:
					over = true
				default:
				}
				g, err := s.cgroups.create()
				if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("making a folder: %v", err)
				}
				if err == nil {
					s.cgroups.release(g)
				}
			}
		})
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	close(closed)
	starts.Wait()
	if g, err := s.cgroups.create(); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed parent gave %+v, %v", g, err)
	}
}

// Instances that start at one time take each other's folders for leftovers.
func TestCgroupParentsThatAreMadeAtOneTime(t *testing.T) {
	place := filepath.Dir(cgroupSpawner(t).cgroups.path)
	var starts sync.WaitGroup
	for range 8 {
		starts.Go(func() {
			for range 100 {
				p, err := newCgroupParent(place)
				if err != nil {
					t.Errorf("making a folder: %v", err)
					return
				}
				if err := p.close(time.Now().Add(closeWait)); err != nil {
					t.Errorf("closing: %v", err)
				}
			}
		})
	}
	starts.Wait()
}

// Root in the guest may remove folders that are ready: the next start gets another one.
func TestReadyFoldersThatSomebodyRemoves(t *testing.T) {
	s := cgroupSpawner(t)
	expectCode(t, s, command(t, "true"), 0)
	await(t, "folders made in advance", func() bool { return len(s.cgroups.ready) == fewestReady })
	awaitNoTrees(t, s)
	degraded := len(s.Degraded())
	for _, folder := range subfolders(s.cgroups.path) {
		if err := os.Remove(folder); err != nil {
			t.Fatal(err)
		}
	}
	c := start(t, s, command(t, "true"))
	defer c.Release()
	<-c.Done()
	if c.cgroup == nil || len(s.Degraded()) != degraded {
		t.Errorf("cgroup %v, degraded %q", c.cgroup, s.Degraded())
	}
}

// Where no folder can be made, that is tried when one is needed, and not all the time.
func TestFoldersThatCannotBeMade(t *testing.T) {
	s := cgroupSpawner(t)
	limit := filepath.Join(s.cgroups.path, "cgroup.max.descendants")
	if err := writeExisting(limit, "0"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		expectCode(t, s, command(t, "true"), 0)
	}
	tried := func() uint64 {
		s.cgroups.mu.Lock()
		defer s.cgroups.mu.Unlock()
		return s.cgroups.number
	}
	time.Sleep(5 * tidyDelay)
	before := tried()
	time.Sleep(10 * tidyDelay)
	if after := tried(); after != before {
		t.Errorf("%d more tries while nothing was started", after-before)
	}
	if err := writeExisting(limit, "max"); err != nil {
		t.Fatal(err)
	}
	c := start(t, s, command(t, "true"))
	defer c.Release()
	if c.cgroup == nil {
		t.Error("no cgroup once they can be made again")
	}
}
