package agent

import (
	"context"
	"errors"
	"io"

	"guestd.internal/agent/internal/replay"
	"guestd.internal/kernel"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// CreateContext implements guestdv1.CodeServiceServer.
func (s *codeService) CreateContext(ctx context.Context, req *guestdv1.CreateContextRequest) (*guestdv1.CreateContextResponse, error) {
	env, err := envVars("env", req.GetEnv())
	if err != nil {
		return nil, err
	}
	id, _, err := s.created.Do(ctx, req.GetRequestId(), req, func() (string, error) {
		info, err := s.contexts.Create(ctx, kernel.ContextRequest{
			Language: req.GetLanguage(),
			User:     req.GetUser(),
			Dir:      string(req.GetCwd()),
			Env:      env,
			Name:     req.GetName(),
			Labels:   req.GetLabels(),
		})
		return info.ID, err
	})
	info, err := s.contextAfter(id, err)
	if err != nil {
		return nil, err
	}
	return &guestdv1.CreateContextResponse{Context: contextMessage(info)}, nil
}

// contextAfter describes the context that a call with a request id is about.
func (s *codeService) contextAfter(id string, err error) (kernel.Info, error) {
	if errors.Is(err, replay.ErrMalformed) {
		err = invalid("request_id", err.Error())
	}
	if err != nil {
		return kernel.Info{}, err
	}
	return s.contexts.Get(id)
}

// GetContext implements guestdv1.CodeServiceServer.
func (s *codeService) GetContext(_ context.Context, req *guestdv1.GetContextRequest) (*guestdv1.GetContextResponse, error) {
	info, err := s.contexts.Get(req.GetContextId())
	if err != nil {
		return nil, err
	}
	return &guestdv1.GetContextResponse{Context: contextMessage(info)}, nil
}

// ListContexts implements guestdv1.CodeServiceServer.
func (s *codeService) ListContexts(_ context.Context, req *guestdv1.ListContextsRequest) (*guestdv1.ListContextsResponse, error) {
	if err := checkEnums("", req); err != nil {
		return nil, err
	}
	filter := kernel.Filter{
		Labels: req.GetLabels(),
		Size:   int(min(req.GetPageSize(), kernel.MaxPage+1)),
		Token:  req.GetPageToken(),
	}
	if req.GetState() != guestdv1.ContextState_CONTEXT_STATE_UNSPECIFIED {
		for state, message := range contextStates {
			if message == req.GetState() {
				filter.States = append(filter.States, state)
			}
		}
	}
	page, next, err := s.contexts.Page(filter)
	if err != nil {
		return nil, err
	}
	resp := &guestdv1.ListContextsResponse{NextPageToken: next}
	for _, info := range page {
		resp.Contexts = append(resp.Contexts, contextMessage(info))
	}
	return resp, nil
}

// WatchContext implements guestdv1.CodeServiceServer. It ends once the context
// was deleted.
func (s *codeService) WatchContext(req *guestdv1.WatchContextRequest, stream guestdv1.CodeService_WatchContextServer) error {
	watcher, err := s.contexts.Watch(req.GetContextId())
	if err != nil {
		return err
	}
	defer watcher.Close()
	for {
		event, err := watcher.Next(stream.Context())
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(watchMessage(event)); err != nil {
			return err
		}
	}
}

// RestartContext implements guestdv1.CodeServiceServer.
func (s *codeService) RestartContext(ctx context.Context, req *guestdv1.RestartContextRequest) (*guestdv1.RestartContextResponse, error) {
	id, _, err := s.restarted.Do(ctx, req.GetRequestId(), req, func() (string, error) {
		info, err := s.contexts.Restart(ctx, req.GetContextId())
		return info.ID, err
	})
	info, err := s.contextAfter(id, err)
	if err != nil {
		return nil, err
	}
	return &guestdv1.RestartContextResponse{Context: contextMessage(info)}, nil
}

// DeleteContext implements guestdv1.CodeServiceServer.
func (s *codeService) DeleteContext(ctx context.Context, req *guestdv1.DeleteContextRequest) (*guestdv1.DeleteContextResponse, error) {
	if err := s.contexts.Delete(ctx, req.GetContextId()); err != nil {
		return nil, err
	}
	return &guestdv1.DeleteContextResponse{}, nil
}

// contextStates are the API's states for kernel's.
var contextStates = map[kernel.State]guestdv1.ContextState{
	kernel.NoKernel:     guestdv1.ContextState_CONTEXT_STATE_DEAD,
	kernel.Starting:     guestdv1.ContextState_CONTEXT_STATE_STARTING,
	kernel.Idle:         guestdv1.ContextState_CONTEXT_STATE_IDLE,
	kernel.Busy:         guestdv1.ContextState_CONTEXT_STATE_BUSY,
	kernel.Interrupting: guestdv1.ContextState_CONTEXT_STATE_INTERRUPTING,
}

func contextMessage(info kernel.Info) *guestdv1.Context {
	return &guestdv1.Context{
		ContextId:        info.ID,
		Language:         info.Language,
		State:            contextStates[info.State],
		Name:             info.Name,
		Labels:           info.Labels,
		User:             info.User,
		Cwd:              []byte(info.Dir),
		IsDefault:        info.IsDefault,
		CreateTime:       timestamp(info.Created),
		KernelGeneration: info.Generation,
		Pid:              uint32(info.PID),
		ExecutionId:      info.Execution,
		Queued:           uint32(info.Queued),
	}
}

func watchMessage(event kernel.WatchEvent) *guestdv1.WatchContextResponse {
	if event.Info != nil {
		return &guestdv1.WatchContextResponse{Event: &guestdv1.WatchContextResponse_Context{
			Context: contextMessage(*event.Info)}}
	}
	out := event.Output
	return &guestdv1.WatchContextResponse{Event: &guestdv1.WatchContextResponse_Output{
		Output: &guestdv1.BackgroundOutput{
			ExecutionId: out.ExecutionID,
			Stream:      textStream(out.Stream),
			Text:        out.Text,
			GapBytes:    out.Gap,
		}}}
}
