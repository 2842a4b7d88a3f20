package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

// execFlags are the flags of exec.
type execFlags struct {
	interactive, terminal, detach, shell bool
	user, dir                            string
	env                                  []string
	timeout                              duration
	escape                               escapeFlag
}

func newExec(a *app) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] [--] COMMAND [ARG]...",
		Short: "Run a command",
		Long: `Run a command in the guest. Its stdout, stderr and exit code are guestctl's; signals that guestctl
gets are passed on to it.

Its stdin is empty unless -i is given, so that exec in a loop eats nobody's input. With -t it runs
in a terminal, where "~." at the start of a line detaches: the command goes on (--escape). With -d
it goes on by itself from the start, and its process id is printed for attach, wait and kill.`,
		Example: `  guestctl exec -- ls -l /
  guestctl exec -u root -w /srv -e PORT=8080 -- ./server
  tar c . | guestctl exec -i -- tar x -C /tmp
  guestctl exec -it -- vim notes.txt
  guestctl exec --shell -- 'grep -c processor /proc/cpuinfo | tee cpus'
  id=$(guestctl exec -d -- sleep 60); guestctl wait "$id"`,
		Args: atLeast(1, "a command"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.exec(cmd.Context(), f, args) },
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command belongs to it
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "pass stdin on")
	flags.BoolVarP(&f.terminal, "tty", "t", false, "run in a terminal")
	flags.BoolVarP(&f.detach, "detach", "d", false, "let it run by itself, and print its process id")
	flags.BoolVar(&f.shell, "shell", false, "run the arguments, joined by spaces, as one line of /bin/sh")
	flags.Var(&f.timeout, "timeout", "end it after `DURATION` (90, 1.5s, 2m)")
	addEscapeFlag(flags, &f.escape)
	addPlaceFlags(flags, &f.user, &f.dir, &f.env)
	return cmd
}

func (a *app) exec(ctx context.Context, f execFlags, args []string) error {
	if f.detach {
		return a.execDetached(ctx, f, args)
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	cmd, err := f.command(c, args)
	if err != nil {
		return err
	}
	if f.terminal {
		var keys *terminalKeys
		if f.interactive && isTerminal(a.stdin) {
			keys = a.terminalKeys(f.escape)
		} else if f.interactive {
			cmd.Stdin = a.stdin
		}
		return a.runInTerminal(ctx, cmd, keys)
	}
	if f.interactive {
		cmd.Stdin = a.stdin
	}
	cmd.Stdout, cmd.Stderr, cmd.OnGap = a.stdout, a.stderr, a.tellGap
	return a.follow(ctx, cmd)
}

func (a *app) execDetached(ctx context.Context, f execFlags, args []string) error {
	if f.interactive {
		return errors.New("-d and -i exclude each other: a detached command has nobody's stdin")
	}
	c, err := a.connectLasting(ctx, "exec -d")
	if err != nil {
		return err
	}
	cmd, err := f.command(c, args)
	if err != nil {
		return err
	}
	if f.terminal {
		cmd.Terminal = a.sizeForGuest()
	}
	id, err := cmd.Detach(ctx)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(struct {
			ProcessID string `json:"process_id"`
		}{id})
	} else {
		err = a.println(id)
	}
	if err != nil {
		return fmt.Errorf("%s runs, and its id could not be printed: %w", id, err)
	}
	return nil
}

func (f *execFlags) command(c *client.Client, args []string) (*client.Cmd, error) {
	line := strings.Join(args, " ")
	// guestd would name fields of the API.
	switch {
	case f.shell && line == "":
		return nil, errors.New("the shell line is empty")
	case !f.shell && args[0] == "":
		return nil, errors.New("the command's name is empty")
	}
	cmd := c.Command(args...)
	if f.shell {
		cmd = c.Shell(line)
	}
	env, err := resolveEnv(f.env)
	if err != nil {
		return nil, err
	}
	cmd.User, cmd.Dir, cmd.Env, cmd.Timeout = f.user, f.dir, env, f.timeout.value
	return cmd, nil
}

// runInTerminal runs a command in a terminal of the guest that takes the place of the local one. Without
// keys nothing is typed into it.
func (a *app) runInTerminal(ctx context.Context, cmd *client.Cmd, keys *terminalKeys) error {
	cmd.Terminal = a.sizeForGuest()
	cmd.Stdout, cmd.OnGap = a.stdout, a.tellGap
	if keys != nil {
		raw, err := makeRaw(a.stdin)
		if err != nil {
			return err
		}
		defer raw.close()
		cmd.Stdin = keys
	}
	commandCtx, kill := context.WithCancelCause(ctx)
	defer kill(context.Canceled)
	start := func() (remote, error) { return cmd, cmd.Start(commandCtx) }
	return a.followTerminal(ctx, keys, start, hangUp(cmd, kill), kill)
}

// sizeForGuest is the local terminal's size, or guestd's default.
func (a *app) sizeForGuest() *client.Size {
	size, _ := a.terminalSize()
	return &size
}

// resolveEnv gives NAME alone the value that it has here, as docker run does.
func resolveEnv(env []string) ([]string, error) {
	resolved := make([]string, 0, len(env))
	for _, entry := range env {
		name, _, found := strings.Cut(entry, "=")
		if name == "" {
			return nil, fmt.Errorf("-e %s: want NAME=VALUE, or NAME for the value that it has here", quoted(entry))
		}
		if found {
			resolved = append(resolved, entry)
		} else if value, set := os.LookupEnv(name); set {
			resolved = append(resolved, name+"="+value)
		}
	}
	return resolved, nil
}
