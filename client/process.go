package client

import (
	"context"
	"io"
	"iter"
	"syscall"
	"time"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// Process describes a process of the guest.
type Process struct {
	// ID is its id, PID the leader's pid (information only).
	ID  string
	PID int
	// Running: the leader has not ended.
	Running bool
	// Args is the program and its arguments, cut after 4 KiB in lists, which ArgsTruncated tells.
	Args          []string
	ArgsTruncated bool
	// User, Dir and Labels are as at its start.
	User, Dir string
	Labels    map[string]string
	// Terminal is its terminal's size now; nil where it has none.
	Terminal *Size
	// Started is by the guest's clock.
	Started time.Time
	// Exit is how it ended; nil while it runs.
	Exit *ExitStatus
	// Output is how many bytes each stream has had.
	Output map[Stream]uint64
	// Readers are attached now.
	Readers int
	// Timeout is 0 where it has none.
	Timeout time.Duration
}

func processOf(p *guestdv1.Process) *Process {
	process := &Process{
		ID: p.GetProcessId(), PID: int(p.GetPid()),
		Running: p.GetState() == guestdv1.ProcessState_PROCESS_STATE_RUNNING,
		Args:    plainStrings(p.GetArguments()), ArgsTruncated: p.GetArgumentsTruncated(),
		User: p.GetUser(), Dir: string(p.GetCwd()), Labels: p.GetLabels(),
		Started: timeOf(p.GetStartTime()), Exit: exitStatus(p.GetExit()),
		Output: make(map[Stream]uint64), Readers: int(p.GetReaders()), Timeout: p.GetTimeout().AsDuration(),
	}
	if t := p.GetTerminal(); t != nil {
		process.Terminal = &Size{
			Rows: int(t.GetRows()), Columns: int(t.GetColumns()), XPixels: int(t.GetXPixels()), YPixels: int(t.GetYPixels()),
		}
	}
	for _, offset := range p.GetOutput() {
		process.Output[Stream(offset.GetStream())] = offset.GetOffset()
	}
	return process
}

// ProcessFilter chooses processes; the zero value means all that are listed.
type ProcessFilter struct {
	// RunningOnly leaves out what has ended.
	RunningOnly bool
	// Labels must all be there with these values.
	Labels map[string]string
}

// Processes lists processes, oldest first: those that run, and those that ended in the last ten
// minutes. It ends after the first error.
func (c *Client) Processes(ctx context.Context, filter ProcessFilter) iter.Seq2[*Process, error] {
	return func(yield func(*Process, error) bool) {
		request := &guestdv1.ProcessServiceListRequest{Labels: filter.Labels, PageSize: 1000}
		if filter.RunningOnly {
			request.State = guestdv1.ProcessState_PROCESS_STATE_RUNNING
		}
		for {
			page, err := c.processes.List(ctx, request)
			if err != nil {
				yield(nil, fromCall(ctx, err))
				return
			}
			for _, p := range page.GetProcesses() {
				if !yield(processOf(p), nil) {
					return
				}
			}
			if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
				return
			}
		}
	}
}

// Process describes one process.
func (c *Client) Process(ctx context.Context, id string) (*Process, error) {
	if err := checkText("process_id", id); err != nil {
		return nil, err
	}
	response, err := c.processes.Get(ctx, &guestdv1.GetRequest{ProcessId: id})
	if err != nil {
		return nil, fromCall(ctx, err)
	}
	return processOf(response.GetProcess()), nil
}

// WaitProcess waits for a process's end and tells it; a non-zero exit is no error here. It comes back
// after its connection was lost.
func (c *Client) WaitProcess(ctx context.Context, id string) (*ExitStatus, error) {
	if err := checkText("process_id", id); err != nil {
		return nil, err
	}
	look := func() error {
		_, err := c.Process(ctx, id)
		return err
	}
	// A guestd that was never reached is not come back to.
	if err := look(); err != nil {
		return nil, err
	}
	for {
		response, err := c.processes.Wait(ctx, &guestdv1.WaitRequest{ProcessId: id})
		if err == nil {
			return exitStatus(response.GetExit()), nil
		}
		if err = fromCall(ctx, err); !broken(err) {
			return nil, err
		}
		if err := c.comeBack(ctx, err, look); err != nil {
			return nil, err
		}
	}
}

