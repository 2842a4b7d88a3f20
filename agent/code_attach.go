package agent

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"guestd.internal/kernel"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// AttachExecution implements guestdv1.CodeServiceServer.
func (s *codeService) AttachExecution(req *guestdv1.AttachExecutionRequest, stream guestdv1.CodeService_AttachExecutionServer) error {
	options, err := eventReader(req.GetReader())
	if err != nil {
		return err
	}
	options.From = req.GetFromNumber()
	x, err := s.contexts.Execution(req.GetExecutionId())
	if err != nil {
		return err
	}
	events, err := x.Attach(options)
	if err != nil {
		return err
	}
	defer events.Close()
	out := &eventSender{execution: x, send: func(e *guestdv1.ExecutionEvent) error {
		return stream.Send(&guestdv1.AttachExecutionResponse{Event: e})
	}}
	if err := out.attached(events.First()); err != nil {
		return err
	}
	return out.run(stream.Context(), events)
}

// attached sends the header of AttachExecution.
func (s *eventSender) attached(next uint64) error {
	return s.send(&guestdv1.ExecutionEvent{
		ExecutionId: s.execution.ID(),
		Time:        timestamppb.Now(),
		Event: &guestdv1.ExecutionEvent_Attached{Attached: &guestdv1.ExecutionAttached{
			ContextId:  s.execution.ContextID(),
			NextNumber: next,
		}},
	})
}

// AcknowledgeExecution implements guestdv1.CodeServiceServer.
func (s *codeService) AcknowledgeExecution(_ context.Context, req *guestdv1.AcknowledgeExecutionRequest) (*guestdv1.AcknowledgeExecutionResponse, error) {
	x, err := s.contexts.Execution(req.GetExecutionId())
	if err != nil {
		return nil, err
	}
	if err := x.Acknowledge(req.GetReaderId(), req.GetNumber()); err != nil {
		return nil, err
	}
	return &guestdv1.AcknowledgeExecutionResponse{}, nil
}

// eventReader converts how events are read.
func eventReader(m *guestdv1.EventReader) (kernel.ReaderOptions, error) {
	options := kernel.ReaderOptions{ID: m.GetReaderId()}
	stall, err := optionalDuration("reader.stall_timeout", m.GetStallTimeout())
	if err != nil {
		return options, err
	}
	if stall != nil {
		if *stall == 0 {
			return options, invalid("reader.stall_timeout", "is zero; leave it out for none")
		}
		options.StallTimeout = *stall
	}
	options.ReconnectGrace, err = optionalDuration("reader.reconnect_grace", m.GetReconnectGrace())
	return options, err
}
