package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"guestd.internal/internal/account"
	"guestd.internal/internal/outlog"
	"guestd.internal/internal/spawn"
)

// ErrNoTerminal is returned where only a terminal has what is asked for.
var ErrNoTerminal = errors.New("process has no terminal")

// maxOutputs is how many streams of output a process has at most.
const maxOutputs = 2

// output is one stream of a process's output.
type output struct {
	stream Stream
	log    *outlog.Log
	pump   *outlog.Pump

	// Of whoever watches the process briefly.
	watched bool // it is in his set
	over    bool // he has seen the end of it
}

// Process is one command, running or ended. All methods may be called from
// anywhere at any time.
type Process struct {
	id       string
	number   uint64 // its place in the table's order
	table    *Table
	spec     Spec
	args     []string // as far as they are kept
	argsCut  bool
	dir      string
	account  account.Account
	child    *spawn.Child
	started  time.Time
	outputs  []*output
	terminal *terminal // nil without
	input    *input    // nil without

	exited    chan struct{} // closed when the exit is recorded
	settled   chan struct{} // closed when all exit marks are set as well
	unsettled atomic.Int32  // what settled still waits for
	brief     *watch        // in which the leader ends; nil once it goes on for longer. The supervisor's own
	forgotten chan struct{} // closed when the table lists it no more
	done      chan struct{} // closed when its goroutines have ended

	workers sync.WaitGroup // pumps and terminations
	timeout *time.Timer    // nil without

	// mu protects the following.
	mu             sync.Mutex
	exit           *Exit
	timedOut       bool
	termination    chan struct{} // closed when the one termination is through; nil without
	attachments    map[*Attachment]struct{}
	abandoned      *time.Timer // runs while KillOnDisconnect waits for a reader
	captures       []Captured
	captureDropped bool
}

// ID returns the process's id, "p-…".
func (p *Process) ID() string { return p.id }

// Forgotten is closed when the table lists the process no more.
func (p *Process) Forgotten() <-chan struct{} { return p.forgotten }

// State is where a process is in its life.
type State int

// The states; AnyState is for filters.
const (
	AnyState State = iota
	Running        // the leader is alive
	Ended          // the leader has ended; children of it may be alive
)

// StreamOffset is a position in one stream.
type StreamOffset struct {
	Stream Stream
	Offset uint64
}

// Info describes a process. It never carries the environment. What it refers to is
// the process's own, and not to be changed.
type Info struct {
	ID       string
	PID      int // information only
	State    State
	Args     []string // 64 KiB of them
	ArgsCut  bool     // there were more
	User     string   // the name, or the uid where it has none
	Dir      string
	Labels   map[string]string
	Terminal *Size // its size now; nil without
	Timeout  time.Duration
	Start    time.Time
	Exit     *Exit          // nil while it runs
	Output   []StreamOffset // how many bytes each stream has had
	Input    uint64         // how many bytes of input were accepted
	Readers  int            // attached now
}

// Info returns what there is to know about the process now.
func (p *Process) Info() (info Info) {
	p.describe(&info, make([]StreamOffset, 0, len(p.outputs)))
	return info
}

// describe fills an Info, whose Output uses the given memory.
func (p *Process) describe(info *Info, offsets []StreamOffset) {
	*info = Info{
		ID: p.id, PID: p.child.PID(), State: Running, Args: p.args, ArgsCut: p.argsCut, User: p.userName(),
		Dir: p.dir, Labels: p.spec.Labels, Timeout: p.spec.Timeout, Start: p.started,
		Input: p.InputOffset(),
	}
	if p.terminal != nil {
		size := p.terminal.size()
		info.Terminal = &size
	}
	for _, out := range p.outputs {
		offsets = append(offsets, StreamOffset{out.stream, out.log.State().End})
	}
	info.Output = offsets
	p.mu.Lock()
	defer p.mu.Unlock()
	info.Readers = len(p.attachments)
	if p.exit != nil {
		info.Exit, info.State = p.exit, Ended
	}
}

func (p *Process) userName() string {
	if p.account.Name != "" {
		return p.account.Name
	}
	return fmt.Sprint(p.account.UID)
}

// Wait returns the exit once the leader has ended. It depends on no reader and
// no pipe; the error is the context's cause.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.exited:
	case <-ctx.Done():
		return Exit{}, fmt.Errorf("waiting for process %s: %w", p.id, context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.exit, nil
}

// hasEnded reports whether the leader has ended.
func (p *Process) hasEnded() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Signal sends a signal, 1 to 64, to the tree or to the leader alone. SIGKILL to
// the tree leaves nothing of it; SIGHUP to the tree hangs a terminal up, as far as
// guestd may (without CAP_SYS_ADMIN the signal is all there is). It returns
// os.ErrProcessDone where nobody is left.
func (p *Process) Signal(sig syscall.Signal, scope spawn.Scope) error {
	switch {
	case sig < 1 || sig > 64:
		return &InvalidError{"signal", fmt.Sprintf("%d is not between 1 and 64", int(sig))}
	case scope != spawn.Tree:
		return p.child.Signal(sig, scope)
	case sig == syscall.SIGKILL:
		return p.kill()
	}
	err := p.child.Signal(sig, scope)
	if err == nil && sig == syscall.SIGHUP && p.terminal != nil {
		_ = p.child.Signal(syscall.SIGCONT, scope) // as the kernel does it: a stopped job is to notice
		p.terminal.hangUp()
	}
	return err
}

// kill ends the whole tree.
func (p *Process) kill() error {
	if err := p.child.Signal(0, spawn.Tree); errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := p.child.KillTree(); err != nil {
		return fmt.Errorf("killing the tree of process %s: %w", p.id, err)
	}
	return nil
}

// Resize sets the terminal's size; the last call wins. Without a terminal it
// returns ErrNoTerminal.
func (p *Process) Resize(size Size) error {
	if p.terminal == nil {
		return ErrNoTerminal
	}
	log := p.outputs[0].log
	if err := p.terminal.resize(size, func() uint64 { return log.State().End }); err != nil {
		return fmt.Errorf("resizing process %s: %w", p.id, err)
	}
	p.wake()
	return nil
}

// wake makes all attachments look for something new.
func (p *Process) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for a := range p.attachments {
		select {
		case a.wakeups <- struct{}{}:
		default:
		}
	}
}
