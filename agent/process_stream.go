package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"guestd.internal/internal/outlog"
	"guestd.internal/internal/wire"
	"guestd.internal/proc"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// processStream is what Exec and Attach have in common: requests in, events out.
type processStream struct {
	ctx context.Context
	// recv receives a request. Input's data is gone with the next.
	recv func() (*guestdv1.ProcessRequest, error)
	send func(*guestdv1.ProcessEvent) error
	// sendPiece sends an event that is encoded already.
	sendPiece func(*wire.Piece) error
}

// processRequest is an ExecRequest or an AttachRequest.
type processRequest interface {
	proto.Message
	GetRequest() *guestdv1.ProcessRequest
}

// requestReceiver receives the requests of a stream into m, input without copying it.
func requestReceiver[M processRequest](stream grpc.ServerStream, m M) func() (*guestdv1.ProcessRequest, error) {
	// The data's path: request, input, data.
	view := wire.NewView(m, inputData[M], 1, 3, 2)
	return func() (*guestdv1.ProcessRequest, error) {
		if err := stream.RecvMsg(view); err != nil {
			view.Free()
			return nil, err
		}
		return view.Message().GetRequest(), nil
	}
}

// inputData is the data of a request with input, nil of another.
func inputData[M processRequest](m M) *[]byte {
	if input := m.GetRequest().GetInput(); input != nil {
		return &input.Data
	}
	return nil
}

// Exec implements guestdv1.ProcessServiceServer.
func (s *processService) Exec(stream guestdv1.ProcessService_ExecServer) error {
	ps := &processStream{
		ctx:       stream.Context(),
		recv:      requestReceiver(stream, &guestdv1.ExecRequest{}),
		send:      func(e *guestdv1.ProcessEvent) error { return stream.Send(&guestdv1.ExecResponse{Event: e}) },
		sendPiece: func(p *wire.Piece) error { return stream.SendMsg(p) },
	}
	first, err := ps.recv()
	if err != nil {
		return firstMessageError(err, "start")
	}
	start := first.GetStart()
	if start == nil {
		return invalid("start", "must be the first message of Exec")
	}
	spec, err := processSpec(start.GetSpec())
	if err != nil {
		return err
	}
	options, err := readerOptions("reader", start.GetReader())
	if err != nil {
		return err
	}
	var attachment *proc.Attachment
	p, repeated, err := s.execs.Do(ps.ctx, start.GetRequestId(), start, func() (p *proc.Process, err error) {
		p, attachment, err = s.processes.Exec(ps.ctx, spec, options)
		return p, err
	})
	if repeated && err == nil {
		attachment, err = p.Attach(options)
	}
	if err != nil {
		return inAPI(err)
	}
	info := p.Info()
	return ps.serve(p, attachment, &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_Started{
		Started: &guestdv1.ProcessStarted{
			ProcessId:   info.ID,
			Pid:         uint32(info.PID),
			InstanceId:  s.instance,
			StartTime:   timestamp(info.Start),
			InputOffset: attachment.InputOffset(),
		}}})
}

// Attach implements guestdv1.ProcessServiceServer.
func (s *processService) Attach(stream guestdv1.ProcessService_AttachServer) error {
	ps := &processStream{
		ctx:       stream.Context(),
		recv:      requestReceiver(stream, &guestdv1.AttachRequest{}),
		send:      func(e *guestdv1.ProcessEvent) error { return stream.Send(&guestdv1.AttachResponse{Event: e}) },
		sendPiece: func(p *wire.Piece) error { return stream.SendMsg(p) },
	}
	first, err := ps.recv()
	if err != nil {
		return firstMessageError(err, "attach")
	}
	attach := first.GetAttach()
	if attach == nil {
		return invalid("attach", "must be the first message of Attach")
	}
	options, err := attachOptions(attach)
	if err != nil {
		return err
	}
	p, err := s.processes.Get(attach.GetProcessId())
	if err != nil {
		return err
	}
	attachment, err := p.Attach(options)
	if err != nil {
		return inAPI(err)
	}
	info := p.Info()
	return ps.serve(p, attachment, &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_Attached{
		Attached: &guestdv1.ProcessAttached{
			Process:     processMessage(&info, 0),
			Offsets:     streamOffsets(attachment.Offsets()),
			InputOffset: attachment.InputOffset(),
		}}})
}

