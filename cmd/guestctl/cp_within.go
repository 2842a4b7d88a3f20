package main

import (
	"context"
	"path"

	"guestd.internal/client"
)

// cpWithin copies within the guest. As cp(1) does, it follows links, but with -r copies them as links.
func (a *app) cpWithin(ctx context.Context, f cpFlags, source, destination string) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	into, err := isGuestDir(ctx, c, destination, f.user)
	if err != nil {
		return err
	}
	if name := path.Base(source); into && name != "." && name != ".." && name != "/" {
		destination = inDirectory(destination, name)
	}
	result, err := c.Copy(ctx, source, destination, &client.CopyOptions{
		User: f.user, Recursive: f.recursive, FollowLinks: !f.recursive, Preserve: f.preserve,
	})
	if err != nil {
		return err
	}
	return a.printCopied(&copied{path: result.Info.Path, entries: result.Entries, bytes: result.Bytes})
}
