package main

import (
	"context"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

func newShutdown(a *app) *cobra.Command {
	var drain duration
	var sync bool
	cmd := &cobra.Command{
		Use:   "shutdown",
		Short: "End guestd and all that it runs",
		Long:  "End guestd in order: new work is refused, running calls get a moment, then processes get SIGTERM and SIGKILL. It returns when that has begun.",
		Example: `  guestctl shutdown
  guestctl shutdown --drain 0 --sync`,
		Args: exactly(0, "nothing"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			options := &client.ShutdownOptions{Sync: sync}
			if drain.set {
				options.Drain = &drain.value
			}
			return a.shutdown(cmd.Context(), options)
		},
	}
	cmd.Flags().Var(&drain, "drain", "give running calls `DURATION` to end (default: as guestd was started)")
	cmd.Flags().BoolVar(&sync, "sync", false, "flush the guest's file systems")
	return cmd
}

func (a *app) shutdown(ctx context.Context, options *client.ShutdownOptions) error {
	c, err := a.connectLasting(ctx, "shutdown")
	if err != nil {
		return err
	}
	return c.Shutdown(ctx, options)
}
