package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

// rmFlags are the flags of rm.
type rmFlags struct {
	user                    string
	recursive, empty, force bool
}

func newRm(a *app) *cobra.Command {
	var f rmFlags
	cmd := &cobra.Command{
		Use:   "rm [-r] [-d] [-f] [-u USER] PATH...",
		Short: "Remove files and directories",
		Long: `Remove files of the guest. A link is removed itself, never what it leads to. A directory needs -r,
or -d if it is empty. --json prints each path that is no more.`,
		Example: `  guestctl rm /tmp/hello.txt
  guestctl rm -rf /tmp/a`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.force {
				return nil // as for rm(1), so that a script may give it an empty list
			}
			return atLeast(1, "a path")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, func(ctx context.Context, c *client.Client, path string) error {
				if err := f.remove(ctx, c, path); err != nil || !a.json {
					return err
				}
				return a.printJSON(newJSONPath(path))
			})
		},
	}
	addUserFlag(cmd.Flags(), &f.user)
	cmd.Flags().BoolVarP(&f.recursive, "recursive", "r", false, "remove directories with all that is in them")
	cmd.Flags().BoolVarP(&f.empty, "dir", "d", false, "remove empty directories")
	cmd.Flags().BoolVarP(&f.force, "force", "f", false, "be content with what is not there")
	return cmd
}

func (f *rmFlags) remove(ctx context.Context, c *client.Client, path string) error {
	err := f.removeOne(ctx, c, path)
	if f.force && client.IsMissing(err) {
		return nil
	}
	return err
}

func (f *rmFlags) removeOne(ctx context.Context, c *client.Client, path string) error {
	options := &client.FileOptions{User: f.user}
	if f.recursive && f.force {
		return c.RemoveAll(ctx, path, options)
	}
	if !f.recursive && f.empty {
		return c.Remove(ctx, path, options)
	}
	// RemoveAll is content with a missing file, and Remove takes an empty directory; rm is and does not.
	info, err := c.Lstat(ctx, path, options)
	switch {
	case err != nil:
		return err
	case f.recursive:
		return c.RemoveAll(ctx, path, options)
	case info.IsDir():
		return fmt.Errorf("%s is a directory: -r removes it with all that is in it", quoted(path))
	default:
		return c.Remove(ctx, path, options)
	}
}