// SignalProcess sends a signal to a process's whole tree.
func (c *Client) SignalProcess(ctx context.Context, id string, signal syscall.Signal) error {
	if err := checkText("process_id", id); err != nil {
		return err
	}
	_, err := c.processes.Signal(ctx, &guestdv1.SignalRequest{
		ProcessId: id, Signal: &guestdv1.ProcessSignal{Signal: uint32(signal)},
	})
	return fromCall(ctx, err)
}

// ResizeProcess sets the size of a process's terminal.
func (c *Client) ResizeProcess(ctx context.Context, id string, size Size) error {
	if err := checkText("process_id", id); err != nil {
		return err
	}
	_, err := c.processes.Resize(ctx, &guestdv1.ResizeRequest{ProcessId: id, Size: size.proto()})
	return fromCall(ctx, err)
}

// AttachOptions says how a process is followed; the zero value reads all its output from the start
// that guestd still has, and types nothing.
type AttachOptions struct {
	// Stdin goes to the process's stdin or terminal; nil leaves it alone. Its end closes the
	// process's stdin.
	Stdin io.Reader
	// Stdout and Stderr are as in Cmd.
	Stdout, Stderr io.Writer
	// From are the offsets to start at, a stream each.
	From map[Stream]uint64
	// FromNow starts the streams that From leaves out at what is written from now on.
	FromNow bool
	// Follow never holds the process back: what this reader is too slow for is a gap.
	Follow bool
	// AfterExit reads on after the leader's end, until the last holder of the streams has closed them.
	AfterExit bool
	// OnGap is as in Cmd.
	OnGap func(Gap)
}

// Attachment follows a process that was started elsewhere.
type Attachment struct {
	running *running
}

// Attach follows a process. When ctx is done the attachment ends and the process goes on.
func (c *Client) Attach(ctx context.Context, id string, options AttachOptions) (*Attachment, error) {
	if err := checkText("attach.process_id", id); err != nil {
		return nil, err
	}
	reader := newReader()
	if options.Follow {
		reader.Mode = guestdv1.ReaderMode_READER_MODE_FOLLOWING
	}
	s := c.newSession(ctx, reader, options.Stdout, options.Stderr)
	s.attach = &guestdv1.ProcessAttach{
		ProcessId: id, Reader: reader, FromNow: options.FromNow, FollowAfterExit: options.AfterExit,
	}
	for stream, offset := range options.From {
		s.attach.Offsets = append(s.attach.Offsets, &guestdv1.StreamOffset{
			Stream: guestdv1.OutputStream(stream), Offset: offset,
		})
	}
	s.onGap = options.OnGap
	r, err := s.begin(ctx, options.Stdin, true)
	if err != nil {
		return nil, err
	}
	go r.run()
	return &Attachment{running: r}, nil
}

// Wait waits for the process's end and for its output to be written; its errors are those of Cmd.Wait.
func (a *Attachment) Wait() error { return a.running.wait() }

// ID is the process's id.
func (a *Attachment) ID() string { return a.running.session.id }

// Leave ends the attachment as Cmd.Leave does.
func (a *Attachment) Leave() error { return a.running.leave() }

// Status tells how the process ended; nil before that.
func (a *Attachment) Status() *ExitStatus { return a.running.status() }

// Signal sends a signal to the process's whole tree.
func (a *Attachment) Signal(signal syscall.Signal) error { return a.running.signal(signal) }

// Resize sets the size of the process's terminal.
func (a *Attachment) Resize(size Size) error { return a.running.resize(size) }
