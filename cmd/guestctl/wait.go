package main

import (
	"context"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

func newWait(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "wait ID",
		Short:   "Wait for a process's end",
		Long:    "Wait for a process's end, and end with its exit code.",
		Example: "  guestctl wait p-3k5r2m7q8w2xj",
		Args:    exactly(1, "one process id"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.wait(cmd.Context(), args[0]) },
	}
}

func (a *app) wait(ctx context.Context, id string) error {
	c, err := a.connectLasting(ctx, "wait")
	if err != nil {
		return err
	}
	status, err := c.WaitProcess(ctx, id)
	if err != nil {
		return err
	}
	if a.json {
		if err := a.printJSON(newJSONProcess(&client.Process{ID: id, Started: status.Started, Exit: status})); err != nil {
			return err
		}
	}
	if !status.Success() {
		return &client.ExitError{ExitStatus: *status}
	}
	return nil
}
