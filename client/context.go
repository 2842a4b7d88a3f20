package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// ContextState is what a context is doing.
type ContextState int

// The states.
const (
	// ContextStarting: its kernel is starting.
	ContextStarting = ContextState(guestdv1.ContextState_CONTEXT_STATE_STARTING)
	// ContextIdle: it waits for code.
	ContextIdle = ContextState(guestdv1.ContextState_CONTEXT_STATE_IDLE)
	// ContextBusy: it runs code.
	ContextBusy = ContextState(guestdv1.ContextState_CONTEXT_STATE_BUSY)
	// ContextInterrupting: its code is being interrupted.
	ContextInterrupting = ContextState(guestdv1.ContextState_CONTEXT_STATE_INTERRUPTING)
	// ContextDead: its kernel has ended; the next execution starts a fresh one.
	ContextDead = ContextState(guestdv1.ContextState_CONTEXT_STATE_DEAD)
)

// String names the state as the API does, in lower case: "starting", "idle", "busy", "interrupting",
// "dead".
func (s ContextState) String() string {
	switch s {
	case ContextStarting:
		return "starting"
	case ContextIdle:
		return "idle"
	case ContextBusy:
		return "busy"
	case ContextInterrupting:
		return "interrupting"
	case ContextDead:
		return "dead"
	default:
		return "unknown"
	}
}

// CodeContext describes a place where code runs.
type CodeContext struct {
	// ID is its id; Language and Name are as at its creation.
	ID, Language, Name string
	// State is what it does, Execution the id of what runs there, and Queued how many wait.
	State     ContextState
	Execution string
	Queued    int
	// User, Dir and Labels are as at its creation.
	User, Dir string
	Labels    map[string]string
	// Default: it is its language's default context.
	Default bool
	// Created is by the guest's clock.
	Created time.Time
	// KernelGeneration is how many kernels it has had, PID the last one's (information only).
	KernelGeneration uint64
	PID              int
}

func contextOf(c *guestdv1.Context) *CodeContext {
	return &CodeContext{
		ID: c.GetContextId(), Language: c.GetLanguage(), Name: c.GetName(),
		State: ContextState(c.GetState()), Execution: c.GetExecutionId(), Queued: int(c.GetQueued()),
		User: c.GetUser(), Dir: string(c.GetCwd()), Labels: c.GetLabels(), Default: c.GetIsDefault(),
		Created: timeOf(c.GetCreateTime()), KernelGeneration: c.GetKernelGeneration(), PID: int(c.GetPid()),
	}
}

// ContextRequest asks for a context; the zero value for one of Python, as the default user at home.
type ContextRequest struct {
	// Language is a language's name or alias; empty is Python.
	Language string
	// User and Dir are as in Cmd, and Env changes its environment as Cmd.Env.
	User, Dir string
	Env       []string
	// Name is for people, Labels for ContextFilter.
	Name   string
	Labels map[string]string
}

// CreateContext makes a context, and returns once it is ready to run code.
func (c *Client) CreateContext(ctx context.Context, request ContextRequest) (*CodeContext, error) {
	for field, text := range map[string]string{"language": request.Language, "user": request.User, "name": request.Name} {
		if err := checkText(field, text); err != nil {
			return nil, err
		}
	}
	if err := checkLabels("labels", request.Labels); err != nil {
		return nil, err
	}
	response, err := c.code.CreateContext(ctx, &guestdv1.CreateContextRequest{
		RequestId: newRequestID(), Language: request.Language, User: request.User, Cwd: []byte(request.Dir),
		Env: environment(request.Env), Name: request.Name, Labels: request.Labels,
	})
	if err != nil {
		return nil, fromCall(ctx, err)
	}
	return contextOf(response.GetContext()), nil
}

// Context describes one context.
func (c *Client) Context(ctx context.Context, id string) (*CodeContext, error) {
	if err := checkText("context_id", id); err != nil {
		return nil, err
	}
	response, err := c.code.GetContext(ctx, &guestdv1.GetContextRequest{ContextId: id})
	if err != nil {
		return nil, fromCall(ctx, err)
	}
	return contextOf(response.GetContext()), nil
}

// ContextFilter chooses contexts; the zero value means all.
type ContextFilter struct {
	// State is the only one wanted; 0 is any.
	State ContextState
	// Labels must all be there with these values.
	Labels map[string]string
}

