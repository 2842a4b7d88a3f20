package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"guestd.internal/client"
)

// errInterrupted ends the wait for a line when the code is interrupted.
var errInterrupted = errors.New("interrupted")

// lineInput answers code's input() from stdin, a line at a time.
type lineInput struct {
	app       *app
	execution *client.Execution
	used      bool // stdin was the code
	// wait ends the wait for a line; interrupt ends wait.
	wait      context.Context
	interrupt context.CancelCauseFunc
	lines     *bufio.Reader
}

func newLineInput(ctx context.Context, a *app, execution *client.Execution, used bool) *lineInput {
	i := &lineInput{app: a, execution: execution, used: used}
	i.wait, i.interrupt = context.WithCancelCause(ctx)
	return i
}

// interruptPatience bounds the call that interrupts code.
const interruptPatience = 10 * time.Second

// interruptOnSignal interrupts the code, whose end run then shows as any other.
func (i *lineInput) interruptOnSignal(ctx context.Context) func(signalError) {
	return func(signalError) {
		i.interrupt(errInterrupted)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), interruptPatience)
		defer cancel()
		if err := i.execution.Interrupt(ctx); err != nil {
			i.app.notice("interrupting the code: %v", err)
		}
	}
}

// answer answers a request. Where that fails the code would wait until its time-out, so it is interrupted.
func (i *lineInput) answer(ctx context.Context, request client.InputRequest) error {
	err := i.reply(ctx, request)
	if err == nil {
		return nil
	}
	return errors.Join(err, i.execution.Interrupt(ctx))
}

func (i *lineInput) reply(ctx context.Context, request client.InputRequest) error {
	line, err := i.read(request)
	switch {
	case errors.Is(err, errInterrupted):
		return nil // the code's end is on its way
	case errors.Is(err, io.EOF):
		err = i.execution.EndInput(ctx)
	case err == nil:
		err = i.execution.ReplyInput(ctx, line)
	}
	if late, is := errors.AsType[*client.Error](err); is && late.Reason == "NO_INPUT_REQUEST" {
		return nil // the code has stopped to wait while the line was typed
	}
	return err
}

// read shows the prompt and reads a line; io.EOF tells that there is none.
func (i *lineInput) read(request client.InputRequest) (string, error) {
	if i.used {
		return "", io.EOF
	}
	if isTerminal(i.app.stdin) {
		fmt.Fprint(i.app.stderr, request.Prompt)
		if request.Password {
			show, err := hideTyping(i.app.stdin)
			if err != nil {
				return "", err
			}
			defer fmt.Fprintln(i.app.stderr) // the line end that was not shown
			defer show()
		}
	}
	if i.lines == nil {
		i.lines = bufio.NewReader((&stdinReader{file: i.app.stdin}).until(i.wait))
	}
	line, err := i.lines.ReadString('\n')
	if err != nil && line == "" {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), nil
}
