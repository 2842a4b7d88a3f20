package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

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
	if terminal {
		return a.attachTerminal(ctx, c, id, options, escape)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	restore := a.signals.redirect(func(s signalError) { cancel(s) })
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

// attachTerminal puts a process's terminal in the place of the local one.
func (a *app) attachTerminal(ctx context.Context, c *client.Client, id string, options client.AttachOptions, escape escapeFlag) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	var keys *terminalKeys
	if options.Stdin != nil && isTerminal(a.stdin) {
		raw, err := makeRaw(a.stdin)
		if err != nil {
			return err
		}
		defer raw.close()
		keys = a.terminalKeys(escape)
		options.Stdin = keys
	}
	missing := make(chan struct{}, 1)
	if options.FromNow {
		missing <- struct{}{}
	}
	options.OnGap = func(g client.Gap) {
		a.tellGap(g)
		select {
		case missing <- struct{}{}:
		default:
		}
	}
	start := func() (remote, error) {
		attachment, err := c.Attach(ctx, id, options)
		if err == nil && isTerminal(a.stdout) {
			go a.repaintAfter(ctx, missing, attachment)
		}
		return attachment, err
	}
	return a.followTerminal(ctx, keys, start, func(s signalError) { cancel(s) }, cancel)
}

// repaintPause is between two sizes, so that a program gets to see both.
const repaintPause = 100 * time.Millisecond

// repaintAfter has the program paint its screen anew once a part of what has painted it is missing: by
// another size for a moment, which is what all such programs listen to. It ends with ctx at the latest.
func (a *app) repaintAfter(ctx context.Context, missing <-chan struct{}, r remote) {
	select {
	case <-missing:
	case <-ctx.Done():
		return
	}
	for _, fewer := range []int{1, 0} {
		select {
		case <-time.After(repaintPause):
		case <-ctx.Done():
			return
		}
		if size, known := a.terminalSize(); known {
			size.Rows = max(1, size.Rows-fewer)
			// It fails only when the process has ended, which Wait tells.
			_ = r.Resize(size)
		}
	}
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