// Contexts lists contexts, oldest first. It ends after the first error.
func (c *Client) Contexts(ctx context.Context, filter ContextFilter) iter.Seq2[*CodeContext, error] {
	return func(yield func(*CodeContext, error) bool) {
		request := &guestdv1.ListContextsRequest{
			Labels: filter.Labels, State: guestdv1.ContextState(filter.State), PageSize: 1000,
		}
		for {
			page, err := c.code.ListContexts(ctx, request)
			if err != nil {
				yield(nil, fromCall(ctx, err))
				return
			}
			for _, message := range page.GetContexts() {
				if !yield(contextOf(message), nil) {
					return
				}
			}
			if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
				return
			}
		}
	}
}

// RestartContext gives a context a fresh kernel, and returns once that is ready. What ran there ends;
// what was queued runs in the fresh one.
func (c *Client) RestartContext(ctx context.Context, id string) (*CodeContext, error) {
	if err := checkText("context_id", id); err != nil {
		return nil, err
	}
	response, err := c.code.RestartContext(ctx, &guestdv1.RestartContextRequest{RequestId: newRequestID(), ContextId: id})
	if err != nil {
		return nil, fromCall(ctx, err)
	}
	return contextOf(response.GetContext()), nil
}

// InterruptContext interrupts what runs in a context and gives its id, which is empty where nothing
// did. What is queued stays.
func (c *Client) InterruptContext(ctx context.Context, id string) (execution string, err error) {
	if err := checkText("context_id", id); err != nil {
		return "", err
	}
	response, err := c.code.Interrupt(ctx, &guestdv1.InterruptRequest{
		Target: &guestdv1.InterruptRequest_ContextId{ContextId: id},
	})
	if err != nil {
		return "", fromCall(ctx, err)
	}
	return response.GetExecutionId(), nil
}

// DeleteContext ends a context and everything that runs in it.
func (c *Client) DeleteContext(ctx context.Context, id string) error {
	if err := checkText("context_id", id); err != nil {
		return err
	}
	_, err := c.code.DeleteContext(ctx, &guestdv1.DeleteContextRequest{ContextId: id})
	return fromCall(ctx, err)
}

// ContextEvent is a context's new state, or output that belongs to no running execution; one of them.
type ContextEvent struct {
	Context *CodeContext
	Output  *BackgroundOutput
}

// BackgroundOutput is text that came after its execution had finished, from a thread or a child that
// lived on.
type BackgroundOutput struct {
	// Execution is the id of the one that it stems from; empty where that is not known.
	Execution string
	// Stream is Stdout or Stderr.
	Stream Stream
	// Text is valid UTF-8, and Gap how many bytes were dropped before it.
	Text string
	Gap  uint64
}

// WatchContext gives a context's changes, beginning with what it is doing now, until it is deleted.
// It ends after the first error, a broken connection included.
func (c *Client) WatchContext(ctx context.Context, id string) iter.Seq2[ContextEvent, error] {
	return func(yield func(ContextEvent, error) bool) {
		if err := checkText("context_id", id); err != nil {
			yield(ContextEvent{}, err)
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(context.Canceled)
		stream, err := c.code.WatchContext(ctx, &guestdv1.WatchContextRequest{ContextId: id})
		for err == nil {
			var response *guestdv1.WatchContextResponse
			if response, err = stream.Recv(); err != nil {
				break
			}
			event := contextEvent(response)
			if event != (ContextEvent{}) && !yield(event, nil) {
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(ContextEvent{}, fromCall(ctx, err))
		}
	}
}

// contextEvent is empty for a kind that this version does not know.
func contextEvent(response *guestdv1.WatchContextResponse) ContextEvent {
	switch event := response.GetEvent().(type) {
	case *guestdv1.WatchContextResponse_Context:
		return ContextEvent{Context: contextOf(event.Context)}
	case *guestdv1.WatchContextResponse_Output:
		return ContextEvent{Output: &BackgroundOutput{
			Execution: event.Output.GetExecutionId(), Stream: Stream(event.Output.GetStream()),
			Text: event.Output.GetText(), Gap: event.Output.GetGapBytes(),
		}}
	default:
		return ContextEvent{}
	}
}
