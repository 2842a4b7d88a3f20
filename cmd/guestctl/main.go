// Command guestctl drives guestd from a host's command line: it runs commands, opens shells, runs
// code and moves files in a guest.
//
// Each verb stands in a file of its own and is a thin layer over package client; what verbs share
// is in files named after it. guestctl talks to a guest through the API alone, never to guestd's
// packages; where no target is named it starts a guestd of its own, as a program, for the one
// command.
//
// Goroutines: the signal dispatcher lives as long as main; the verb has one of its own, so that main
// can leave behind what does not end; a private guestd is watched by one goroutine that main waits
// for, and one that ends with it. A terminal that was made raw is restored on every return from the
// verb, signals and panics included.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// run does what the arguments say and returns the exit code.
func run(args []string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(context.Canceled)
	signals := watchSignals(func(s signalError) { cancel(s) })
	defer signals.stop()
	a := newApp(signals, cancel)
	defer a.close()
	root := newRoot(a)
	root.SetArgs(spellFlags(root, args))
	err := runVerb(ctx, root)
	if message := complaint(ctx, err); message != "" {
		fmt.Fprintf(os.Stderr, "guestctl: %s\n", message)
	}
	return exitCode(ctx, err)
}

// verbPatience is how long a verb that is to end may take to put everything away.
const verbPatience = 2 * time.Second

// runVerb runs the verb. One that does not end though it is to is left behind: it waits in a system
// call that nothing breaks off, as the opening of a local FIFO is, or a write to a pipe that nobody reads.
func runVerb(ctx context.Context, root *cobra.Command) error {
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(verbPatience):
		return context.Cause(ctx)
	}
}
