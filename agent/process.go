package agent

import (
	"context"
	"fmt"
	"syscall"

	"guestd.internal/agent/internal/replay"
	"guestd.internal/internal/spawn"
	"guestd.internal/proc"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

const (
	// defaultCapture and maxCapture are how many bytes of each stream Run's
	// answer carries: both streams together stay within one message's payload.
	defaultCapture = 256 << 10
	maxCapture     = 512 << 10
	// maxRunStdin bounds Run's stdin, below the limit of a message.
	maxRunStdin = 7 << 20
	// maxInputFrame bounds one frame of input.
	maxInputFrame = 1 << 20
)

// processService serves guestd.v1.ProcessService from package proc.
type processService struct {
	guestdv1.UnimplementedProcessServiceServer
	processes *proc.Table
	instance  string // the instance id that goes with process ids

	// What calls with a request id have started, each for as long as it is listed.
	runs, execs, starts replay.Table[*proc.Process]
}

func newProcessService(processes *proc.Table, instance string) *processService {
	listed := func(p *proc.Process) bool {
		_, err := processes.Get(p.ID())
		return err == nil
	}
	return &processService{
		processes: processes,
		instance:  instance,
		runs:      replay.Table[*proc.Process]{Keep: listed},
		execs:     replay.Table[*proc.Process]{Keep: listed},
		starts:    replay.Table[*proc.Process]{Keep: listed},
	}
}

// Run implements guestdv1.ProcessServiceServer.
func (s *processService) Run(ctx context.Context, req *guestdv1.RunRequest) (*guestdv1.RunResponse, error) {
	spec, err := processSpec(req.GetSpec())
	if err != nil {
		return nil, err
	}
	limit := uint64(defaultCapture)
	if req.MaxCaptureBytes != nil {
		limit = req.GetMaxCaptureBytes()
	}
	if limit > maxCapture {
		return nil, invalid("max_capture_bytes", fmt.Sprintf("is %d, must be at most %d", limit, maxCapture))
	}
	if n := len(req.GetStdin()); n > maxRunStdin {
		return nil, invalid("stdin", fmt.Sprintf("has %d bytes, must have at most %d: use Exec", n, maxRunStdin))
	}
	if spec.Stdin && req.Stdin == nil {
		return nil, invalid("spec.stdin", "is a pipe that nobody can write to: set stdin, or use Exec")
	}
	p, _, err := s.runs.Do(ctx, req.GetRequestId(), req, func() (*proc.Process, error) {
		return s.processes.StartCaptured(ctx, spec, req.Stdin, int(limit))
	})
	if err != nil {
		return nil, inAPI(err)
	}
	if req.GetRequestId() == "" {
		defer p.DropCaptured() // nobody can ask again
	}
	result, err := p.Captured(ctx)
	if err != nil {
		return nil, err
	}
	info := p.Info()
	resp := &guestdv1.RunResponse{
		ProcessId:   info.ID,
		Pid:         uint32(info.PID),
		Exit:        exitMessage(&result.Exit),
		InputClosed: result.InputClosed,
	}
	for _, c := range result.Outputs {
		resp.Outputs = append(resp.Outputs, &guestdv1.CapturedOutput{
			Stream: streams[c.Stream], Head: c.Head, Tail: c.Tail, GapBytes: c.Gap, TotalBytes: c.Total})
	}
	return resp, nil
}

// Start implements guestdv1.ProcessServiceServer.
func (s *processService) Start(ctx context.Context, req *guestdv1.StartRequest) (*guestdv1.StartResponse, error) {
	spec, err := processSpec(req.GetSpec())
	if err != nil {
		return nil, err
	}
	p, _, err := s.starts.Do(ctx, req.GetRequestId(), req, func() (*proc.Process, error) {
		return s.processes.Start(ctx, spec)
	})
	if err != nil {
		return nil, inAPI(err)
	}
	info := p.Info()
	return &guestdv1.StartResponse{ProcessId: info.ID, Pid: uint32(info.PID), InstanceId: s.instance}, nil
}

// WriteInput implements guestdv1.ProcessServiceServer.
func (s *processService) WriteInput(ctx context.Context, req *guestdv1.WriteInputRequest) (*guestdv1.WriteInputResponse, error) {
	p, err := s.processes.Get(req.GetProcessId())
	if err != nil {
		return nil, err
	}
	if n := len(req.GetData()); n > maxInputFrame {
		return nil, invalid("data", fmt.Sprintf("has %d bytes, must have at most %d", n, maxInputFrame))
	}
	var accepted uint64
	if req.Offset != nil {
		accepted, err = p.WriteInput(ctx, req.GetOffset(), req.GetData())
	} else {
		accepted, err = p.AppendInput(ctx, req.GetData())
	}
	if err != nil {
		return nil, err
	}
	return &guestdv1.WriteInputResponse{AcceptedOffset: accepted}, nil
}

// CloseInput implements guestdv1.ProcessServiceServer.
func (s *processService) CloseInput(_ context.Context, req *guestdv1.CloseInputRequest) (*guestdv1.CloseInputResponse, error) {
	p, err := s.processes.Get(req.GetProcessId())
	if err != nil {
		return nil, err
	}
	if req.Offset != nil {
		err = p.CloseInput(req.GetOffset())
	} else {
		err = p.EndInput()
	}
	if err != nil {
		return nil, err
	}
	return &guestdv1.CloseInputResponse{}, nil
}

// Resize implements guestdv1.ProcessServiceServer.
func (s *processService) Resize(_ context.Context, req *guestdv1.ResizeRequest) (*guestdv1.ResizeResponse, error) {
	p, err := s.processes.Get(req.GetProcessId())
	if err != nil {
		return nil, err
	}
	if err := resize(p, req.GetSize(), "size"); err != nil {
		return nil, err
	}
	return &guestdv1.ResizeResponse{}, nil
}

// Signal implements guestdv1.ProcessServiceServer.
func (s *processService) Signal(_ context.Context, req *guestdv1.SignalRequest) (*guestdv1.SignalResponse, error) {
	p, err := s.processes.Get(req.GetProcessId())
	if err != nil {
		return nil, err
	}
	if err := signal(p, req.GetSignal(), "signal"); err != nil {
		return nil, err
	}
	return &guestdv1.SignalResponse{}, nil
}

// Wait implements guestdv1.ProcessServiceServer.
func (s *processService) Wait(ctx context.Context, req *guestdv1.WaitRequest) (*guestdv1.WaitResponse, error) {
	p, err := s.processes.Get(req.GetProcessId())
	if err != nil {
		return nil, err
	}
	exit, err := p.Wait(ctx)
	if err != nil {
		return nil, err
	}
	return &guestdv1.WaitResponse{Exit: exitMessage(&exit)}, nil
}

// Get implements guestdv1.ProcessServiceServer.
func (s *processService) Get(_ context.Context, req *guestdv1.GetRequest) (*guestdv1.GetResponse, error) {
	p, err := s.processes.Get(req.GetProcessId())
	if err != nil {
		return nil, err
	}
	info := p.Info()
	return &guestdv1.GetResponse{Process: processMessage(&info, 0)}, nil
}

// List implements guestdv1.ProcessServiceServer.
func (s *processService) List(_ context.Context, req *guestdv1.ProcessServiceListRequest) (*guestdv1.ProcessServiceListResponse, error) {
	filter := proc.Filter{Labels: req.GetLabels(), Token: req.GetPageToken()}
	switch req.GetState() {
	case guestdv1.ProcessState_PROCESS_STATE_UNSPECIFIED:
		filter.State = proc.AnyState
	case guestdv1.ProcessState_PROCESS_STATE_RUNNING:
		filter.State = proc.Running
	case guestdv1.ProcessState_PROCESS_STATE_EXITED:
		filter.State = proc.Ended
	default:
		return nil, checkEnums("", req)
	}
	if req.GetPageSize() > proc.MaxPage {
		return nil, invalid("page_size", fmt.Sprintf("is %d, must be at most %d", req.GetPageSize(), proc.MaxPage))
	}
	filter.Size = int(req.GetPageSize())
	page, next, err := s.processes.List(filter)
	if err != nil {
		return nil, inAPI(err)
	}
	resp := &guestdv1.ProcessServiceListResponse{NextPageToken: next, Processes: make([]*guestdv1.Process, len(page))}
	for i := range page {
		resp.Processes[i] = processMessage(&page[i], maxListedArgs)
	}
	return resp, nil
}

// resize sets the size of a process's terminal; field is where the request has it.
func resize(p *proc.Process, m *guestdv1.TerminalSize, field string) error {
	if m == nil {
		return invalid(field, "is missing")
	}
	size, err := terminalSize(field, m)
	if err != nil {
		return err
	}
	return p.Resize(size)
}

// signal sends a signal to a process; field is where the request has it.
func signal(p *proc.Process, m *guestdv1.ProcessSignal, field string) error {
	if m == nil {
		return invalid(field, "is missing")
	}
	if n := m.GetSignal(); n < 1 || n > 64 {
		return invalid(field+".signal", fmt.Sprintf("is %d, must be 1 to 64", n))
	}
	if err := checkEnums(field, m); err != nil {
		return err
	}
	scope := spawn.Tree
	if m.GetScope() == guestdv1.SignalScope_SIGNAL_SCOPE_LEADER {
		scope = spawn.Leader
	}
	return p.Signal(syscall.Signal(m.GetSignal()), scope)
}
