package agent

import (
	"context"

	"guestd.internal/fsapi"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// MakeDir implements guestdv1.FileServiceServer.
func (s *fileService) MakeDir(ctx context.Context, req *guestdv1.MakeDirRequest) (*guestdv1.MakeDirResponse, error) {
	return s.makeDirs.do(ctx, req.GetRequestId(), req, func() (*guestdv1.MakeDirResponse, error) {
		info, created, err := s.files.MakeDir(ctx, req.GetUser(), string(req.GetPath()), req.Mode, req.GetParents())
		if err != nil {
			return nil, err
		}
		return &guestdv1.MakeDirResponse{Info: fileInfo(info), Created: created}, nil
	})
}

// Remove implements guestdv1.FileServiceServer.
func (s *fileService) Remove(ctx context.Context, req *guestdv1.RemoveRequest) (*guestdv1.RemoveResponse, error) {
	return s.removes.do(ctx, req.GetRequestId(), req, func() (*guestdv1.RemoveResponse, error) {
		removed, err := s.files.Remove(ctx, req.GetUser(), string(req.GetPath()), fsapi.RemoveOptions{
			Recursive:     req.GetRecursive(),
			IgnoreMissing: req.GetIgnoreMissing(),
		})
		if err != nil {
			return nil, err
		}
		return &guestdv1.RemoveResponse{Removed: removed}, nil
	})
}

// Move implements guestdv1.FileServiceServer.
func (s *fileService) Move(ctx context.Context, req *guestdv1.MoveRequest) (*guestdv1.MoveResponse, error) {
	return s.moves.do(ctx, req.GetRequestId(), req, func() (*guestdv1.MoveResponse, error) {
		result, err := s.files.Move(ctx, req.GetUser(), string(req.GetSource()), string(req.GetDestination()), fsapi.MoveOptions{
			NoReplace: req.GetNoReplace(),
		})
		if err != nil {
			return nil, err
		}
		return &guestdv1.MoveResponse{Info: fileInfo(result.Info), Copied: result.Copied}, nil
	})
}

// Copy implements guestdv1.FileServiceServer.
func (s *fileService) Copy(ctx context.Context, req *guestdv1.CopyRequest) (*guestdv1.CopyResponse, error) {
	return s.copies.do(ctx, req.GetRequestId(), req, func() (*guestdv1.CopyResponse, error) {
		result, err := s.files.Copy(ctx, req.GetUser(), string(req.GetSource()), string(req.GetDestination()), fsapi.CopyOptions{
			Recursive:   req.GetRecursive(),
			NoReplace:   req.GetNoReplace(),
			FollowLinks: req.GetFollowLinks(),
			Preserve:    req.GetPreserve(),
		})
		if err != nil {
			return nil, err
		}
		return &guestdv1.CopyResponse{Info: fileInfo(result.Info), Entries: result.Entries, Bytes: result.Bytes}, nil
	})
}

// Link implements guestdv1.FileServiceServer.
func (s *fileService) Link(ctx context.Context, req *guestdv1.LinkRequest) (*guestdv1.LinkResponse, error) {
	return s.links.do(ctx, req.GetRequestId(), req, func() (*guestdv1.LinkResponse, error) {
		info, err := s.files.Link(ctx, req.GetUser(), string(req.GetTarget()), string(req.GetPath()), req.GetReplace())
		if err != nil {
			return nil, err
		}
		return &guestdv1.LinkResponse{Info: fileInfo(info)}, nil
	})
}

// SetAttributes implements guestdv1.FileServiceServer.
func (s *fileService) SetAttributes(ctx context.Context, req *guestdv1.SetAttributesRequest) (*guestdv1.SetAttributesResponse, error) {
	return s.attributes.do(ctx, req.GetRequestId(), req, func() (*guestdv1.SetAttributesResponse, error) {
		changes, err := attributeChanges(req)
		if err != nil {
			return nil, err
		}
		info, err := s.files.SetAttributes(ctx, req.GetUser(), string(req.GetPath()), changes)
		if err != nil {
			return nil, err
		}
		return &guestdv1.SetAttributesResponse{Info: fileInfo(info)}, nil
	})
}

// attributeChanges converts a request; what fsapi checks itself is not checked
// here.
func attributeChanges(m *guestdv1.SetAttributesRequest) (fsapi.AttributeChanges, error) {
	changes := fsapi.AttributeChanges{
		NoFollow: m.GetNoFollow(),
		Mode:     m.Mode,
		Owner:    m.Owner,
		Group:    m.Group,
		Remove:   toStrings(m.GetRemoveAttributes()),
	}
	for _, attribute := range m.GetSetAttributes() {
		changes.Set = append(changes.Set, fsapi.ExtendedAttribute{
			Name:  string(attribute.GetName()),
			Value: attribute.GetValue(),
		})
	}
	var err error
	if changes.ModTime, err = optionalTime("modify_time", m.GetModifyTime()); err != nil {
		return fsapi.AttributeChanges{}, err
	}
	changes.AccessTime, err = optionalTime("access_time", m.GetAccessTime())
	return changes, err
}
