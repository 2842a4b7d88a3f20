package proc

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/epoll"
)

// Most commands end within milliseconds. For these, waking up one goroutine for each
// pipe and one for the end costs more than all else that guestd does. So at first
// whoever has started a command waits for all of it at once; then its supervisor does;
// and only what goes on for longer, or writes a lot, gets goroutines for its pipes.

const (
	// briefTime is for how long a supervisor waits that way.
	briefTime = time.Second
	// capturePatience is for how long whoever wants the outcome only does so himself.
	capturePatience = 50 * time.Millisecond
	// startPatience is for how long Exec keeps its caller waiting for a command that may
	// be over by then, and outputPatience once it has written something.
	startPatience  = 3 * time.Millisecond
	outputPatience = 500 * time.Microsecond
	// briefOutput is how much output, in bytes, gets its own goroutine.
	briefOutput = 64 << 10
)

// watchBriefly reads the pipes until the leader has ended, and says whether it has. It
// gives up when patience is over, and afterOutput once there was output. The next call goes
// on where the last gave up; after the last there is to be stopWatch.
func (p *Process) watchBriefly(patience, afterOutput time.Duration) (ended bool) {
	w := p.brief
	if w == nil {
		set, err := p.table.takeSet()
		if err != nil {
			return false // no descriptor is left
		}
		w = &watch{process: p, set: set}
		if err := w.begin(); err != nil {
			w.end()
			return false
		}
		p.brief = w
	}
	w.deadline, w.afterOutput = time.Now().Add(patience), afterOutput
	if w.set.SetDeadline(w.deadline) != nil || !w.sawAll() {
		return false
	}
	if !p.allOver() {
		w.end() // their descriptors are about to be closed, or watched by somebody else
	}
	return true
}

// stopWatch ends a watch that has not seen the leader's end.
func (p *Process) stopWatch() {
	if p.brief != nil {
		p.brief.end()
		p.brief = nil
	}
}

// watch is a brief wait for a leader and its pipes.
type watch struct {
	process     *Process
	set         *epoll.Set
	leader      int // the descriptor in set that stands for it; 0 before
	deadline    time.Time
	afterOutput time.Duration
	total       int // bytes of output
}

// sawAll waits, and says whether the leader has ended.
func (w *watch) sawAll() bool {
	for w.total < briefOutput {
		ready, err := w.set.Wait()
		if err != nil {
			return false
		}
		if w.sawEnd(ready) {
			return true
		}
		for _, event := range ready {
			if err := w.read(w.process.outputOf(event.Fd)); err != nil {
				return false
			}
		}
	}
	return false
}

// begin adds all there is to wait for.
func (w *watch) begin() (err error) {
	if w.leader, err = w.process.child.Watch(w.set); err != nil {
		return err
	}
	for _, out := range w.process.outputs {
		if err := w.set.Add(out.pump.FD()); err != nil {
			return err
		}
		out.watched = true
	}
	return nil
}

// end takes it all out again, and gives the set back. It does nothing the second time.
func (w *watch) end() {
	if w.set == nil {
		return
	}
	if !w.process.table.wantsSet() {
		w.process.table.dropSet(w.set)
		w.set = nil
		return
	}
	w.set.Remove(w.leader)
	for _, out := range w.process.outputs {
		w.forget(out)
	}
	w.process.table.putSet(w.set)
	w.set = nil
}

// forget takes an output out of the set.
func (w *watch) forget(out *output) {
	if out.watched {
		w.set.Remove(out.pump.FD())
		out.watched = false
	}
}

// sawEnd says whether the leader has ended, and notes the pipes that have ended with it.
func (w *watch) sawEnd(ready []unix.EpollEvent) (ended bool) {
	for _, event := range ready {
		ended = ended || int(event.Fd) == w.leader
	}
	if !ended {
		return false
	}
	for _, event := range ready {
		if int(event.Fd) != w.leader && event.Events&(unix.EPOLLIN|unix.EPOLLHUP) == unix.EPOLLHUP {
			w.process.outputOf(event.Fd).over = true
		}
	}
	return true
}

// read reads what an output has. Errors are those that a pump has to deal with.
func (w *watch) read(out *output) error {
	n, err := out.pump.ReadNow()
	if w.total == 0 && n > 0 {
		if soon := time.Now().Add(w.afterOutput); soon.Before(w.deadline) {
			w.deadline = soon
			if err := w.set.SetDeadline(soon); err != nil {
				return err
			}
		}
	}
	w.total += n
	switch {
	case errors.Is(err, io.EOF):
		out.over = true
		w.forget(out) // it would be ready all the time
	case err != nil && !errors.Is(err, syscall.EAGAIN):
		return err
	}
	return nil
}

// outputOf is the output that reads a descriptor.
func (p *Process) outputOf(fd int32) *output {
	for _, out := range p.outputs {
		if out.pump.FD() == int(fd) {
			return out
		}
	}
	panic(fmt.Sprintf("proc: %d is no output's descriptor", fd))
}

// allOver says whether every output has been seen to end.
func (p *Process) allOver() bool {
	return !slices.ContainsFunc(p.outputs, func(out *output) bool { return !out.over })
}

// isCrowded says whether other commands are being watched at the moment.
func (t *Table) isCrowded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watched > 1 // the caller's own counts
}

// startPumps gives each stream a goroutine.
func (p *Process) startPumps() {
	for _, out := range p.outputs {
		if p.terminal == nil {
			out.pump.Register()
		}
	}
	for _, out := range p.outputs {
		p.workers.Go(func() { p.pump(out) })
	}
}

// endOutputs has the exit marks set, now that the leader has ended.
func (p *Process) endOutputs() {
	for _, out := range p.outputs {
		switch {
		case p.brief == nil:
			out.pump.LeaderEnded()
		case out.over:
			out.pump.EndEmpty()
		case !out.pump.EndNow():
			p.workers.Go(func() { p.pump(out) }) // another process holds it
		}
	}
}

// closeBrief gives back what the brief watch has left to be given back.
func (p *Process) closeBrief() {
	if p.brief == nil {
		return
	}
	p.brief.end()
	for _, out := range p.outputs {
		if out.over {
			out.pump.CloseEmpty()
		}
	}
}

// pump runs one stream's pump.
func (p *Process) pump(out *output) {
	if err := out.pump.Run(); err != nil {
		p.table.log.Warn("reading a process's output", "id", p.id, "stream", out.stream.String(), "error", err)
	}
}
