package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

func newStat(a *app) *cobra.Command {
	var options client.FileOptions
	var follow bool
	cmd := &cobra.Command{
		Use:   "stat [-L] [-u USER] PATH...",
		Short: "Describe files",
		Long:  "Describe files of the guest: type, size, mode, owner and times. Of a symbolic link it describes the link, with -L what it leads to.",
		Example: `  guestctl stat /etc/hosts
  guestctl stat --json -L /etc/localtime | jq .size`,
		Args: atLeast(1, "a path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, func(ctx context.Context, c *client.Client, path string) error {
				describe := c.Lstat
				if follow {
					describe = c.Stat
				}
				info, err := describe(ctx, path, &options)
				if err != nil {
					return err
				}
				return a.printStat(info)
			})
		},
	}
	addUserFlag(cmd.Flags(), &options.User)
	cmd.Flags().BoolVarP(&follow, "dereference", "L", false, "describe what a link leads to")
	return cmd
}

func (a *app) printStat(i *client.FileInfo) error {
	if a.json {
		return a.printJSON(newJSONFile(i))
	}
	name := a.showName(i.Path)
	if i.LinkTarget != "" {
		name += " -> " + a.showName(i.LinkTarget)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  File: %s\n", name)
	fmt.Fprintf(&b, "  Size: %-15d %s\n", i.Bytes, typeName(i.FileMode))
	fmt.Fprintf(&b, "Device: %-15x Inode: %-12d Links: %d\n", i.Device, i.Inode, i.Links)
	fmt.Fprintf(&b, "  Mode: %s (%s)  Owner: %s (%d)  Group: %s (%d)\n",
		octal(i.FileMode), symbolic(i.FileMode), ownerName(i), i.UID, groupName(i), i.GID)
	for _, t := range []struct {
		label string
		time  time.Time
	}{{"Access", i.Accessed}, {"Modify", i.Modified}, {"Change", i.Changed}, {" Birth", i.Born}} {
		if !t.time.IsZero() {
			fmt.Fprintf(&b, "%s: %s\n", t.label, t.time.Local().Format("2006-01-02 15:04:05.000000000 -0700"))
		}
	}
	_, err := a.stdout.WriteString(b.String())
	return err
}