// firstMessageError is for a call whose first message did not come.
func firstMessageError(err error, want string) error {
	if errors.Is(err, io.EOF) {
		return invalid(want, "must be the first message; there was none")
	}
	return err
}

// serve sends the header and then the attachment's events, and meanwhile does
// what the client asks for. A malformed or impossible request ends the call.
func (ps *processStream) serve(p *proc.Process, a *proc.Attachment, header *guestdv1.ProcessEvent) error {
	ctx, cancel := context.WithCancelCause(ps.ctx)
	requests := &requestReader{stream: ps, process: p, attachment: a}
	err := ps.send(header)
	switch {
	case err != nil:
	case a.Over(): // there is nothing to ask for any more, as of most commands
		err = ps.events(ctx, a)
	default:
		// The goroutine ends with the call: its Recv fails once the handler
		// has returned, so it is not waited for.
		go func() {
			defer func() {
				if value := recover(); value != nil {
					cancel(&panicError{value, debug.Stack()})
				}
			}()
			if err := requests.run(ctx); err != nil {
				cancel(err)
			}
		}()
		err = ps.events(ctx, a)
	}
	refused := context.Cause(ctx)
	if err != nil && refused != nil && ps.ctx.Err() == nil {
		err = refused // a request, and not what waited for the next event
	}
	if errors.Is(refused, errLeft) {
		err = nil // also where the client has not waited for the call's end
	}
	cancel(errCallEnded)
	if err == nil {
		a.Close()
	} else {
		a.Detach()
	}
	return err
}

// events sends events until the attachment's last one.
func (ps *processStream) events(ctx context.Context, a *proc.Attachment) error {
	for {
		e, err := a.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if out, ok := e.(proc.Output); ok {
			err = ps.sendPiece(outputPiece(out))
		} else {
			err = ps.send(eventMessage(e))
		}
		if err != nil {
			return err
		}
	}
}

// errLeft ends a call whose client leaves the process alone.
var errLeft = errors.New("the client has left")

// requestReader does what the requests of one stream ask for, in order.
type requestReader struct {
	stream     *processStream
	process    *proc.Process
	attachment *proc.Attachment
}

// run ends with the request stream, which closes nothing, or with the first
// request that cannot be done.
func (r *requestReader) run(ctx context.Context) error {
	for {
		m, err := r.stream.recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.request(ctx, m); err != nil {
			return err
		}
	}
}

func (r *requestReader) request(ctx context.Context, m *guestdv1.ProcessRequest) error {
	switch req := m.GetRequest().(type) {
	case *guestdv1.ProcessRequest_Input:
		return r.input(ctx, req.Input)
	case *guestdv1.ProcessRequest_CloseInput:
		return r.attachment.CloseInput(req.CloseInput.GetOffset())
	case *guestdv1.ProcessRequest_Resize:
		return resize(r.process, req.Resize, "resize")
	case *guestdv1.ProcessRequest_Signal:
		return ended(signal(r.process, req.Signal, "signal"))
	case *guestdv1.ProcessRequest_Ack:
		ack, err := streamOffset("ack", req.Ack)
		if err != nil {
			return err
		}
		err = r.attachment.Ack(ack.Stream, ack.Offset)
		if malformed, ok := errors.AsType[*proc.InvalidError](err); ok {
			return invalid("ack."+malformed.Field, malformed.Problem)
		}
		return err
	case *guestdv1.ProcessRequest_Leave:
		return errLeft
	case *guestdv1.ProcessRequest_Start, *guestdv1.ProcessRequest_Attach:
		return invalid("request", "start and attach may only be the first message")
	default:
		return invalid("request", "is empty, or of a kind that this version does not know")
	}
}

