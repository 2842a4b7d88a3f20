// Command guestctl drives guestd from a host's command line: it runs commands, opens shells, runs
// code and moves files in a guest.
//
// Each verb stands in a file of its own and is a thin layer over package client; what verbs share
// is in files named after it. guestctl talks to a guest through the API alone, never to guestd's
// packages; where no target is named it starts a guestd of its own, as a program, for the one
// command.
//
// Goroutines: the signal dispatcher lives as long as main; a private guestd is watched by one
// goroutine, which main waits for. A terminal that was made raw is restored on every return from
// main, signals and panics of the verb included.
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// run does what the arguments say and returns the exit code.
func run(args []string) int {
	signals := watchSignals()
	defer signals.stop()
	a := &app{signals: signals, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	defer a.close()
	root := newRoot(a)
	root.SetArgs(spellFlags(root, args))
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(context.Canceled)
	restore := signals.redirect(func(s signalError) { cancel(s) })
	defer restore()
	err := root.ExecuteContext(ctx)
	if message := complaint(ctx, err); message != "" {
		fmt.Fprintf(os.Stderr, "guestctl: %s\n", message)
	}
	return exitCode(ctx, err)
}
