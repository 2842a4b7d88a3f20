package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/internal/id"
	"guestd.internal/internal/outlog"
	"guestd.internal/internal/spawn"
)

// launch is one start in progress. Whatever it has opened when it fails is
// closed by abort; the child's ends are closed by closeChildEnds in any case.
type launch struct {
	process  *Process
	command  spawn.Command
	capture  *captureOptions // nil without
	childEnd []*os.File
	sources  []int    // parents' ends of the output pipes, until pumps own them
	feed     *os.File // parent's end of stdin
}

// start starts what spec says, and attaches a reader before the first byte of
// output where attach is not nil. It may wait for the end of a command that is soon over,
// where the caller has nothing to do before that.
func (t *Table) start(ctx context.Context, spec Spec, capture *captureOptions, attach *AttachOptions) (*Process, *Attachment, error) {
	if err := spec.Validate(); err != nil {
		return nil, nil, err
	}
	if err := t.admit(); err != nil {
		return nil, nil, err
	}
	defer t.starting.Done()
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("starting a process: %w", context.Cause(ctx))
	}
	l := &launch{process: t.newProcess(spec), capture: capture}
	attachment, err := l.launch(attach)
	l.closeChildEnds()
	if err != nil {
		l.abort()
		return nil, nil, err
	}
	l.run()
	switch {
	case capture != nil:
		l.process.superviseHere(capturePatience)
	case attach != nil:
		l.process.superviseHere(startPatience)
	default:
		go l.process.supervise()
	}
	return l.process, attachment, nil
}

// launch starts the child. The reader attaches before that, so that a malformed
// request has started nothing.
func (l *launch) launch(attach *AttachOptions) (a *Attachment, err error) {
	if err := l.prepare(); err != nil {
		return nil, err
	}
	if attach != nil {
		if a, err = l.process.Attach(*attach); err != nil {
			return nil, err
		}
	}
	return a, l.spawn()
}

func (t *Table) newProcess(spec Spec) *Process {
	return &Process{
		id: id.New("p"), table: t, spec: spec,
		exited: make(chan struct{}), settled: make(chan struct{}),
		forgotten: make(chan struct{}), done: make(chan struct{}),
		attachments: make(map[*Attachment]struct{}),
	}
}

// prepare resolves the user and all that depends on it, and opens the files.
func (l *launch) prepare() error {
	p := l.process
	acc, err := p.table.accounts.Serve(p.spec.User, p.table.defaultUser())
	if err != nil {
		return err
	}
	p.account = acc
	args, script, err := p.spec.arguments(acc)
	if err != nil {
		return err
	}
	if script != nil {
		l.childEnd = append(l.childEnd, script)
	}
	p.args, p.dir = args, p.spec.dir(acc)
	l.command = spawn.Command{
		ID: p.id, Args: args, Env: p.spec.environment(acc, p.table.environment()), Dir: p.dir,
		Account: acc, Extra: script, Umask: p.spec.Umask, Nice: p.spec.Nice, OOMScoreAdj: p.spec.OOMScoreAdj,
		Rlimits: p.spec.Rlimits, Await: true,
	}
	if p.spec.Terminal != nil {
		return l.openTerminal(acc)
	}
	return l.openPipes()
}

func (l *launch) openTerminal(acc account.Account) error {
	p := l.process
	terminal, err := openTerminal(*p.spec.Terminal, acc)
	if err != nil {
		return err
	}
	p.terminal = terminal
	l.command.Terminal = true
	l.command.Stdin, l.command.Stdout, l.command.Stderr = terminal.slave, terminal.slave, terminal.slave
	p.input = newInput(terminal.master, terminal, p.wake)
	l.addOutput(Terminal)
	return nil
}

func (l *launch) openPipes() error {
	p := l.process
	if p.spec.Stdin {
		in, err := newPipe(inward)
		if err != nil {
			return err
		}
		l.feed = os.NewFile(uintptr(in.own), "stdin") // known to the poller
		l.childEnd = append(l.childEnd, in.child)
		l.command.Stdin = in.child
		p.input = newInput(l.feed, nil, p.wake)
		if err := in.giveTo(p.account); err != nil {
			return err
		}
	}
	stdout, err := l.outputPipe(Stdout)
	if err != nil {
		return err
	}
	l.command.Stdout, l.command.Stderr = stdout, stdout
	if p.spec.Merge {
		return nil
	}
	l.command.Stderr, err = l.outputPipe(Stderr)
	return err
}

// outputPipe opens the pipe of a stream and returns the child's end.
func (l *launch) outputPipe(stream Stream) (*os.File, error) {
	out, err := l.process.table.takePipe()
	if err != nil {
		return nil, err
	}
	l.sources = append(l.sources, out.own)
	l.childEnd = append(l.childEnd, out.child)
	l.addOutput(stream)
	return out.child, out.giveTo(l.process.account)
}

func (l *launch) addOutput(stream Stream) {
	p := l.process
	options := outlog.Options{Limit: p.spec.LogLimit, Budget: p.table.budget}
	l.capture.apply(&options)
	p.outputs = append(p.outputs, &output{stream: stream, log: outlog.New(options)})
}

// spawn starts the child. Where no working directory was asked for and the home
// cannot be entered, it is /, as login(1) has it.
func (l *launch) spawn() error {
	p := l.process
	p.started = time.Now()
	child, err := p.table.spawner.Start(l.command)
	var failed *spawn.StartError
	if p.spec.Dir == "" && p.dir != "/" && errors.As(err, &failed) && isAboutDir(failed.Reason) {
		p.dir, l.command.Dir = "/", "/"
		child, err = p.table.spawner.Start(l.command)
	}
	if errors.Is(err, spawn.ErrClosed) {
		return ErrClosed
	}
	if err != nil {
		return err
	}
	p.child = child
	return nil
}

func isAboutDir(r spawn.Reason) bool {
	return r == spawn.CwdNotFound || r == spawn.CwdDenied || r == spawn.CwdNotDirectory
}

// run lists the process. It is to be supervised from now on.
func (l *launch) run() {
	p := l.process
	p.unsettled.Store(int32(1 + len(p.outputs)))
	for i, out := range p.outputs {
		onMark := func() {
			p.capture(l.capture, out)
			p.settle()
		}
		if p.terminal != nil {
			out.pump = outlog.NewPump(p.terminal.master, outlog.Terminal, out.log, onMark)
		} else {
			out.pump = outlog.NewPolledPump(l.sources[i], out.log, onMark)
		}
	}
	p.spec.Env = nil // it may hold secrets, and has served
	p.spec.Args, p.spec.Shell = nil, nil
	p.args, p.argsCut = keptArgs(p.args)
	p.table.add(p)
	if p.spec.Timeout > 0 {
		p.timeout = time.AfterFunc(p.spec.Timeout-time.Since(p.started), p.timeOut)
	}
}

func (l *launch) closeChildEnds() {
	for _, file := range l.childEnd {
		file.Close()
	}
}

// abort closes guestd's ends.
func (l *launch) abort() {
	for _, fd := range l.sources {
		unix.Close(fd)
	}
	if l.feed != nil {
		l.feed.Close()
	}
	if l.process.terminal != nil {
		l.process.terminal.master.Close()
		l.process.terminal.slave.Close()
	}
}
