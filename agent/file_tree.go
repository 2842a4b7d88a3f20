package agent

import (
	"context"

	"guestd.internal/fsapi"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// MakeDir implements guestdv1.FileServiceServer.
func (s *fileService) MakeDir(ctx context.Context, req *guestdv1.MakeDirRequest) (*guestdv1.MakeDirResponse, error) {
	info, created, err := s.files.MakeDir(ctx, req.GetUser(), string(req.GetPath()), req.Mode, req.GetParents())
	if err != nil {
		return nil, err
	}
	return &guestdv1.MakeDirResponse{Info: fileInfo(info), Created: created}, nil
}

// Remove implements guestdv1.FileServiceServer.
func (s *fileService) Remove(ctx context.Context, req *guestdv1.RemoveRequest) (*guestdv1.RemoveResponse, error) {
	removed, err := s.files.Remove(ctx, req.GetUser(), string(req.GetPath()), fsapi.RemoveOptions{
		Recursive:     req.GetRecursive(),
		IgnoreMissing: req.GetIgnoreMissing(),
	})
	if err != nil {
		return nil, err
	}
	return &guestdv1.RemoveResponse{Removed: removed}, nil
}

// Move implements guestdv1.FileServiceServer.
func (s *fileService) Move(ctx context.Context, req *guestdv1.MoveRequest) (*guestdv1.MoveResponse, error) {
	result, err := s.files.Move(ctx, req.GetUser(), string(req.GetSource()), string(req.GetDestination()), fsapi.MoveOptions{
		NoReplace: req.GetNoReplace(),
	})
	if err != nil {
		return nil, err
	}
	return &guestdv1.MoveResponse{Info: fileInfo(result.Info), Copied: result.Copied}, nil
}
