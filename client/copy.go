package client

import (
	"context"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// CopyOptions says how a file or tree is copied within the guest; nil means all defaults: one file,
// or one link as a link, that replaces what is there.
type CopyOptions struct {
	// User is as in FileOptions.
	User string
	// Recursive copies a directory with all that is in it; without it a directory is refused.
	Recursive bool
	// NoReplace fails where the destination exists.
	NoReplace bool
	// FollowLinks copies what links lead to instead of the links.
	FollowLinks bool
	// Preserve keeps owners (where the user may), modes, times and extended attributes, as cp -a
	// does. Otherwise the copy is the user's, and only modes are kept.
	Preserve bool
}

// CopyResult tells what was copied.
type CopyResult struct {
	// Info is the copy.
	Info *FileInfo
	// Entries are files, links and directories.
	Entries uint64
	// Bytes of contents, copied or shared with the original.
	Bytes uint64
}

// Copy copies a file, link or directory within the guest, to exactly that path, whose parent must
// exist. A file is replaced at once, when its copy is complete. A directory that is there already is
// copied into; what cannot be copied is left out, and the error tells of the first such entry.
func (c *Client) Copy(ctx context.Context, from, to string, options *CopyOptions) (*CopyResult, error) {
	if options == nil {
		options = &CopyOptions{}
	}
	if err := checkText("user", options.User); err != nil {
		return nil, err
	}
	response, err := c.files.Copy(ctx, &guestdv1.CopyRequest{
		RequestId: newRequestID(), User: options.User, Source: []byte(from), Destination: []byte(to),
		Recursive: options.Recursive, NoReplace: options.NoReplace,
		FollowLinks: options.FollowLinks, Preserve: options.Preserve,
	})
	if err != nil {
		return nil, fromCall(ctx, err)
	}
	return &CopyResult{
		Info: fileInfoOf(response.GetInfo()), Entries: response.GetEntries(), Bytes: response.GetBytes(),
	}, nil
}
