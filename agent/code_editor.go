package agent

import (
	"context"

	"guestd.internal/kernel"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// ListLanguages implements guestdv1.CodeServiceServer.
func (s *codeService) ListLanguages(_ context.Context, req *guestdv1.ListLanguagesRequest) (*guestdv1.ListLanguagesResponse, error) {
	languages, err := s.contexts.Languages(req.GetUser())
	if err != nil {
		return nil, err
	}
	resp := &guestdv1.ListLanguagesResponse{}
	for _, l := range languages {
		resp.Languages = append(resp.Languages, &guestdv1.Language{
			Name:              clip(l.Name, maxText),
			Aliases:           l.Aliases,
			Stateful:          l.Stateful,
			Available:         l.Unavailable == "",
			UnavailableReason: clip(l.Unavailable, maxText),
			DisplayName:       clip(l.DisplayName, maxText),
		})
	}
	return resp, nil
}

// maxText bounds a text of an installed kernel's, which may say anything.
const maxText = 1 << 10

// Complete implements guestdv1.CodeServiceServer.
func (s *codeService) Complete(ctx context.Context, req *guestdv1.CompleteRequest) (*guestdv1.CompleteResponse, error) {
	completion, err := s.contexts.Complete(ctx, req.GetContextId(), kernel.Cursor{Code: req.GetCode(), At: int(req.GetCursor())})
	if err != nil {
		return nil, err
	}
	resp := &guestdv1.CompleteResponse{
		CursorStart: uint32(max(completion.Start, 0)),
		CursorEnd:   uint32(max(completion.End, 0)),
	}
	room := maxPayload
	if n := len(completion.MetadataJSON); n <= maxPayload/2 {
		resp.MetadataJson = completion.MetadataJSON
		room -= n
	}
	for _, match := range completion.Matches { // the best come first
		if room -= len(match); room < 0 {
			break
		}
		resp.Matches = append(resp.Matches, match)
	}
	return resp, nil
}

// Inspect implements guestdv1.CodeServiceServer.
func (s *codeService) Inspect(ctx context.Context, req *guestdv1.InspectRequest) (*guestdv1.InspectResponse, error) {
	cursor := kernel.Cursor{Code: req.GetCode(), At: int(req.GetCursor())}
	parts, err := s.contexts.Inspect(ctx, req.GetContextId(), cursor, req.GetDetailed())
	if err != nil {
		return nil, err
	}
	message, large := resultMessage(kernel.Result{Parts: parts})
	for _, part := range message.GetParts() {
		for _, left := range large { // they have no place to follow in
			if left.MIME == part.GetMime() {
				part.Content, part.TruncatedBytes = nil, uint64(len(left.Data))
			}
		}
	}
	return &guestdv1.InspectResponse{Found: len(parts) > 0, Parts: message.GetParts()}, nil
}
