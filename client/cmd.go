package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// Size is a terminal's size. Zero rows mean 24, zero columns 80; zero pixels mean that they are not
// known.
type Size struct {
	Rows, Columns    int
	XPixels, YPixels int
}

// OnDisconnect says what becomes of a process when its client is lost.
type OnDisconnect int

// The choices; the zero value keeps.
const (
	// KeepOnDisconnect lets the process go on.
	KeepOnDisconnect OnDisconnect = iota
	// KillOnDisconnect kills the process's tree once its client has been away for a minute.
	KillOnDisconnect
)

// Cmd is a command in the guest that is being prepared or run. Like an os/exec Cmd it is used once.
// Its fields are set before it is started and not changed after.
type Cmd struct {
	// Args is the program and its arguments. The program is looked up in the guest's PATH unless it
	// has a slash.
	Args []string
	// Shell, where it is not empty, is run instead of Args, as `/bin/sh -c`; with Login as `bash -l -c`.
	Shell string
	// Login, without Shell and Args, runs the user's own login shell.
	Login bool

	// User is who runs it: a name, "name:group", a uid or "uid:gid". Empty is the guest's default user.
	User string
	// Dir is its working directory; a relative one starts at the user's home, which is also what
	// the empty one means.
	Dir string
	// Env changes its environment: "NAME=value" sets, "NAME" alone removes a variable.
	Env []string
	// ClearEnv starts from an empty environment instead of the guest's.
	ClearEnv bool

	// Stdin is what the process reads. Nil is /dev/null, or a terminal on which nobody types. It is
	// read ahead of the process by up to 1 MiB. Wait does not wait for a Read that blocks; what
	// such a Read returns later is lost.
	Stdin io.Reader
	// Stdout and Stderr take its output; nil discards. As io.Writer demands, they must not keep what
	// Write is given: its bytes are overwritten afterwards. A Write that blocks holds this process
	// back and no other. One that fails lets the process get SIGPIPE, as a closed pipe would, and
	// the rest is discarded. They are never written to at the same time.
	Stdout, Stderr io.Writer
	// Merge makes stderr go where stdout goes, in the order written; Stderr is then not used.
	Merge bool
	// Terminal, where it is not nil, runs it in a terminal of this size. All its output then goes
	// to Stdout.
	Terminal *Size

	// Timeout is how long it may run; then its tree gets SIGTERM, and SIGKILL after KillGrace. 0 is
	// for ever.
	Timeout time.Duration
	// KillGrace is the time between the two. 0 is guestd's default of 2 s; a negative one means
	// SIGKILL at once.
	KillGrace time.Duration
	// Labels mark it for Processes.
	Labels map[string]string
	// KeepOnCancel leaves the process alone when the context of Start or Run is done; otherwise its
	// tree is killed.
	KeepOnCancel bool
	// OnDisconnect says what becomes of it when this client is lost without a word.
	OnDisconnect OnDisconnect
	// OnGap is told of output that was lost, at its place in the stream, before the output that
	// follows it. Where it is nil, Wait tells: GapError.
	OnGap func(Gap)

	client  *Client
	running atomic.Pointer[running]
}

// Command prepares a command with arguments; no shell is involved.
func (c *Client) Command(args ...string) *Cmd { return &Cmd{Args: args, client: c} }

// Shell prepares one line for the guest's shell.
func (c *Client) Shell(line string) *Cmd { return &Cmd{Shell: line, client: c} }

// Run starts the command and waits for its end. See Wait for its errors.
func (c *Cmd) Run(ctx context.Context) error {
	r, err := c.begin(ctx)
	if err != nil {
		return err
	}
	r.run()
	return r.wait()
}

// Start starts the command and returns once it runs in the guest. When ctx is done, also later, the
// command's tree is killed unless KeepOnCancel is set. A start that fails is an Error that tells
// why: errors.Is knows exec.ErrNotFound, ErrNotExecutable, fs.ErrNotExist (the working directory),
// ErrUserNotFound.
func (c *Cmd) Start(ctx context.Context) error {
	r, err := c.begin(ctx)
	if err != nil {
		return err
	}
	go r.run()
	return nil
}

