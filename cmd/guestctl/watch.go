package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

func newWatch(a *app) *cobra.Command {
	var options client.WatchOptions
	var noRecurse bool
	cmd := &cobra.Command{
		Use:   "watch [--no-recurse] [--include GLOB]... [--exclude GLOB]... [-u USER] PATH",
		Short: "Tell of changes of files",
		Long: `Tell of changes of a file or below a directory of the guest, one a line: the time, what happened (created, written,
write-closed, removed, renamed, attributes) and the path; of a rename the old path, "->" and the new one.

"overflow" says that changes were lost, since there were too many at once: look at the tree again. When what is watched goes away
the last line is "ended" with the reason (removed, replaced, unmounted), and the exit code is 0. Until then it takes Ctrl-C.`,
		Example: `  guestctl watch /home/user/project --exclude .git --exclude node_modules
  guestctl watch --json /tmp | jq -r 'select(.kind == "write-closed").path'`,
		Args: exactly(1, "a path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.Recursive = !noRecurse
			return a.watch(cmd.Context(), args[0], &options)
		},
	}
	addUserFlag(cmd.Flags(), &options.User)
	cmd.Flags().BoolVar(&noRecurse, "no-recurse", false, "watch the directory's own entries only")
	cmd.Flags().StringArrayVar(&options.Include, "include", nil, "only what matches `GLOB`; repeatable")
	cmd.Flags().StringArrayVar(&options.Exclude, "exclude", nil, "nothing that matches `GLOB`, nor below it; repeatable")
	return cmd
}

func (a *app) watch(ctx context.Context, path string, options *client.WatchOptions) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	watcher, err := c.Watch(ctx, path, options)
	if err != nil {
		return err
	}
	defer watcher.Close()
	a.notice("watching %s", a.showName(watcher.Root().Path))
	for event, err := range watcher.Events() {
		if err != nil {
			return err
		}
		if err := a.printWatchEvent(event); err != nil {
			return err
		}
	}
	return nil
}

// jsonWatchEvent is a change in JSON. An overflow and the end have neither path nor type.
type jsonWatchEvent struct {
	Kind string     `json:"kind"`
	Time *time.Time `json:"time,omitempty"`
	*jsonPath
	Old    *jsonPath `json:"old,omitempty"`
	Type   string    `json:"type,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

func (a *app) printWatchEvent(event client.WatchEvent) error {
	if a.json {
		return a.printJSON(newJSONWatchEvent(event))
	}
	line := event.Kind.String()
	if !event.Time.IsZero() {
		line = event.Time.Local().Format("15:04:05.000 ") + line
	}
	switch event.Kind {
	case client.WatchOverflow:
	case client.WatchEnded:
		line += " " + event.End
	case client.WatchRenamed:
		line += " " + a.showName(event.OldPath) + " -> " + a.showName(event.Path)
	default:
		line += " " + a.showName(event.Path)
	}
	return a.println(line)
}

func newJSONWatchEvent(event client.WatchEvent) jsonWatchEvent {
	out := jsonWatchEvent{Kind: event.Kind.String(), Time: known(event.Time), Reason: event.End}
	if event.Path != "" {
		path := newJSONPath(event.Path)
		out.jsonPath, out.Type = &path, typeName(event.Type)
	}
	if event.OldPath != "" {
		old := newJSONPath(event.OldPath)
		out.Old = &old
	}
	return out
}
