package agent

import (
	"context"
	"errors"
	"io"

	"guestd.internal/agent/internal/replay"
	"guestd.internal/kernel"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// codeService serves guestd.v1.CodeService from package kernel.
type codeService struct {
	guestdv1.UnimplementedCodeServiceServer
	contexts *kernel.Contexts

	// The contexts that calls with a request id have made or restarted, each for as
	// long as it is listed.
	created, restarted replay.Table[string]
}

func newCodeService(contexts *kernel.Contexts) *codeService {
	listed := func(id string) bool {
		_, err := contexts.Get(id)
		return err == nil
	}
	return &codeService{
		contexts:  contexts,
		created:   replay.Table[string]{Keep: listed},
		restarted: replay.Table[string]{Keep: listed},
	}
}

// Execute implements guestdv1.CodeServiceServer. The execution goes on when the
// stream ends early.
func (s *codeService) Execute(req *guestdv1.ExecuteRequest, stream guestdv1.CodeService_ExecuteServer) error {
	r, err := executeRequest(req)
	if err != nil {
		return err
	}
	options, err := eventReader(req.GetReader())
	if err != nil {
		return err
	}
	x, err := s.contexts.Execute(stream.Context(), r)
	if err != nil {
		return err
	}
	options.From = 1
	events, err := x.Attach(options)
	if err != nil {
		return err
	}
	defer events.Close()
	out := &eventSender{execution: x, send: func(e *guestdv1.ExecutionEvent) error {
		return stream.Send(&guestdv1.ExecuteResponse{Event: e})
	}}
	return out.run(stream.Context(), events)
}

// Interrupt implements guestdv1.CodeServiceServer.
func (s *codeService) Interrupt(_ context.Context, req *guestdv1.InterruptRequest) (*guestdv1.InterruptResponse, error) {
	resp := &guestdv1.InterruptResponse{}
	switch target := req.GetTarget().(type) {
	case *guestdv1.InterruptRequest_ExecutionId:
		interrupted, err := s.contexts.InterruptExecution(target.ExecutionId)
		if err != nil {
			return nil, err
		}
		if interrupted {
			resp.ExecutionId = target.ExecutionId
		}
	case *guestdv1.InterruptRequest_ContextId:
		id, err := s.contexts.InterruptContext(target.ContextId)
		if err != nil {
			return nil, err
		}
		resp.ExecutionId = id
	default:
		return nil, invalid("target", "must name an execution or a context")
	}
	return resp, nil
}

// ReplyInput implements guestdv1.CodeServiceServer.
func (s *codeService) ReplyInput(_ context.Context, req *guestdv1.ReplyInputRequest) (*guestdv1.ReplyInputResponse, error) {
	id, number := req.GetExecutionId(), req.GetRequestNumber()
	reply := func() error { return s.contexts.ReplyInput(id, number, req.GetValue()) }
	if req.GetEndOfInput() {
		if req.GetValue() != "" {
			return nil, invalid("value", "must be empty with end_of_input")
		}
		reply = func() error { return s.contexts.EndInput(id, number) }
	}
	if err := reply(); err != nil {
		return nil, err
	}
	return &guestdv1.ReplyInputResponse{}, nil
}

// executeRequest converts a request; kernel checks it.
func executeRequest(req *guestdv1.ExecuteRequest) (kernel.Request, error) {
	timeout, err := optionalDuration("timeout", req.GetTimeout())
	if err != nil {
		return kernel.Request{}, err
	}
	env, err := envVars("env", req.GetEnv())
	if err != nil {
		return kernel.Request{}, err
	}
	return kernel.Request{
		ContextID:  req.GetContextId(),
		Language:   req.GetLanguage(),
		Code:       req.GetCode(),
		Timeout:    timeout,
		AllowStdin: req.GetAllowStdin(),
		Env:        env,
		Dir:        string(req.GetCwd()),
		RequestID:  req.GetRequestId(),
	}, nil
}

// eventSender sends an execution's events in the API's form.
type eventSender struct {
	execution *kernel.Execution
	send      func(*guestdv1.ExecutionEvent) error
}

// run sends events until the execution's last one.
func (s *eventSender) run(ctx context.Context, events *kernel.EventReader) error {
	for {
		e, err := events.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.event(e); err != nil {
			return err
		}
	}
}

// event sends one event, and behind a result the parts too large for it.
func (s *eventSender) event(e kernel.Event) error {
	out := &guestdv1.ExecutionEvent{
		ExecutionId: s.execution.ID(),
		Number:      e.Number,
		Time:        timestamp(e.Time),
	}
	result, ok := e.Body.(kernel.Result)
	if !ok {
		setEventBody(out, s.execution.ContextID(), e.Body)
		return s.send(out)
	}
	message, large := resultMessage(result)
	out.Event = &guestdv1.ExecutionEvent_Result{Result: message}
	if err := s.send(out); err != nil {
		return err
	}
	for _, part := range large {
		if err := s.data(out, result.Number, part); err != nil {
			return err
		}
	}
	return nil
}

// data sends a large part in pieces, under its result's number and time.
func (s *eventSender) data(of *guestdv1.ExecutionEvent, result uint32, part kernel.MIMEPart) error {
	for offset := 0; offset < len(part.Data); offset += maxPayload {
		end := min(offset+maxPayload, len(part.Data))
		err := s.send(&guestdv1.ExecutionEvent{
			ExecutionId: of.GetExecutionId(),
			Number:      of.GetNumber(),
			Time:        of.GetTime(),
			Event: &guestdv1.ExecutionEvent_Data{Data: &guestdv1.ExecutionData{
				ResultNumber: result,
				Mime:         part.MIME,
				Offset:       uint64(offset),
				Bytes:        part.Data[offset:end],
				Last:         end == len(part.Data),
			}},
		})
		if err != nil {
			return err
		}
	}
	return nil
}
