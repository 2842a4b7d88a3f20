package agent

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"guestd.internal/kernel"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

const (
	// maxInline is the largest part of a result that travels within it.
	maxInline = 512 << 10
	// maxPayload is the most payload of one message: of all parts that travel
	// within a result together, and of a piece of a larger one.
	maxPayload = 1 << 20
)

// setEventBody fills in the variant for any body but a result.
func setEventBody(out *guestdv1.ExecutionEvent, contextID string, body kernel.Body) {
	switch b := body.(type) {
	case kernel.Accepted:
		out.Event = &guestdv1.ExecutionEvent_Accepted{Accepted: &guestdv1.ExecutionAccepted{
			ContextId: contextID, QueuePosition: uint32(b.QueuePosition)}}
	case kernel.Started:
		out.Event = &guestdv1.ExecutionEvent_Started{Started: startedMessage(b)}
	case kernel.Stdout:
		out.Event = &guestdv1.ExecutionEvent_Stdout{Stdout: &guestdv1.ExecutionText{Text: b.Text}}
	case kernel.Stderr:
		out.Event = &guestdv1.ExecutionEvent_Stderr{Stderr: &guestdv1.ExecutionText{Text: b.Text}}
	case kernel.ClearOutput:
		out.Event = &guestdv1.ExecutionEvent_ClearOutput{ClearOutput: &guestdv1.ExecutionClearOutput{Wait: b.Wait}}
	case kernel.InputRequest:
		out.Event = &guestdv1.ExecutionEvent_InputRequest{InputRequest: &guestdv1.ExecutionInputRequest{
			Prompt: b.Prompt, Password: b.Password}}
	case kernel.Error:
		out.Event = &guestdv1.ExecutionEvent_Error{Error: &guestdv1.ExecutionError{
			Name: b.Name, Value: b.Value, Traceback: b.Traceback}}
	case kernel.Gap:
		out.Event = &guestdv1.ExecutionEvent_Gap{Gap: &guestdv1.ExecutionGap{
			Stream: textStream(b.Stream), Bytes: b.Bytes}}
	case kernel.Finished:
		out.Event = &guestdv1.ExecutionEvent_Finished{Finished: finishedMessage(b)}
	}
}

func startedMessage(b kernel.Started) *guestdv1.ExecutionStarted {
	return &guestdv1.ExecutionStarted{
		ExecutionCount:   uint32(b.ExecutionCount),
		KernelGeneration: b.KernelGeneration,
		FreshKernel:      b.FreshKernel,
		PreviousEnd:      b.PreviousEnd,
	}
}

func finishedMessage(b kernel.Finished) *guestdv1.ExecutionFinished {
	m := &guestdv1.ExecutionFinished{
		Status:           executionStatus(b.Status),
		ExecutionCount:   uint32(b.ExecutionCount),
		Duration:         durationpb.New(b.Duration),
		StateLost:        b.StateLost,
		OutputIncomplete: b.OutputIncomplete,
	}
	if !b.HasExit {
		return m
	}
	if b.Signal != 0 {
		signal := uint32(b.Signal)
		m.Signal = &signal
	} else {
		code := uint32(b.ExitCode)
		m.ExitCode = &code
	}
	return m
}

// resultMessage converts a result, and returns which of its parts do not fit
// into the message.
func resultMessage(r kernel.Result) (*guestdv1.ExecutionResult, []kernel.MIMEPart) {
	m := &guestdv1.ExecutionResult{
		MetadataJson: r.MetadataJSON,
		Kind:         resultKind(r.Kind),
		DisplayId:    r.DisplayID,
		ResultNumber: r.Number,
	}
	room := maxPayload
	var large []kernel.MIMEPart
	for _, part := range r.Parts {
		p := &guestdv1.MimePart{Mime: part.MIME, TruncatedBytes: part.Truncated}
		if n := len(part.Data); part.Truncated > 0 {
			// It has no contents.
		} else if n <= min(maxInline, room) {
			room -= n
			p.Content = &guestdv1.MimePart_Inline{Inline: part.Data}
		} else {
			large = append(large, part)
			p.Content = &guestdv1.MimePart_Size{Size: uint64(n)}
		}
		m.Parts = append(m.Parts, p)
	}
	return m, large
}

func resultKind(k kernel.ResultKind) guestdv1.ResultKind {
	switch k {
	case kernel.Main:
		return guestdv1.ResultKind_RESULT_KIND_MAIN
	case kernel.Display:
		return guestdv1.ResultKind_RESULT_KIND_DISPLAY
	case kernel.Update:
		return guestdv1.ResultKind_RESULT_KIND_UPDATE
	}
	return guestdv1.ResultKind_RESULT_KIND_UNSPECIFIED
}

func executionStatus(s kernel.Status) guestdv1.ExecutionStatus {
	switch s {
	case kernel.OK:
		return guestdv1.ExecutionStatus_EXECUTION_STATUS_OK
	case kernel.Failed:
		return guestdv1.ExecutionStatus_EXECUTION_STATUS_ERROR
	case kernel.TimedOut:
		return guestdv1.ExecutionStatus_EXECUTION_STATUS_TIMED_OUT
	case kernel.Interrupted:
		return guestdv1.ExecutionStatus_EXECUTION_STATUS_INTERRUPTED
	case kernel.KernelDied:
		return guestdv1.ExecutionStatus_EXECUTION_STATUS_KERNEL_DIED
	}
	return guestdv1.ExecutionStatus_EXECUTION_STATUS_UNSPECIFIED
}

func textStream(s kernel.Stream) guestdv1.TextStream {
	switch s {
	case kernel.StreamStdout:
		return guestdv1.TextStream_TEXT_STREAM_STDOUT
	case kernel.StreamStderr:
		return guestdv1.TextStream_TEXT_STREAM_STDERR
	}
	return guestdv1.TextStream_TEXT_STREAM_UNSPECIFIED // results
}