// Wait waits for the end of a command that was started, and for its output to be written. The error
// is nil for exit code 0, and for every other end it is an *ExitError, joined with what else went
// wrong with a reader, a writer or the output, if anything did: find it with errors.As. Where the
// context's end has killed the command, the ExitError wraps its cause.
func (c *Cmd) Wait() error {
	r := c.running.Load()
	if r == nil {
		return fmt.Errorf("waiting for a command: %w", ErrNotStarted)
	}
	return r.wait()
}

// Output runs the command and returns its stdout.
func (c *Cmd) Output(ctx context.Context) ([]byte, error) {
	var out bytes.Buffer
	if c.Stdout != nil {
		return nil, errors.New("guestd client: Stdout is set already")
	}
	c.Stdout = &out
	err := c.Run(ctx)
	return out.Bytes(), err
}

// CombinedOutput runs the command and returns its stdout and stderr in the order written.
func (c *Cmd) CombinedOutput(ctx context.Context) ([]byte, error) {
	c.Merge = true
	return c.Output(ctx)
}

// ID is the process's id, by which every client can attach to it. It is empty before the start.
func (c *Cmd) ID() string {
	if r := c.running.Load(); r != nil {
		return r.session.id
	}
	return ""
}

// PID is the leader's pid in the guest: information, not a handle. It is 0 before the start.
func (c *Cmd) PID() int {
	if r := c.running.Load(); r != nil {
		return r.session.pid
	}
	return 0
}

// Status tells how the command ended; nil before that.
func (c *Cmd) Status() *ExitStatus {
	if r := c.running.Load(); r != nil {
		return r.status()
	}
	return nil
}

// Signal sends a signal to the command's whole tree. It does not wait until it has arrived. It may be
// called while Start is under way, and fails with ErrNotStarted until the command's first output can
// come.
func (c *Cmd) Signal(signal syscall.Signal) error { return c.running.Load().signal(signal) }

// Resize sets the size of the command's terminal; the last one wins. It fails as Signal does.
func (c *Cmd) Resize(size Size) error { return c.running.Load().resize(size) }

// Leave lets the command go on without this client, whatever OnDisconnect says, and ends Wait with ErrLeft.
// Input that was read is delivered before, and what Stdin gives later is lost; the command is not held
// back for this client any more, and whoever attaches by ID finds its output as far as guestd has it. It
// fails as Signal does, and with ErrUnavailable, having left all the same, where guestd does not confirm
// it within a second: then input may be lost, and a command that fills its log waits for a minute.
func (c *Cmd) Leave() error { return c.running.Load().leave() }

// Detach starts the command without a reader and returns its id: it goes on by itself, and can be
// attached to, waited for and signalled by its id. Stdin, Stdout and Stderr must be nil: its stdin
// is /dev/null, or its terminal.
func (c *Cmd) Detach(ctx context.Context) (id string, err error) {
	if c.Stdin != nil || c.Stdout != nil || c.Stderr != nil {
		return "", errors.New("guestd client: a detached command has no reader and no writers")
	}
	spec, err := c.spec()
	if err != nil {
		return "", err
	}
	response, err := c.client.processes.Start(ctx, &guestdv1.StartRequest{RequestId: newRequestID(), Spec: spec})
	if err != nil {
		return "", fromCall(ctx, err)
	}
	return response.GetProcessId(), nil
}

// begin starts the command; the caller sees to it that what it returns is run.
func (c *Cmd) begin(ctx context.Context) (*running, error) {
	if c.running.Load() != nil {
		return nil, errors.New("guestd client: the command was started already")
	}
	spec, err := c.spec()
	if err != nil {
		return nil, err
	}
	reader := newReader()
	s := c.client.newSession(ctx, reader, c.Stdout, c.Stderr)
	s.start = &guestdv1.ExecStart{RequestId: newRequestID(), Spec: spec, Reader: reader}
	s.onGap = c.OnGap
	r, err := s.begin(ctx, c.Stdin, c.KeepOnCancel)
	if err != nil {
		return nil, err
	}
	c.running.Store(r)
	return r, nil
}
