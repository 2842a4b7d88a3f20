package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

// runFlags are the flags of run.
type runFlags struct {
	code, language, context, dir, saveDir string
	hasCode                               bool
	env                                   []string
	timeout                               duration
}

func newRun(a *app) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] (-c CODE | FILE | -)",
		Short: "Run code",
		Long: `Run code in the guest: Python unless --language or --context says otherwise. Variables, imports
and files last from one run to the next, as in a notebook.

Text goes to stdout and stderr as it comes; the value of the last expression follows on stdout.
Pictures are shown where the terminal can (kitty, iTerm2, sixels), and saved and named elsewhere. input()
reads the next line of stdin. Ctrl-C interrupts the code, and its variables stay.

The exit code is 1 after an error in the code, N after its sys.exit(N), 124 after a time-out. --json
prints the events, one a line.`,
		Example: `  guestctl run -c 'x = 21'; guestctl run -c 'x * 2'
  guestctl run analysis.py
  guestctl run --save-dir charts - < plot.py
  guestctl run --language bash -c 'ls | wc -l'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.hasCode = cmd.Flags().Changed("code")
			return a.run(cmd.Context(), f, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.code, "code", "c", "", "run `CODE`")
	flags.StringVar(&f.language, "language", "", "run `LANGUAGE` (default python)")
	flags.StringVar(&f.context, "context", "", "run in the context `ID` (default: the language's own)")
	flags.Var(&f.timeout, "timeout", "interrupt it after `DURATION`, 0 for never (default 60s)")
	flags.StringVarP(&f.dir, "workdir", "w", "", "run in `DIR`, this once (default: the context's)")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "set `NAME=VALUE`, or NAME to its value here, this once; repeatable")
	flags.StringVar(&f.saveDir, "save-dir", "", "save pictures in `DIR`, and show none (default: here, where they cannot be shown)")
	return cmd
}

func (a *app) run(ctx context.Context, f runFlags, args []string) error {
	request, err := a.codeRequest(ctx, f, args)
	if err != nil {
		return err
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	execution, err := c.Execute(ctx, request)
	if err != nil {
		return err
	}
	input := newLineInput(a, execution, usesStdin(f, args))
	restore := a.signals.redirect(input.interruptOnSignal(ctx))
	defer restore()
	var show eventView = newTextView(a, f.saveDir, input)
	if a.json {
		show = newJSONView(a)
	}
	return showEvents(ctx, execution, show, input)
}

// codeRequest reads the code from where the arguments say.
func (a *app) codeRequest(ctx context.Context, f runFlags, args []string) (client.CodeRequest, error) {
	code, err := a.readCode(ctx, f, args)
	if err != nil {
		return client.CodeRequest{}, err
	}
	env, err := resolveEnv(f.env)
	if err != nil {
		return client.CodeRequest{}, err
	}
	timeout := f.timeout.value
	if f.timeout.set && timeout == 0 {
		timeout = -1
	}
	return client.CodeRequest{
		Code: code, Language: f.language, ContextID: f.context, Timeout: timeout, Env: env, Dir: f.dir, AllowStdin: true,
	}, nil
}

func (a *app) readCode(ctx context.Context, f runFlags, args []string) (string, error) {
	switch {
	case f.hasCode && len(args) > 0:
		return "", errors.New("run takes -c CODE or a file, not both")
	case f.hasCode:
		return f.code, nil
	case len(args) > 1:
		return "", fmt.Errorf("run takes one file, not %d", len(args))
	case usesStdin(f, args):
		text, err := io.ReadAll((&stdinReader{file: a.stdin}).until(ctx))
		return string(text), err
	case len(args) == 1:
		text, err := os.ReadFile(args[0])
		return string(text), err
	default:
		return "", errors.New("run takes code: -c CODE, a file, or - for stdin\nTry 'guestctl run --help'")
	}
}

func usesStdin(f runFlags, args []string) bool { return !f.hasCode && len(args) == 1 && args[0] == "-" }

// eventView shows an execution's events to a reader of one kind.
type eventView interface {
	show(client.Event) error
}

// showEvents shows all events, and turns the last into the exit code.
func showEvents(ctx context.Context, execution *client.Execution, view eventView, input *lineInput) (err error) {
	defer func() {
		if inputErr := input.close(); inputErr != nil {
			err = inputErr // the interrupt that it led to says less
		}
	}()
	var failure client.CodeError
	for event, err := range execution.Events() {
		if err != nil {
			return err
		}
		if err := view.show(event); err != nil {
			return err
		}
		switch d := event.Detail.(type) {
		case client.InputRequest:
			if err := input.ask(ctx, d); err != nil {
				return errors.Join(err, execution.Interrupt(ctx))
			}
		case client.CodeError:
			failure = d
		case client.Finished:
			return finishedError(d, failure)
		}
	}
	return nil
}
