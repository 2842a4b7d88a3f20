package agent

import (
	"errors"
	"io"

	"guestd.internal/fsapi"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// watchKinds pairs the kinds of changes of fsapi with the API's.
var watchKinds = map[fsapi.WatchKind]guestdv1.WatchKind{
	fsapi.WatchCreated:     guestdv1.WatchKind_WATCH_KIND_CREATED,
	fsapi.WatchWritten:     guestdv1.WatchKind_WATCH_KIND_WRITTEN,
	fsapi.WatchWriteClosed: guestdv1.WatchKind_WATCH_KIND_WRITE_CLOSED,
	fsapi.WatchRemoved:     guestdv1.WatchKind_WATCH_KIND_REMOVED,
	fsapi.WatchRenamed:     guestdv1.WatchKind_WATCH_KIND_RENAMED,
	fsapi.WatchAttributes:  guestdv1.WatchKind_WATCH_KIND_ATTRIBUTES,
}

// watchEnds pairs the ends of watches of fsapi with the API's.
var watchEnds = map[fsapi.WatchEnd]guestdv1.WatchEndReason{
	fsapi.WatchRootRemoved:   guestdv1.WatchEndReason_WATCH_END_REASON_REMOVED,
	fsapi.WatchRootReplaced:  guestdv1.WatchEndReason_WATCH_END_REASON_REPLACED,
	fsapi.WatchRootUnmounted: guestdv1.WatchEndReason_WATCH_END_REASON_UNMOUNTED,
}

// Watch implements guestdv1.FileServiceServer. A client that does not read holds
// Send back; meanwhile the watch gathers events in its own bounds.
func (s *fileService) Watch(req *guestdv1.WatchRequest, stream guestdv1.FileService_WatchServer) error {
	ctx := stream.Context()
	watcher, err := s.files.Watch(ctx, req.GetUser(), string(req.GetPath()), fsapi.WatchOptions{
		Recursive: req.GetRecursive(),
		Include:   toStrings(req.GetInclude()),
		Exclude:   toStrings(req.GetExclude()),
	})
	if err != nil {
		return err
	}
	defer watcher.Close()
	response := &guestdv1.WatchResponse{Event: &guestdv1.WatchResponse_Watching{
		Watching: &guestdv1.WatchHeader{Root: fileInfo(watcher.Root)}}}
	for {
		if err := stream.Send(response); err != nil {
			return err
		}
		event, err := watcher.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		response = watchResponse(event)
	}
}

func watchResponse(e fsapi.WatchEvent) *guestdv1.WatchResponse {
	switch e.Kind {
	case fsapi.WatchOverflow:
		return &guestdv1.WatchResponse{Event: &guestdv1.WatchResponse_Overflow{Overflow: &guestdv1.WatchOverflow{}}}
	case fsapi.WatchEnded:
		return &guestdv1.WatchResponse{Event: &guestdv1.WatchResponse_Ended{
			Ended: &guestdv1.WatchEnded{Reason: watchEnds[e.End]}}}
	}
	change := &guestdv1.WatchEvent{
		Kind: watchKinds[e.Kind],
		Path: []byte(e.Path),
		Type: fileTypes[e.Type],
		Time: timestamp(e.Time),
	}
	if e.OldPath != "" {
		change.OldPath = []byte(e.OldPath)
	}
	return &guestdv1.WatchResponse{Event: &guestdv1.WatchResponse_Change{Change: change}}
}
