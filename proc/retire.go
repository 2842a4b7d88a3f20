package proc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"guestd.internal/internal/spawn"
)

// finished is a process that has ended, and when.
type finished struct {
	process *Process
	at      time.Time
}

// ended notes that a process has ended, and forgets those that ended too long
// ago or are too many.
func (t *Table) ended(p *Process) {
	t.mu.Lock()
	t.finished = append(t.finished, finished{p, time.Now()})
	if t.expiry == nil || len(t.finished) > t.maxFinished {
		t.expire()
	}
	t.mu.Unlock()
}

// expire forgets processes and sets the timer for the next; mu is held. Where they are
// too many it makes room for some more at the same time.
func (t *Table) expire() {
	now := time.Now()
	keep := t.maxFinished
	if len(t.finished) > keep {
		keep -= keep / expireShare
	}
	count := 0
	for _, f := range t.finished {
		if len(t.finished)-count <= keep && now.Sub(f.at) < t.keepFinished {
			break
		}
		t.forget(f.process)
		count++
	}
	t.finished = slices.Delete(t.finished, 0, count)
	if (count > 0 || t.expiry == nil) && !t.closed {
		t.armExpiry(now)
	}
}

// forget takes an ended process out of the list; what of its tree still writes
// is drained into nothing.
func (t *Table) forget(p *Process) {
	delete(t.listed, p.id)
	close(p.forgotten)
	p.DropCaptured()
	for _, out := range p.outputs {
		out.log.Discard()
	}
}

// armExpiry sets the timer for the process that has been finished for longest.
func (t *Table) armExpiry(now time.Time) {
	if t.expiry != nil {
		t.expiry.Stop()
		t.expiry = nil
	}
	if len(t.finished) == 0 {
		return
	}
	t.expiry = time.AfterFunc(t.finished[0].at.Add(t.keepFinished).Sub(now), func() {
		t.mu.Lock()
		t.expiry = nil
		t.expire()
		t.mu.Unlock()
	})
}

const (
	// gatherTime is how long processes gather whose goroutines have ended: giving back
	// what they had is not to get into the way of the next start. It is done for
	// portion of them at a time, every portionDelay, since a call that comes meanwhile has
	// to wait.
	gatherTime   = 25 * time.Millisecond
	portion      = 16
	portionDelay = 5 * time.Millisecond
	// crowd is how many commands at a time are not to be disturbed that way, unless
	// mostGathered have gathered. That is also how many are left at most.
	crowd        = 16
	mostGathered = 256
	// expireShare: one in so many of those that are kept makes room at a time.
	expireShare = 32
	// minStrayInterval is how often strays are looked for: trees that go on after
	// their output is closed, and whose end nobody tells.
	minStrayInterval = time.Second
	// strayShare bounds what that costs, a search of /proc for each without cgroups: one
	// part in so many of the time.
	strayShare = 50
)

// finish is called when a process's goroutines have ended: all that is left of
// it is its entry, and perhaps a tree that has closed its output.
func (t *Table) finish(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gathered = append(t.gathered, p)
	if t.gather == nil && !t.closed {
		t.gather = time.AfterFunc(gatherTime, t.releaseGathered)
	}
}

// releaseGathered gives back what processes have had that have gathered.
func (t *Table) releaseGathered() {
	t.mu.Lock()
	if t.watched >= crowd && len(t.gathered) < mostGathered && !t.closed {
		t.gather.Reset(gatherTime)
		t.mu.Unlock()
		return
	}
	count := min(max(portion, len(t.gathered)-mostGathered), len(t.gathered))
	now := slices.Clone(t.gathered[:count])
	t.gathered = slices.Delete(t.gathered, 0, count)
	if len(t.gathered) > 0 && !t.closed {
		t.gather.Reset(portionDelay)
	} else {
		t.gather = nil
	}
	t.mu.Unlock()
	t.release(now)
}

// releaseStrays gives back what strays have had that have ended by now.
func (t *Table) releaseStrays() {
	t.mu.Lock()
	strays := t.strays
	t.strays, t.strayTimer = nil, nil
	t.mu.Unlock()
	begin := time.Now()
	t.release(strays)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.strayInterval = max(minStrayInterval, strayShare*time.Since(begin))
}

// release gives back what processes have had; those of which something lives on
// become strays.
func (t *Table) release(list []*Process) {
	for _, p := range list {
		empty := p.child.ReleaseIfEmpty()
		t.mu.Lock()
		if empty {
			delete(t.living, p)
		} else if !t.closed {
			t.strays = append(t.strays, p)
			if t.strayTimer == nil {
				t.strayTimer = time.AfterFunc(t.strayInterval, t.releaseStrays)
			}
		}
		t.mu.Unlock()
	}
}

