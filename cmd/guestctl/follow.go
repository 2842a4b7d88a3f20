package main

import (
	"context"
	"errors"
	"syscall"
	"time"

	"guestd.internal/client"
)

// hangUpPatience is how long a command in a terminal gets to end after it was hung up.
const hangUpPatience = 2 * time.Second

// remote is a process of the guest that guestctl follows: a client.Cmd or a client.Attachment.
type remote interface {
	Signal(syscall.Signal) error
	Resize(client.Size) error
	Wait() error
}

// follow starts a command without a terminal, passes signals on to it, and waits for its end, or for
// ctx's: that of a verb whose guest is out of reach for good. A signal that comes before the command
// runs gives its start up.
func (a *app) follow(ctx context.Context, cmd *client.Cmd) error {
	commandCtx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(context.Canceled)
	// Before the start: the command may show that it runs, and be answered by a signal, before Start
	// has returned.
	restore := a.signals.forward(func(s signalError) {
		if a.connection.giveUp(s) {
			return
		}
		// It fails otherwise only when the command has ended, which Wait tells.
		if errors.Is(cmd.Signal(syscall.Signal(s)), client.ErrNotStarted) {
			giveUp(s)
		}
	})
	defer restore()
	if err := cmd.Start(commandCtx); err != nil {
		return err
	}
	return waitFor(ctx, cmd)
}

// waitFor waits for a process's end, and no longer than ctx lasts.
func waitFor(ctx context.Context, r remote) error {
	ended := make(chan error, 1)
	go func() { ended <- r.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// followTerminal starts to follow a process in a terminal, passes the terminal's size on to it, and
// waits for its end. The keys for signals are typed into the guest's terminal; a signal to guestctl
// itself means that the local one is gone, and calls end, be it before start has returned. ctx is as
// in follow.
func (a *app) followTerminal(ctx context.Context, start func() (remote, error), end func(signalError)) error {
	ended := make(chan signalError, 1)
	restore := a.signals.forward(func(s signalError) {
		if a.connection.giveUp(s) {
			return
		}
		select {
		case ended <- s:
			end(s)
		default: // it was told already
		}
	})
	defer restore()
	r, err := start()
	if err != nil {
		return err
	}
	stop := a.followSize(func(size client.Size) {
		// It fails only when the process has ended, which Wait tells.
		_ = r.Resize(size)
	})
	defer stop()
	err = waitFor(ctx, r)
	select {
	case s := <-ended:
		return s
	default:
		return err
	}
}

// hangUp ends a command in a terminal as the loss of its line would, and kills it if that does not
// help, or if it does not run yet. Its timer needs no owner: cancel does nothing once the command has
// ended.
func hangUp(cmd *client.Cmd, cancel context.CancelCauseFunc) func(signalError) {
	return func(s signalError) {
		// It fails otherwise only when the command has ended, which Wait tells.
		if errors.Is(cmd.Signal(syscall.SIGHUP), client.ErrNotStarted) {
			cancel(s)
			return
		}
		time.AfterFunc(hangUpPatience, func() { cancel(s) })
	}
}
