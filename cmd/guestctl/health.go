package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

func newHealth(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "health [SERVICE]",
		Short: "Tell whether guestd serves",
		Long:  "Tell whether guestd as a whole, or one of its services, serves. The exit code is 0 when it does. No token is needed.",
		Example: `  guestctl health
  guestctl health guestd.v1.CodeService`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			service := ""
			if len(args) > 0 {
				service = args[0]
			}
			return a.healthOf(cmd.Context(), service)
		},
	}
}

func (a *app) healthOf(ctx context.Context, service string) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	state, err := c.Health(ctx, service)
	if state == client.ServiceUnknown {
		return fmt.Errorf("guestd has no service %s: they are named as guestd.v1.CodeService is", quoted(service))
	}
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(struct {
			Status client.Health `json:"status"`
		}{state})
	} else {
		err = a.println(string(state))
	}
	if err == nil && state != client.Serving {
		err = fmt.Errorf("guestd is %s", state)
	}
	return err
}
