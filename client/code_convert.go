package client

import (
	"syscall"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// eventOf translates an event; false is one that this version does not know.
func eventOf(e *guestdv1.ExecutionEvent) (Event, bool) {
	event := Event{Number: e.GetNumber(), Time: timeOf(e.GetTime())}
	switch d := e.GetEvent().(type) {
	case *guestdv1.ExecutionEvent_Accepted:
		event.Detail = Accepted{ContextID: d.Accepted.GetContextId(), QueuePosition: int(d.Accepted.GetQueuePosition())}
	case *guestdv1.ExecutionEvent_Started:
		event.Detail = Started{
			ExecutionCount: int(d.Started.GetExecutionCount()), KernelGeneration: d.Started.GetKernelGeneration(),
			FreshKernel: d.Started.GetFreshKernel(), PreviousEnd: d.Started.GetPreviousEnd(),
		}
	case *guestdv1.ExecutionEvent_Stdout:
		event.Detail = Text{Stream: Stdout, Text: d.Stdout.GetText()}
	case *guestdv1.ExecutionEvent_Stderr:
		event.Detail = Text{Stream: Stderr, Text: d.Stderr.GetText()}
	case *guestdv1.ExecutionEvent_Result:
		event.Detail = resultOf(d.Result)
	case *guestdv1.ExecutionEvent_Data:
		event.Detail = Data{
			ResultNumber: int(d.Data.GetResultNumber()), MIME: d.Data.GetMime(), Offset: d.Data.GetOffset(),
			Bytes: d.Data.GetBytes(), Last: d.Data.GetLast(),
		}
	case *guestdv1.ExecutionEvent_ClearOutput:
		event.Detail = ClearOutput{Wait: d.ClearOutput.GetWait()}
	case *guestdv1.ExecutionEvent_InputRequest:
		event.Detail = InputRequest{Prompt: d.InputRequest.GetPrompt(), Password: d.InputRequest.GetPassword()}
	case *guestdv1.ExecutionEvent_Error:
		event.Detail = CodeError{Name: d.Error.GetName(), Value: d.Error.GetValue(), Traceback: d.Error.GetTraceback()}
	case *guestdv1.ExecutionEvent_Gap:
		event.Detail = OutputGap{Stream: Stream(d.Gap.GetStream()), Bytes: d.Gap.GetBytes()}
	case *guestdv1.ExecutionEvent_Finished:
		event.Detail = finishedOf(d.Finished)
	default:
		return Event{}, false
	}
	return event, true
}

func resultOf(r *guestdv1.ExecutionResult) Result {
	result := Result{
		Kind: ResultKind(r.GetKind()), Number: int(r.GetResultNumber()),
		MetadataJSON: r.GetMetadataJson(), DisplayID: r.GetDisplayId(),
	}
	result.Parts = partsOf(r.GetParts())
	return result
}

func partsOf(messages []*guestdv1.MimePart) []Part {
	var parts []Part
	for _, part := range messages {
		parts = append(parts, Part{
			MIME: part.GetMime(), Bytes: part.GetInline(), Size: part.GetSize(), TruncatedBytes: part.GetTruncatedBytes(),
		})
	}
	return parts
}

func finishedOf(f *guestdv1.ExecutionFinished) Finished {
	finished := Finished{
		Status: ExecutionStatus(f.GetStatus()), ExecutionCount: int(f.GetExecutionCount()),
		Duration: f.GetDuration().AsDuration(), StateLost: f.GetStateLost(), OutputIncomplete: f.GetOutputIncomplete(),
		ExitCode: -1, Signal: syscall.Signal(f.GetSignal()),
	}
	if f.ExitCode != nil {
		finished.ExitCode = int(f.GetExitCode())
	}
	return finished
}

// String names the status as the API does, in lower case: "ok", "error", "timed_out",
// "interrupted", "kernel_died".
func (s ExecutionStatus) String() string {
	switch s {
	case ExecutionOK:
		return "ok"
	case ExecutionError:
		return "error"
	case ExecutionTimedOut:
		return "timed_out"
	case ExecutionInterrupted:
		return "interrupted"
	case ExecutionKernelDied:
		return "kernel_died"
	default:
		return "unknown"
	}
}
