package proc

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"time"

	"guestd.internal/internal/spawn"
)

// masterLinger is how long a terminal's master stays open after the leader's
// end while a background child has the slave open.
const masterLinger = 10 * time.Minute

// supervise records the leader's end and collects all that the process has. It
// is the process's own goroutine.
func (p *Process) supervise() {
	if p.terminal != nil || !p.endsBriefly(briefTime, briefTime) {
		p.stopWatch()
		p.startPumps()
		p.child.Await()
	}
	p.leaderEnded()
	p.reap()
}

// endsBriefly watches the process, and says whether its leader's end is recorded.
func (p *Process) endsBriefly(patience, afterOutput time.Duration) bool {
	if !p.watchBriefly(patience, afterOutput) {
		return false
	}
	if !p.child.AwaitNow() {
		p.stopWatch() // a tracer keeps the end to itself, for as long as it likes
		return false
	}
	return true
}

// superviseHere does the same in the goroutine that has started the process, as far as
// it takes no longer than patience. What is left is for the process's own goroutine.
func (p *Process) superviseHere(patience time.Duration) {
	if p.terminal != nil || p.input != nil || !p.endsBriefly(patience, outputPatience) {
		go p.supervise()
		return
	}
	p.leaderEnded()
	if p.nobodyLeft() && p.table.isCrowded() {
		p.reap() // with many commands a goroutine for each costs more than it saves the caller
		return
	}
	go func() {
		runtime.Gosched() // first the caller tells of the end, also where one processor runs all
		p.reap()
	}()
}

// nobodyLeft says whether reap has nobody to wait for, once the leader has ended.
func (p *Process) nobodyLeft() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.termination == nil && p.allOver()
}

// reap collects the leader, which has ended, and waits for all that belongs to the process.
func (p *Process) reap() {
	p.closeBrief()
	p.child.Reap()
	p.table.openPipes()
	if p.terminal != nil {
		linger := time.AfterFunc(masterLinger, p.outputs[0].pump.Close)
		defer linger.Stop()
	}
	p.table.ended(p)
	p.workers.Wait()
	if p.input != nil {
		p.input.writer.Wait()
	}
	close(p.done)
	p.table.finish(p)
}

// leaderEnded tells all who have to know of the leader's end.
func (p *Process) leaderEnded() {
	p.recordExit()
	p.settle()
	if p.terminal != nil {
		p.terminal.slave.Close()
	}
	p.endOutputs()
	if p.input != nil {
		p.input.stop()
	}
}

// recordExit makes the exit known to Wait, Info and List.
func (p *Process) recordExit() {
	status := p.child.Status()
	if p.timeout != nil {
		p.timeout.Stop()
	}
	p.mu.Lock()
	p.exit = &Exit{
		Code: status.Code, Signal: status.Signal, CoreDumped: status.CoreDumped,
		TimedOut: p.timedOut, OOMKilled: status.OOMKilled,
		UserTime: status.UserTime, SystemTime: status.SystemTime, PeakMemory: status.PeakMemory,
		Start: p.started, End: status.Ended, Duration: status.Ended.Sub(p.started),
	}
	if p.abandoned != nil {
		p.abandoned.Stop()
	}
	p.mu.Unlock()
	close(p.exited)
}

// settle is called once for the recorded exit and once for each exit mark.
func (p *Process) settle() {
	if p.unsettled.Add(-1) == 0 {
		close(p.settled)
	}
}

// timeOut ends the tree because Timeout is over.
func (p *Process) timeOut() {
	p.mu.Lock()
	if p.exit == nil {
		p.timedOut = true
		p.terminateLocked()
	}
	p.mu.Unlock()
}

// terminate ends the tree: SIGTERM, KillGrace, SIGKILL. It does not wait.
func (p *Process) terminate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.terminateLocked()
}

// terminateLocked starts the one termination, with mu held. The supervisor,
// which is still there while the leader lives, waits for it.
func (p *Process) terminateLocked() {
	if p.termination != nil || p.exit != nil {
		return
	}
	p.termination = make(chan struct{})
	p.workers.Go(p.runTermination)
}

func (p *Process) runTermination() {
	defer close(p.termination)
	if grace := p.spec.killGrace(); grace > 0 {
		if err := p.child.Signal(syscall.SIGTERM, spawn.Tree); err == nil {
			// A stopped tree would not see SIGTERM before SIGKILL.
			_ = p.child.Signal(syscall.SIGCONT, spawn.Tree)
			if p.endsWithin(grace) {
				return
			}
		}
	}
	if err := p.child.KillTree(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.table.log.Error("killing a process's tree", "id", p.id, "error", err)
	}
}

// How often a tree without its leader is looked at: first and at most so seldom.
const (
	firstLook   = time.Millisecond
	longestLook = 100 * time.Millisecond
)

// endsWithin waits for the whole tree to end, and reports whether it did.
func (p *Process) endsWithin(grace time.Duration) bool {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		return false
	case <-p.table.killNow:
		return false
	}
	// Nobody tells when those end that the leader leaves, mostly a moment later.
	for look := firstLook; ; look = min(2*look, longestLook) {
		if errors.Is(p.child.Signal(0, spawn.Tree), os.ErrProcessDone) {
			return true
		}
		select {
		case <-time.After(look):
		case <-timer.C:
			return false
		case <-p.table.killNow:
			return false
		}
	}
}