// alive returns the processes of which something is left to collect.
func (t *Table) alive() []*Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*Process, 0, len(t.living))
	for p := range t.living {
		list = append(list, p)
	}
	return list
}

const (
	// closeWait is how long Close waits for what has been killed.
	closeWait = 2 * time.Second
	// lastStarts is how long starts in progress get when all else is to end at once.
	lastStarts = 100 * time.Millisecond
)

// errSurvives is why Close leaves a process alone.
var errSurvives = errors.New("it survives SIGKILL")

// Close refuses further starts, ends every tree (SIGTERM, each process's
// KillGrace, SIGKILL; SIGKILL at once when the context is done) and collects all
// goroutines and files. What survives SIGKILL for two seconds, in an uninterruptible
// sleep, is left and told in the error. Closing twice is fine.
func (t *Table) Close(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	t.closeSets()
	t.closePipes()
	for _, timer := range []*time.Timer{t.expiry, t.gather, t.strayTimer} {
		if timer != nil {
			timer.Stop()
		}
	}
	t.mu.Unlock()
	running := t.terminateAll(nil)
	err := t.awaitStarts(ctx)
	processes := t.terminateAll(running) // and what has been starting
	t.awaitTermination(ctx, processes)
	t.killOnce.Do(func() { close(t.killNow) })
	killRestOf(processes)
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), closeWait, errSurvives)
	defer cancel()
	var left int
	for _, p := range processes {
		if err := p.collect(ctx); err != nil {
			left++
			t.log.Error("closing a process", "id", p.id, "error", err)
		}
	}
	if left > 0 {
		err = errors.Join(err, fmt.Errorf("%d processes survive SIGKILL", left))
	}
	return err
}

// terminateAll begins to end every tree of which something is left, but for those of known
// processes, and returns the processes of all.
func (t *Table) terminateAll(known []*Process) []*Process {
	processes := t.alive()
	var all sync.WaitGroup // side by side, as in killRestOf
	for _, p := range processes {
		if slices.Contains(known, p) {
			continue
		}
		p.terminate()
		if p.hasEnded() {
			all.Go(func() { _ = p.child.Signal(syscall.SIGTERM, spawn.Tree) }) // its background children
		}
	}
	all.Wait()
	return processes
}

// awaitStarts waits for the starts in progress. Those that are left a moment after the
// context's end are killed: somebody may be holding them.
func (t *Table) awaitStarts(ctx context.Context) error {
	over := make(chan struct{})
	go func() { // ends with the last start, which may be after an unsuccessful Close
		t.starting.Wait()
		close(over)
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
	}
	for _, patience := range []time.Duration{lastStarts, closeWait} {
		select {
		case <-over:
			return nil
		case <-time.After(patience):
			t.spawner.KillStarts()
		}
	}
	return errors.New("starts in progress do not end")
}

// awaitTermination waits until every termination is through, and the streams of
// trees whose leader had ended before are closed or had their KillGrace; or until
// the context is done.
func (t *Table) awaitTermination(ctx context.Context, processes []*Process) {
	begin := time.Now()
	for _, p := range processes {
		p.mu.Lock()
		end := p.termination
		p.mu.Unlock()
		grace := time.NewTimer(time.Until(begin.Add(p.spec.killGrace())))
		expired := grace.C
		if end != nil {
			expired = nil // a termination counts its grace itself
		} else {
			end = p.done
		}
		select {
		case <-end:
		case <-expired:
		case <-ctx.Done():
		}
		grace.Stop()
	}
}

// killRestOf kills what is left of the trees, side by side: without cgroups each takes its
// time, most of which they share then.
func killRestOf(processes []*Process) {
	var all sync.WaitGroup
	for _, p := range processes {
		all.Go(p.killRest)
	}
	all.Wait()
}

// killRest kills what is left of the tree.
func (p *Process) killRest() {
	if err := p.child.KillTree(); err != nil {
		p.table.log.Warn("killing a process's tree", "id", p.id, "error", err)
	}
}

// collect waits for the goroutines of a process that was killed, unless the context ends
// before the leader does.
func (p *Process) collect(ctx context.Context) error {
	if !p.hasEnded() {
		select {
		case <-p.exited:
		case <-ctx.Done():
			return fmt.Errorf("process %d: %w", p.child.PID(), context.Cause(ctx))
		}
	}
	<-p.settled // reading what was left takes 100 ms at most
	for _, out := range p.outputs {
		out.pump.Close()
	}
	<-p.done
	p.child.Release()
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	delete(p.table.living, p)
	return nil
}
