package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"guestd.internal/client"
)

func newKill(a *app) *cobra.Command {
	signal := "TERM"
	cmd := &cobra.Command{
		Use:   "kill [-s SIGNAL] ID...",
		Short: "Send a signal to processes",
		Long:  "Send a signal to processes that were started through guestd, each with all that descend from it.",
		Example: `  guestctl kill p-3k5r2m7q8w2xj
  guestctl kill -s KILL p-3k5r2m7q8w2xj`,
		Args: atLeast(1, "a process id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := parseSignal(signal)
			if err != nil {
				return err
			}
			if _, err := a.connectLasting(cmd.Context(), "kill"); err != nil {
				return err
			}
			return a.each(cmd.Context(), args, func(ctx context.Context, c *client.Client, id string) error {
				return c.SignalProcess(ctx, id, number)
			})
		},
	}
	cmd.Flags().StringVarP(&signal, "signal", "s", signal, "send `SIGNAL`, by name or number")
	return cmd
}

// parseSignal takes a number, or a name with or without SIG, in any case.
func parseSignal(text string) (syscall.Signal, error) {
	const most = 64
	if number, err := strconv.Atoi(text); err == nil && number >= 1 && number <= most {
		return syscall.Signal(number), nil
	}
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if signal := unix.SignalNum(name); signal != 0 {
		return signal, nil
	}
	return 0, fmt.Errorf("there is no signal %s: want a name like TERM, or a number from 1 to %d", quoted(text), most)
}