func (r *requestReader) input(ctx context.Context, m *guestdv1.ProcessInput) error {
	if n := len(m.GetData()); n > maxInputFrame {
		return invalid("input.data", fmt.Sprintf("has %d bytes, must have at most %d", n, maxInputFrame))
	}
	_, err := r.attachment.WriteInput(ctx, m.GetOffset(), m.GetData())
	if errors.Is(err, proc.ErrInputClosed) {
		return nil // told by input_status; the output goes on
	}
	return err
}

// ended lets a signal pass that came too late: on a stream the exit is on its way.
func ended(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// outputPath leads from ExecResponse and from AttachResponse to ProcessOutput: the
// fields event and output.
var outputPath = []protowire.Number{1, 3}

// The fields of ProcessOutput.
const (
	outputStream protowire.Number = 1
	outputOffset protowire.Number = 2
	outputData   protowire.Number = 3
)

// outputPiece is an ExecResponse or AttachResponse with output, which goes from the
// log to the connection without being copied.
func outputPiece(out proc.Output) *wire.Piece {
	fields := make([]byte, 0, 16)
	fields = protowire.AppendTag(fields, outputStream, protowire.VarintType)
	fields = protowire.AppendVarint(fields, uint64(streams[out.Stream]))
	if out.Offset > 0 { // as for every field, 0 is left out
		fields = protowire.AppendTag(fields, outputOffset, protowire.VarintType)
		fields = protowire.AppendVarint(fields, out.Offset)
	}
	return &wire.Piece{Path: outputPath, Fields: fields, Number: outputData, Data: out.Data, Release: out.Release}
}

// eventMessage converts an event other than output.
func eventMessage(e proc.Event) *guestdv1.ProcessEvent {
	switch e := e.(type) {
	case proc.Gap:
		return &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_Gap{Gap: &guestdv1.ProcessGap{
			Stream: streams[e.Stream], StartOffset: e.From, EndOffset: e.To}}}
	case proc.Resized:
		return &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_Resized{Resized: &guestdv1.ProcessResized{
			Offset: e.Offset, Size: sizeMessage(e.Size)}}}
	case proc.InputStatus:
		return &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_InputStatus{InputStatus: &guestdv1.ProcessInputStatus{
			AcceptedOffset: e.Accepted, Closed: e.Closed}}}
	case proc.Exited:
		return &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_Exited{Exited: exitMessage(&e.Exit)}}
	}
	panic(fmt.Sprintf("agent: event %T has no message", e))
}

// readerOptions converts how output is read.
func readerOptions(field string, m *guestdv1.OutputReader) (proc.AttachOptions, error) {
	options := proc.AttachOptions{ReaderID: m.GetReaderId()}
	if m == nil {
		return options, nil
	}
	if err := checkEnums(field, m); err != nil {
		return options, err
	}
	if m.GetMode() == guestdv1.ReaderMode_READER_MODE_FOLLOWING {
		options.Mode = outlog.Following
	}
	stall, err := optionalDuration(field+".stall_timeout", m.GetStallTimeout())
	if err != nil {
		return options, err
	}
	if stall != nil {
		if *stall == 0 {
			return options, invalid(field+".stall_timeout", "is zero; leave it out for none")
		}
		options.StallTimeout = *stall
	}
	options.ReconnectGrace, err = optionalDuration(field+".reconnect_grace", m.GetReconnectGrace())
	return options, err
}

// attachOptions converts how and from where output is read.
func attachOptions(m *guestdv1.ProcessAttach) (proc.AttachOptions, error) {
	options, err := readerOptions("reader", m.GetReader())
	if err != nil {
		return options, err
	}
	options.FromNow = m.GetFromNow()
	options.FollowAfterExit = m.GetFollowAfterExit()
	for i, o := range m.GetOffsets() {
		offset, err := streamOffset(fmt.Sprintf("offsets[%d]", i), o)
		if err != nil {
			return options, err
		}
		options.Offsets = append(options.Offsets, offset)
	}
	return options, nil
}
