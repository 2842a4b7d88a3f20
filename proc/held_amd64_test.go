package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guestd.internal/internal/spawn"
	"guestd.internal/test/need"
)

// A program that stops all processes of its user over and over meets commands that are
// just being started for him, and these starts wait. Nobody else does: other users'
// commands end with all their streams, and so does the table with all that is in it.
// (Where package syscall forks, on other architectures, all of guestd waits: docs/trust.md.)
func TestStartsThatAreHeldHoldNobodyElse(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Skip(t, "to start commands as another user needs root; try: sudo go test")
	}
	t.Run("by cgroup", func(t *testing.T) {
		if !slices.Contains(spawner.Features(), "cgroup") {
			need.Skip(t, "no writable cgroup v2 mount; try: mount -t cgroup2 none /sys/fs/cgroup")
		}
		startsAreHeld(t, spawner)
	})
	t.Run("without cgroups", func(t *testing.T) {
		s, err := spawn.New(spawn.Config{CgroupRoot: "none"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		startsAreHeld(t, s)
	})
}

func startsAreHeld(t *testing.T, spawner *spawn.Spawner) {
	uid := 61234 + os.Getpid()%10_000 // whom another run of this test leaves alone
	user := fmt.Sprintf("%d:%[1]d", uid)
	table := newTable(t, func(c *Config) { c.Spawner = spawner })
	stopper := shell("while :; do kill -STOP -1; done")
	stopper.User, stopper.Dir = user, "/"
	if _, err := table.Start(within(t), stopper); err != nil {
		t.Fatal(err)
	}
	var starters sync.WaitGroup
	var begun [4]atomic.Int64 // when each has begun its last start
	for i := range begun {
		begun[i].Store(time.Now().UnixNano())
		starters.Go(func() {
			for {
				begun[i].Store(time.Now().UnixNano())
				_, err := table.Start(context.Background(), Spec{Args: []string{"/bin/true"}, User: user, Dir: "/"})
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	isHeld := func() bool {
		for i := range begun {
			if time.Since(time.Unix(0, begun[i].Load())) > time.Second {
				return true
			}
		}
		return false
	}
	var others sync.WaitGroup
	for range 3 {
		others.Go(func() {
			for again := 0; again < 20; { // those that ran at the moment, and some more
				p, err := table.Start(context.Background(), shell("echo mine"))
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case <-p.done:
				case <-within(t).Done():
					t.Error("another user's command has not ended, with its streams")
					return
				}
				if isHeld() {
					again++
				}
			}
		})
	}
	others.Wait()
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("at once"))
	if err := table.Close(ctx); err != nil {
		t.Error(err)
	}
	starters.Wait()
}
