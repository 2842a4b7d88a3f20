package client

import (
	"context"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// SymlinkOptions says how a symbolic link is made; nil means all defaults.
type SymlinkOptions struct {
	// User is as in FileOptions.
	User string
	// Replace puts the link at once in the place of a file or link that is there, but of no
	// directory, FIFO, socket or device; otherwise it fails where the path exists.
	Replace bool
}

// Symlink makes a symbolic link at a path whose parent exists. The target is stored as it is and
// need not exist.
func (c *Client) Symlink(ctx context.Context, target, path string, options *SymlinkOptions) error {
	if options == nil {
		options = &SymlinkOptions{}
	}
	if err := checkText("user", options.User); err != nil {
		return err
	}
	_, err := c.files.Link(ctx, &guestdv1.LinkRequest{
		RequestId: newRequestID(), User: options.User, Target: []byte(target), Path: []byte(path), Replace: options.Replace,
	})
	return fromCall(ctx, err)
}
