package spawn

import (
	"errors"
	"io/fs"
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
