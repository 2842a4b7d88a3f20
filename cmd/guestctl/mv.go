package main

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

func newMv(a *app) *cobra.Command {
	var options client.RenameOptions
	cmd := &cobra.Command{
		Use:   "mv [-n] [-u USER] SOURCE... DESTINATION",
		Short: "Move files and directories",
		Long:  "Move files within the guest: to a new name, or into a directory that exists.",
		Example: `  guestctl mv draft.txt final.txt
  guestctl mv a.txt b.txt /srv/texts/`,
		Args: atLeast(2, "a source and a destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			last := len(args) - 1
			return a.move(cmd.Context(), args[:last], args[last], &options)
		},
	}
	addUserFlag(cmd.Flags(), &options.User)
	cmd.Flags().BoolVarP(&options.NoReplace, "no-clobber", "n", false, "fail if the destination exists")
	return cmd
}

func (a *app) move(ctx context.Context, sources []string, destination string, options *client.RenameOptions) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	into, err := isGuestDir(ctx, c, destination, options.User)
	if err != nil {
		return err
	}
	if !into && (len(sources) > 1 || strings.HasSuffix(destination, "/")) {
		return fmt.Errorf("%s is no directory", quoteUnprintable(destination))
	}
	return a.each(ctx, sources, func(ctx context.Context, c *client.Client, source string) error {
		to := destination
		if into {
			to = path.Join(destination, path.Base(source))
		}
		return c.Rename(ctx, source, to, options)
	})
}

// isGuestDir tells whether a path of the guest leads to a directory; a path that does not exist does not.
func isGuestDir(ctx context.Context, c *client.Client, name, user string) (bool, error) {
	info, err := c.Stat(ctx, name, &client.FileOptions{User: user})
	if client.IsMissing(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return info.IsDir(), nil
}
