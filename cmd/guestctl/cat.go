package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

func newCat(a *app) *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use:     "cat [-u USER] PATH...",
		Short:   "Print files",
		Long:    "Print files of the guest, byte for byte.",
		Example: "  guestctl cat /etc/os-release",
		Args:    atLeast(1, "a path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, func(ctx context.Context, c *client.Client, path string) error {
				return a.catFile(ctx, c, path, user)
			})
		},
	}
	addUserFlag(cmd.Flags(), &user)
	return cmd
}

func (a *app) catFile(ctx context.Context, c *client.Client, path, user string) error {
	r, err := c.Open(ctx, path, &client.ReadOptions{User: user})
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := io.Copy(a.stdout, r); err != nil {
		return fmt.Errorf("reading %s: %w", quoteUnprintable(path), err)
	}
	return nil
}
