package main

import (
	"context"
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

// follow passes signals on to a process without a terminal, and waits for its end, or for ctx's: that
// of a verb whose guest is out of reach for good.
func (a *app) follow(ctx context.Context, r remote) error {
	restore := a.signals.forward(func(s signalError) {
		if !a.connection.giveUp(s) {
			// It fails only when the process has ended, which Wait tells.
			_ = r.Signal(syscall.Signal(s))
		}
	})
	defer restore()
	return waitFor(ctx, r)
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

// followTerminal passes the terminal's size on to a process in a terminal, and waits for its end.
// The keys for signals are typed into the guest's terminal; a signal to guestctl itself means that
// the local one is gone, and calls end. ctx is as in follow.
func (a *app) followTerminal(ctx context.Context, r remote, end func(signalError)) error {
	stop := a.followSize(func(size client.Size) {
		// It fails only when the process has ended, which Wait tells.
		_ = r.Resize(size)
	})
	defer stop()
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
	err := waitFor(ctx, r)
	select {
	case s := <-ended:
		return s
	default:
		return err
	}
}

// hangUp ends a process in a terminal as the loss of its line would, and kills it if that does not
// help. Its timer needs no owner: cancel does nothing once the process has ended.
func hangUp(r remote, cancel context.CancelCauseFunc) func(signalError) {
	return func(s signalError) {
		// It fails only when the process has ended, which Wait tells.
		_ = r.Signal(syscall.SIGHUP)
		time.AfterFunc(hangUpPatience, func() { cancel(s) })
	}
}
