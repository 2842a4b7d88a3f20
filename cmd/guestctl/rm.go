package main

import (
	"context"
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

func newRm(a *app) *cobra.Command {
	var options client.FileOptions
	var recursive, force bool
	cmd := &cobra.Command{
		Use:   "rm [-r] [-f] [-u USER] PATH...",
		Short: "Remove files and directories",
		Long:  "Remove files of the guest. A link is removed itself, never what it leads to. A directory needs -r, unless it is empty.",
		Example: `  guestctl rm /tmp/hello.txt
  guestctl rm -rf /tmp/a`,
		Args: atLeast(1, "a path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, func(ctx context.Context, c *client.Client, path string) error {
				return remove(ctx, c, path, recursive, force, &options)
			})
		},
	}
	addUserFlag(cmd.Flags(), &options.User)
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "remove directories with all that is in them")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "be content with what is not there")
	return cmd
}

func remove(ctx context.Context, c *client.Client, path string, recursive, force bool, options *client.FileOptions) error {
	if recursive && force {
		return c.RemoveAll(ctx, path, options)
	}
	if recursive {
		// RemoveAll is content with a missing file, which rm without -f is not.
		if _, err := c.Lstat(ctx, path, options); err != nil {
			return err
		}
		return c.RemoveAll(ctx, path, options)
	}
	err := c.Remove(ctx, path, options)
	if force && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
