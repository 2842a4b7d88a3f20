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

// follow starts a command without a terminal, passes signals on to it, and waits for its end, or for
// ctx's: that of a verb whose guest is out of reach for good.
func (a *app) follow(ctx context.Context, cmd *client.Cmd) error {
	commandCtx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(context.Canceled)
	signals := &startSignals{giveUp: giveUp, pass: func(s signalError) {
		// It fails only when the command has ended, which Wait tells.
		_ = cmd.Signal(syscall.Signal(s))
	}}
	// Before the start: the command may show that it runs, and be answered by a signal, before Start
	// has returned.
	restore := a.signals.redirect(func(s signalError) {
		if !a.connection.giveUp(s) {
			signals.take(s)
		}
	})
	defer restore()
	if err := cmd.Start(commandCtx); err != nil {
		return err
	}
	signals.started()
	err := waitFor(ctx, cmd)
	if err == nil && a.lost.Load() {
		return exitError(exitFailure) // it is not all there, whatever the command's end
	}
	return err
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
// itself means that the local one is gone, and calls end. giveUp ends the start. ctx is as in follow.
func (a *app) followTerminal(ctx context.Context, start func() (remote, error), end func(signalError), giveUp context.CancelCauseFunc) error {
	ended := make(chan signalError, 1)
	signals := &startSignals{giveUp: giveUp, pass: func(s signalError) {
		select {
		case ended <- s:
			end(s)
		default: // it was told already
		}
	}}
	restore := a.signals.redirect(func(s signalError) {
		if !a.connection.giveUp(s) {
			signals.take(s)
		}
	})
	defer restore()
	r, err := start()
	if err != nil {
		return err
	}
	signals.started()
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
// help. Its timer needs no owner: cancel does nothing once the command has ended.
func hangUp(cmd *client.Cmd, cancel context.CancelCauseFunc) func(signalError) {
	return func(s signalError) {
		// It fails only when the command has ended, which Wait tells.
		_ = cmd.Signal(syscall.SIGHUP)
		time.AfterFunc(hangUpPatience, func() { cancel(s) })
	}
}
