package main

import (
	"context"

	"github.com/spf13/cobra"
)

func newShell(a *app) *cobra.Command {
	var user string
	var escape escapeFlag
	cmd := &cobra.Command{
		Use:   "shell [-u USER]",
		Short: "Open a login shell in a terminal",
		Long: `Open the user's login shell in a terminal of the guest. Where stdin is no terminal the shell reads
its commands from there, without a terminal.

exit or Ctrl-D end it; its exit code is guestctl's. "~." at the start of a line detaches: the shell
goes on, for guestctl attach; "~?" tells of that (--escape has another character). A connection that is lost may come back for a
minute, and nothing is lost with it; Ctrl-C gives up then.`,
		Example: `  guestctl shell
  guestctl shell -u root
  echo 'uname -a' | guestctl shell`,
		Args: exactly(0, "no command (exec runs one)"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.shell(cmd.Context(), user, escape) },
	}
	addEscapeFlag(cmd.Flags(), &escape)
	addUserFlag(cmd.Flags(), &user)
	return cmd
}

func (a *app) shell(ctx context.Context, user string, escape escapeFlag) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	cmd := c.Command()
	cmd.Login, cmd.User = true, user
	if isTerminal(a.stdin) {
		return a.runInTerminal(ctx, cmd, a.terminalKeys(escape))
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.OnGap = a.stdin, a.stdout, a.stderr, a.tellGap
	return a.follow(ctx, cmd)
}
