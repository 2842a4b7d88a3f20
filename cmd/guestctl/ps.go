package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

func newPS(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "ps [-a]",
		Short: "List processes that were started through guestd",
		Long:  "List the processes that were started through guestd and run; with -a also those that ended in the last ten minutes.",
		Example: `  guestctl ps
  guestctl ps -a --json | jq -r 'select(.exit_code != 0).process_id'`,
		Args: exactly(0, "nothing"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ps(cmd.Context(), all) },
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "list what has ended too")
	return cmd
}

// jsonProcess is a process in JSON; what is not known is left out. Arguments that are not UTF-8 are shown with U+FFFD.
type jsonProcess struct {
	ID       string            `json:"process_id"`
	PID      int               `json:"pid,omitempty"`
	Running  bool              `json:"running"`
	Args     []string          `json:"arguments,omitempty"`
	User     string            `json:"user,omitempty"`
	Dir      string            `json:"cwd,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Started  time.Time         `json:"start_time"`
	Ended    *time.Time        `json:"end_time,omitempty"`
	ExitCode *int              `json:"exit_code,omitempty"`
	Signal   int               `json:"signal,omitempty"`
	TimedOut bool              `json:"timed_out,omitempty"`

	OOMKilled  bool `json:"oom_killed,omitempty"`
	CoreDumped bool `json:"core_dumped,omitempty"`
	*jsonUsage
}

// jsonUsage is what a process that has ended has used.
type jsonUsage struct {
	Duration   float64 `json:"duration_seconds"`
	UserTime   float64 `json:"user_seconds"`
	SystemTime float64 `json:"system_seconds"`
	PeakMemory uint64  `json:"peak_memory_bytes"`
}

func (a *app) ps(ctx context.Context, all bool) error {
	c, err := a.connectLasting(ctx, "ps")
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	if !a.json {
		fmt.Fprintln(w, "ID\tPID\tUSER\tAGE\tSTATUS\tCOMMAND")
	}
	for p, err := range c.Processes(ctx, client.ProcessFilter{RunningOnly: !all}) {
		if err != nil {
			return err
		}
		if a.json {
			if err := a.printJSON(newJSONProcess(p)); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n",
			p.ID, p.PID, p.User, age(p.Started), processStatus(p), commandLine(p))
	}
	return w.Flush()
}

func newJSONProcess(p *client.Process) jsonProcess {
	out := jsonProcess{
		ID: p.ID, PID: p.PID, Running: p.Running, Args: p.Args, User: p.User, Dir: p.Dir,
		Labels: p.Labels, Started: p.Started,
	}
	if p.Exit != nil {
		out.Ended, out.Signal, out.TimedOut = known(p.Exit.Ended), int(p.Exit.Signal), p.Exit.TimedOut
		out.OOMKilled, out.CoreDumped = p.Exit.OOMKilled, p.Exit.CoreDumped
		out.jsonUsage = &jsonUsage{
			Duration: p.Exit.Duration.Seconds(), UserTime: p.Exit.UserTime.Seconds(),
			SystemTime: p.Exit.SystemTime.Seconds(), PeakMemory: p.Exit.PeakMemory,
		}
		if p.Exit.Signal == 0 {
			out.ExitCode = &p.Exit.ExitCode
		}
	}
	return out
}

func processStatus(p *client.Process) string {
	if p.Exit == nil {
		return "running"
	}
	return p.Exit.String()
}

// age is the time since t in its largest unit, as docker ps shows it.
func age(t time.Time) string {
	d := max(0, time.Since(t))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// commandLine shows arguments as one would type them, in one line.
func commandLine(p *client.Process) string {
	const most = 100
	words := make([]string, len(p.Args))
	for i, arg := range p.Args {
		if words[i] = quoteUnprintable(arg); arg == "" || strings.ContainsAny(arg, " \t'\"$&|;<>()*?`\\") {
			words[i] = "'" + strings.ReplaceAll(words[i], "'", `'\''`) + "'"
		}
	}
	line := []rune(strings.Join(words, " "))
	if len(line) > most {
		return string(line[:most]) + "…"
	}
	return string(line)
}
