package agent

import (
	"context"

	"google.golang.org/grpc/status"

	"guestd.internal/fsapi"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// fileTypes pairs the types of fsapi with the API's.
var fileTypes = map[fsapi.Type]guestdv1.FileType{
	fsapi.TypeRegular:     guestdv1.FileType_FILE_TYPE_REGULAR,
	fsapi.TypeDirectory:   guestdv1.FileType_FILE_TYPE_DIRECTORY,
	fsapi.TypeSymlink:     guestdv1.FileType_FILE_TYPE_SYMLINK,
	fsapi.TypeFIFO:        guestdv1.FileType_FILE_TYPE_FIFO,
	fsapi.TypeSocket:      guestdv1.FileType_FILE_TYPE_SOCKET,
	fsapi.TypeCharDevice:  guestdv1.FileType_FILE_TYPE_CHARACTER_DEVICE,
	fsapi.TypeBlockDevice: guestdv1.FileType_FILE_TYPE_BLOCK_DEVICE,
}

func fileInfo(i fsapi.Info) *guestdv1.FileInfo {
	m := &guestdv1.FileInfo{
		Path:       []byte(i.Path),
		Type:       fileTypes[i.Type],
		Size:       uint64(i.Size),
		Mode:       i.Mode,
		Uid:        i.UID,
		Gid:        i.GID,
		Owner:      i.Owner,
		Group:      i.Group,
		ModifyTime: timestamp(i.ModTime),
		AccessTime: timestamp(i.AccessTime),
		ChangeTime: timestamp(i.ChangeTime),
		BirthTime:  timestamp(i.BirthTime),
		Inode:      i.Inode,
		Device:     i.Device,
		Links:      i.Links,
		TargetType: fileTypes[i.TargetType],
	}
	if i.LinkTarget != "" {
		m.LinkTarget = []byte(i.LinkTarget)
	}
	return m
}

// fileFailure tells of one file of many in the words of the table of errors.
func fileFailure(ctx context.Context, path string, err error) *guestdv1.FileFailure {
	answer, _ := classify(err)
	return &guestdv1.FileFailure{
		Path:    []byte(path),
		Errno:   errnoName(err),
		Message: status.Convert(statusOf(ctx, err).Err()).Message(),
		Reason:  answer.reason,
	}
}

// listOptions converts what of a folder is listed.
func listOptions(m *guestdv1.FileServiceListRequest) fsapi.ListOptions {
	return fsapi.ListOptions{
		Depth:   int(min(m.GetDepth(), fsapi.MaxListDepth+1)), // beyond is refused by fsapi
		Hidden:  !m.GetSkipHidden(),
		Include: toStrings(m.GetInclude()),
		Exclude: toStrings(m.GetExclude()),
	}
}
