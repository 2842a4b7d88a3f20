package main

import (
	"context"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

func newMkdir(a *app) *cobra.Command {
	var options client.MkdirOptions
	var mode fileMode
	var parents bool
	cmd := &cobra.Command{
		Use:     "mkdir [-p] [-m MODE] [-u USER] PATH...",
		Short:   "Make directories",
		Long:    "Make directories in the guest. --json prints what stat prints, one object a line.",
		Example: "  guestctl mkdir -p /tmp/a/b/c",
		Args:    atLeast(1, "a path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.Mode = mode.value
			return a.each(cmd.Context(), args, func(ctx context.Context, c *client.Client, path string) error {
				mkdir := c.Mkdir
				if parents {
					mkdir = c.MkdirAll
				}
				if err := mkdir(ctx, path, &options); err != nil || !a.json {
					return err
				}
				info, err := c.Stat(ctx, path, &client.FileOptions{User: options.User})
				if err != nil {
					return err
				}
				return a.printJSON(newJSONFile(info))
			})
		},
	}
	addUserFlag(cmd.Flags(), &options.User)
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "make missing parents too, and be content with what is there")
	cmd.Flags().VarP(&mode, "mode", "m", "give the directory `MODE`, in octal (default 755)")
	return cmd
}
