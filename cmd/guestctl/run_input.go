package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"guestd.internal/client"
)

// errNotAwaited ends the wait for a line when the code no longer waits for one: it was interrupted,
// or has ended.
var errNotAwaited = errors.New("the code waits for no line")

// lineInput answers code's input() from stdin, a line at a time and beside the events, since the
// code may end while a line is awaited. Its goroutine, one at a time, ends with the line, or with
// close.
type lineInput struct {
	app       *app
	execution *client.Execution
	used      bool // stdin was the code
	// stdin, lines and wait, which ends the wait for a line, are of one goroutine at a time: the
	// code asks again only when it was answered.
	stdin stdinReader
	lines *bufio.Reader
	wait  context.Context

	pending sync.WaitGroup
	mu      sync.Mutex              // protects the following
	reads   bool                    // the goroutine runs
	stop    context.CancelCauseFunc // ends wait
	err     error                   // the first that an answer failed with
}

func newLineInput(a *app, execution *client.Execution, used bool) *lineInput {
	i := &lineInput{app: a, execution: execution, used: used, stdin: stdinReader{file: a.stdin}, stop: func(error) {}}
	i.lines = bufio.NewReader(i)
	return i
}

// Read reads stdin for as long as the code waits for a line.
func (i *lineInput) Read(p []byte) (int, error) { return i.stdin.readContext(i.wait, p) }

// stopWaiting ends the wait for a line, if there is one.
func (i *lineInput) stopWaiting() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stop(errNotAwaited)
}

// close ends a wait, and tells the first error of an answer.
func (i *lineInput) close() error {
	i.stopWaiting()
	i.pending.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err
}

// interruptPatience bounds the call that interrupts code.
const interruptPatience = 10 * time.Second

// interruptOnSignal interrupts the code, whose end run then shows as any other. Where the guest is
// out of reach run ends instead.
func (i *lineInput) interruptOnSignal(ctx context.Context) func(signalError) {
	return func(s signalError) {
		i.stopWaiting()
		if i.app.connection.giveUp(s) {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), interruptPatience)
		defer cancel()
		if err := i.execution.Interrupt(ctx); err != nil {
			i.app.notice("interrupting the code: %v", err)
			if errors.Is(err, client.ErrUnavailable) {
				i.app.cancel(s)
			}
		}
	}
}

// ask shows a request, and begins to wait for its line. Where no answer can be given the code would
// wait until its time-out, so it is interrupted.
func (i *lineInput) ask(ctx context.Context, request client.InputRequest) error {
	show, err := i.prompt(request)
	if err != nil {
		return err
	}
	i.pending.Wait() // for the goroutine of a wait that was interrupted
	i.mu.Lock()
	i.wait, i.stop = context.WithCancelCause(ctx)
	i.reads = true
	i.mu.Unlock()
	i.pending.Go(func() {
		defer i.readsNoMore()
		line, err := i.read()
		i.stopWaiting() // nobody waits any more, and ctx is to forget the wait
		show()
		if err = i.reply(ctx, line, err); err == nil {
			return
		}
		err = errors.Join(err, i.execution.Interrupt(ctx))
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.err == nil {
			i.err = err
		}
	})
	return nil
}

func (i *lineInput) readsNoMore() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reads = false
}

// asksForSixels asks the terminal whether it shows sixels. What was typed meanwhile is left for
// input(). While a line is awaited nothing is asked: the answer would be taken for it.
func (i *lineInput) asksForSixels() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.reads || i.stdin.pending != nil {
		return false
	}
	can, typed := asksForSixels(i.app.stdin, i.app.stdout, patienceWith(os.Getenv))
	i.stdin.rest = append(i.stdin.rest, typed...)
	return can
}

// prompt shows the prompt on a terminal, and hides what is typed there if it is a secret; show ends that.
func (i *lineInput) prompt(request client.InputRequest) (show func(), err error) {
	if i.used || !isTerminal(i.app.stdin) {
		return func() {}, nil
	}
	fmt.Fprint(i.app.stderr, request.Prompt)
	if !request.Password {
		return func() {}, nil
	}
	unhide, err := hideTyping(i.app.stdin)
	if err != nil {
		return nil, fmt.Errorf("hiding what is typed: %w", err)
	}
	return func() {
		unhide()
		fmt.Fprintln(i.app.stderr) // the line end that was not shown
	}, nil
}

// read reads a line; io.EOF tells that there is none.
func (i *lineInput) read() (string, error) {
	if i.used {
		return "", io.EOF
	}
	line, err := i.lines.ReadString('\n')
	if err != nil && line == "" {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), nil
}

// reply answers with what read has given.
func (i *lineInput) reply(ctx context.Context, line string, err error) error {
	switch {
	case errors.Is(err, errNotAwaited):
		return nil
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
