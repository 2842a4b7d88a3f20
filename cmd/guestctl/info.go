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

func newInfo(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "info",
		Short: "Tell about the guest and its guestd",
		Long:  "Tell which guestd serves the guest, what it can do there, and what is not to be had.",
		Example: `  guestctl info
  guestctl info --json | jq -r '.degraded[]'`,
		Args: exactly(0, "nothing"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.info(cmd.Context()) },
	}
}

// jsonInfo is info's JSON.
type jsonInfo struct {
	Version      string    `json:"version"`
	Commit       string    `json:"commit"`
	APIVersion   string    `json:"api_version"`
	InstanceID   string    `json:"instance_id"`
	BootID       string    `json:"boot_id"`
	StartTime    time.Time `json:"start_time"`
	DefaultUser  string    `json:"default_user"`
	Root         bool      `json:"root"`
	HostName     string    `json:"host_name"`
	Kernel       string    `json:"kernel_release"`
	Architecture string    `json:"architecture"`
	Features     []string  `json:"features"`
	Degraded     []string  `json:"degraded"`
}

func (a *app) info(ctx context.Context) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	i, err := c.Info(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(jsonInfo{
			i.Version, i.Commit, i.APIVersion, i.InstanceID, i.BootID, i.StartTime, i.DefaultUser, i.Root,
			i.HostName, i.KernelRelease, i.Architecture, nonNil(i.Features), nonNil(i.Degraded),
		})
	}
	return a.printInfo(i)
}

func (a *app) printInfo(i *client.Info) error {
	serves := "its own user"
	if i.Root {
		serves = "every user"
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"guestd", strings.TrimSpace(i.Version + " " + i.Commit)},
		{"API", i.APIVersion},
		{"instance", i.InstanceID},
		{"serving since", i.StartTime.Local().Format(time.RFC3339)},
		{"serves", serves + ", " + i.DefaultUser + " by default"},
		{"host", i.HostName},
		{"kernel", i.KernelRelease + " " + i.Architecture},
		{"boot", i.BootID},
		{"features", strings.Join(i.Features, " ")},
		{"degraded", strings.Join(i.Degraded, "\n\t")},
	} {
		if row[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s\t%s\n", row[0], row[1]); err != nil {
			return err
		}
	}
	return w.Flush()
}

// nonNil makes an empty list of JSON one, instead of null.
func nonNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
