package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

func newAttach(a *app) *cobra.Command {
	var from string
	var interactive bool
	var escape escapeFlag
	cmd := &cobra.Command{
		Use:   "attach [-i] [--from OUT[,ERR]|now] ID",
		Short: "Follow a process that runs, or ran",
		Long: `Follow a process that was started with exec -d or by another client: its output from the start on,
as far as guestd still has it, and its exit code, as if it had been started here. A process in a
terminal takes the local terminal's place, where "~." at the start of a line detaches (--escape).
Signals end the attachment, and the process goes on.`,
		Example: `  guestctl attach p-3k5r2m7q8w2xj
  guestctl attach --from now p-3k5r2m7q8w2xj`,
		Args: exactly(1, "one process id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.attach(cmd.Context(), args[0], from, interactive, escape)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "start at byte `OUT` of stdout or the terminal and byte ERR of stderr, or at what comes now (default 0,0)")
	addEscapeFlag(cmd.Flags(), &escape)
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", false, "pass stdin on to a process without a terminal")
	return cmd
}

func (a *app) attach(ctx context.Context, id, from string, interactive bool, escape escapeFlag) error {
	c, err := a.connectLasting(ctx, "attach")
	if err != nil {
		return err
	}
	process, err := c.Process(ctx, id)
	if err != nil {
		return err
	}
	terminal := process.Terminal != nil
	options := client.AttachOptions{Stdout: a.stdout, Stderr: a.stderr, OnGap: a.tellGap}
	if err := setFrom(&options, from, terminal); err != nil {
		return err
	}
	if interactive || (terminal && process.Running && isTerminal(a.stdin)) {
		options.Stdin = a.stdin
	}
	var keys *terminalKeys
	if terminal && options.Stdin != nil && isTerminal(a.stdin) {
		raw, err := makeRaw(a.stdin)
		if err != nil {
			return err
		}
		defer raw.close()
		keys = a.terminalKeys(escape)
		options.Stdin = keys
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	detach := func(s signalError) { cancel(s) }
	if terminal {
		return a.followTerminal(ctx, keys, func() (remote, error) { return c.Attach(ctx, id, options) }, detach, cancel)
	}
	restore := a.signals.redirect(detach)
	defer restore()
	attachment, err := c.Attach(ctx, id, options)
	if err != nil {
		return err
	}
	err = attachment.Wait()
	if s, is := errors.AsType[signalError](context.Cause(ctx)); is && attachment.Status() == nil {
		return s
	}
	return err
}

// tellGap tells of lost output at its place, and notes it.
func (a *app) tellGap(gap client.Gap) {
	a.lost.Store(true)
	a.notice("%d bytes of %s are lost: guestd no longer has them", gap.End-gap.Start, gap.Stream)
}

// setFrom reads --from: "now", or offsets of stdout (or the terminal) and stderr.
func setFrom(options *client.AttachOptions, from string, terminal bool) error {
	first := client.Stdout
	if terminal {
		first = client.Terminal
	}
	if from == "now" {
		options.FromNow = true
		return nil
	}
	if from == "" {
		from = "0"
	}
	out, errText, both := strings.Cut(from, ",")
	options.From = map[client.Stream]uint64{first: 0}
	if !terminal {
		options.From[client.Stderr] = 0
	}
	offset, err := strconv.ParseUint(out, 10, 64)
	if err != nil {
		return fmt.Errorf("--from %s: want OUT, OUT,ERR or now, with offsets in bytes", quoted(from))
	}
	options.From[first] = offset
	if !both {
		return nil
	}
	if terminal {
		return fmt.Errorf("--from %s: a process in a terminal has no stderr of its own", quoted(from))
	}
	if options.From[client.Stderr], err = strconv.ParseUint(errText, 10, 64); err != nil {
		return fmt.Errorf("--from %s: want OUT, OUT,ERR or now, with offsets in bytes", quoted(from))
	}
	return nil
}
