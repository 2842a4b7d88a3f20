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
	Leave() error
	ID() string
	Status() *client.ExitStatus
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
	err := a.waitFor(ctx, cmd, false)
	if err == nil && a.lost.Load() {
		return exitError(exitFailure) // it is not all there, whatever the command's end
	}
	return err
}

// waitFor waits for a process's end, and no longer than ctx lasts. It tells how to come back to one that
// was left, on a screen that is the user's again if it was the process's.
func (a *app) waitFor(ctx context.Context, r remote, screen bool) error {
	ended := make(chan error, 1)
	go func() { ended <- r.Wait() }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if screen && r.Status() == nil {
		_, _ = a.stdout.WriteString(plainScreen) // the program that would do it goes on without us
	}
	switch {
	case errors.Is(err, client.ErrLeft):
		a.notice("detached; the command goes on, and this comes back to it: guestctl attach %s", r.ID())
		return nil
	case r.Status() == nil && a.private == nil && (a.connection.isLost() || errors.Is(err, client.ErrUnavailable)):
		a.notice("the command may go on in the guest; this comes back to it: guestctl attach %s", r.ID())
	}
	return err
}

// followTerminal starts to follow a process in a terminal, passes the terminal's size on to it, and
// waits for its end. The keys for signals are typed into the guest's terminal; a signal to guestctl
// itself means that the local one is gone, and calls end. giveUp ends the start. ctx is as in follow.
// keys is nil where nothing is typed.
func (a *app) followTerminal(ctx context.Context, keys *terminalKeys, start func() (remote, error), end func(signalError), giveUp context.CancelCauseFunc) error {
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
	started := make(chan remote, 1)
	if keys != nil {
		keys.detach = func() {
			if a.private != nil {
				a.notice("hung up: a private guestd ends with guestctl, and its commands with it")
				signals.take(signalError(syscall.SIGHUP))
				return
			}
			if err := (<-started).Leave(); errors.Is(err, client.ErrUnavailable) {
				a.notice("%s", plain(err))
			} // else it has ended, which Wait tells
		}
	}
	r, err := start()
	if err != nil {
		return err
	}
	started <- r
	signals.started()
	stop := a.followSize(func(size client.Size) {
		// It fails only when the process has ended, which Wait tells.
		_ = r.Resize(size)
	})
	defer stop()
	err = a.waitFor(ctx, r, isTerminal(a.stdout))
	select {
	case s := <-ended:
		return s
	default:
		return err
	}
}

// plainScreen takes back what full-screen programs ask of a terminal, as they do when they end: the
// alternate screen, mouse reports, bracketed paste, application keys, a hidden cursor, colours.
const plainScreen = "\x1b[?1047l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m"

// hangUp ends a command in a terminal as the loss of its line would, and kills it if that does not
// help. Its timer needs no owner: cancel does nothing once the command has ended.
func hangUp(cmd *client.Cmd, cancel context.CancelCauseFunc) func(signalError) {
	return func(s signalError) {
		// It fails only when the command has ended, which Wait tells.
		_ = cmd.Signal(syscall.SIGHUP)
		time.AfterFunc(hangUpPatience, func() { cancel(s) })
	}
}
