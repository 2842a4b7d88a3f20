package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

func newContext(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Make and manage the contexts that run runs code in",
		Long: "Make and manage code contexts. Each has variables, a user, a working directory and an environment of its own; " +
			"'run --context ID' runs code there. The default context of each language is made when it is first used.",
		Example: `  id=$(guestctl context create -w /data -e KEY=value)
  guestctl run --context "$id" -c 'import os; os.getcwd()'
  guestctl context delete "$id"`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newContextCreate(a), newContextList(a),
		newContextRestart(a), newContextInterrupt(a), newContextDelete(a))
	return cmd
}

func newContextCreate(a *app) *cobra.Command {
	var request client.ContextRequest
	var env []string
	cmd := &cobra.Command{
		Use:   "create [flags]",
		Short: "Make a context, and print its id once it is ready",
		Example: `  guestctl context create
  guestctl context create --language bash -u nobody -w /tmp --name scratch`,
		Args: exactly(0, "nothing"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			resolved, err := resolveEnv(env)
			if err != nil {
				return err
			}
			request.Env = resolved
			return a.contextCreate(cmd.Context(), request)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&request.Language, "language", "", "for `LANGUAGE` (default python)")
	flags.StringVar(&request.Name, "name", "", "`NAME` for people")
	addPlaceFlags(flags, &request.User, &request.Dir, &env)
	return cmd
}

func (a *app) contextCreate(ctx context.Context, request client.ContextRequest) error {
	c, err := a.connectLasting(ctx, "context")
	if err != nil {
		return err
	}
	created, err := c.CreateContext(ctx, request)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(newJSONContext(created))
	}
	return a.println(created.ID)
}

func newContextList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the contexts",
		Example: `  guestctl context list
  guestctl context list --json | jq -r 'select(.state == "busy").context_id'`,
		Args: exactly(0, "nothing"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.contextList(cmd.Context()) },
	}
}

func (a *app) contextList(ctx context.Context) error {
	c, err := a.connectLasting(ctx, "context")
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	if !a.json {
		fmt.Fprintln(w, "ID\tLANGUAGE\tSTATE\tUSER\tAGE\tNAME")
	}
	for found, err := range c.Contexts(ctx, client.ContextFilter{}) {
		if err != nil {
			return err
		}
		if a.json {
			if err := a.printJSON(newJSONContext(found)); err != nil {
				return err
			}
			continue
		}
		name := quoteUnprintable(found.Name)
		if found.Default {
			name = "(default)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n",
			found.ID, quoteUnprintable(found.Language), contextStatus(found), quoteUnprintable(found.User), age(found.Created), name)
	}
	return w.Flush()
}

// contextStatus is what a context does, and how many executions wait for it.
func contextStatus(c *client.CodeContext) string {
	if c.Queued == 0 {
		return c.State.String()
	}
	return fmt.Sprintf("%s (%d queued)", c.State, c.Queued)
}

func newContextRestart(a *app) *cobra.Command {
	return a.contextVerb("restart", "Give contexts a fresh kernel: their variables are gone",
		func(ctx context.Context, c *client.Client, id string) error {
			_, err := c.RestartContext(ctx, id)
			return err
		})
}

func newContextInterrupt(a *app) *cobra.Command {
	return a.contextVerb("interrupt", "Interrupt what runs in contexts: their variables stay",
		func(ctx context.Context, c *client.Client, id string) error {
			_, err := c.InterruptContext(ctx, id)
			return err
		})
}

func newContextDelete(a *app) *cobra.Command {
	return a.contextVerb("delete", "End contexts and everything that runs in them",
		func(ctx context.Context, c *client.Client, id string) error { return c.DeleteContext(ctx, id) })
}

// contextVerb is a verb that does something with each of the contexts that it is given.
func (a *app) contextVerb(name, short string, do func(context.Context, *client.Client, string) error) *cobra.Command {
	return &cobra.Command{
		Use:     name + " ID...",
		Short:   short,
		Example: "  guestctl context " + name + " c-3k5r2m7q8w2xj",
		Args:    atLeast(1, "a context id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := a.connectLasting(cmd.Context(), "context"); err != nil {
				return err
			}
			return a.each(cmd.Context(), args, do)
		},
	}
}

// jsonContext is a context in JSON.
type jsonContext struct {
	ID         string            `json:"context_id"`
	Language   string            `json:"language"`
	Name       string            `json:"name,omitempty"`
	State      string            `json:"state"`
	Execution  string            `json:"execution_id,omitempty"`
	Queued     int               `json:"queued"`
	User       string            `json:"user"`
	Dir        string            `json:"cwd"`
	Labels     map[string]string `json:"labels,omitempty"`
	Default    bool              `json:"is_default"`
	Created    time.Time         `json:"create_time"`
	Generation uint64            `json:"kernel_generation"`
	PID        int               `json:"pid,omitempty"`
}

func newJSONContext(c *client.CodeContext) jsonContext {
	return jsonContext{
		ID: c.ID, Language: c.Language, Name: c.Name, State: c.State.String(), Execution: c.Execution, Queued: c.Queued,
		User: c.User, Dir: c.Dir, Labels: c.Labels, Default: c.Default, Created: c.Created,
		Generation: c.KernelGeneration, PID: c.PID,
	}
}
