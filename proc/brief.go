package proc

import (
	"errors"
	"io"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Most commands end within milliseconds. For these, waking up one goroutine for each
// pipe and one for the end costs more than all else that guestd does. So at first
// whoever has started a command waits for all of it, in one poll(2); then its
// supervisor does; and only what goes on for longer, or writes a lot, gets goroutines for
// its pipes.

const (
	// briefTime is for how long a supervisor waits that way, or whoever wants the outcome
	// only. It occupies a thread meanwhile, and one of the processors that run goroutines
	// until the runtime notices.
	briefTime = 20 * time.Millisecond
	// startPatience is for how long Exec keeps its caller waiting for a command that may
	// be over by then, and outputPatience once it has written something.
	startPatience  = 3 * time.Millisecond
	outputPatience = 500 * time.Microsecond
	// briefOutput is how much output, in bytes, gets its own goroutine.
	briefOutput = 64 << 10
)

// briefWatches is how many wait that way at once: where many commands run,
// processors have something better to do.
func briefWatches() int { return min(runtime.GOMAXPROCS(0)-1, 4) }

// watchBriefly reads the pipes until the leader has ended, and says whether it has. It
// gives up when patience is over, and afterOutput once there was output.
func (p *Process) watchBriefly(patience, afterOutput time.Duration) (ended bool) {
	select {
	case p.table.brief <- struct{}{}:
	default:
		return false
	}
	defer func() { <-p.table.brief }()
	deadline := time.Now().Add(patience)
	fds := make([]unix.PollFd, 1+len(p.outputs)) // the first is the child's
	for i, out := range p.outputs {
		fds[1+i] = unix.PollFd{Fd: int32(out.pump.FD()), Events: unix.POLLIN}
	}
	for total := 0; total < briefOutput; {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		if p.child.Poll(fds, left) {
			p.brief = true
			return true
		}
		for i, out := range p.outputs {
			if fds[1+i].Revents == 0 {
				continue
			}
			n, err := out.pump.ReadNow()
			if total == 0 && n > 0 {
				deadline = earlier(deadline, time.Now().Add(afterOutput))
			}
			total += n
			switch {
			case err == nil || errors.Is(err, syscall.EAGAIN):
			case errors.Is(err, io.EOF):
				fds[1+i].Fd = -1 // closed by everybody: nothing more will come
			default:
				return false
			}
		}
	}
	return false
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
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
		if !p.brief {
			out.pump.LeaderEnded()
		} else if !out.pump.EndNow() {
			p.heldOpen = true // by another process
			p.workers.Go(func() { p.pump(out) })
		}
	}
}

// pump runs one stream's pump.
func (p *Process) pump(out *output) {
	if err := out.pump.Run(); err != nil {
		p.table.log.Warn("reading a process's output", "id", p.id, "stream", out.stream.String(), "error", err)
	}
}
