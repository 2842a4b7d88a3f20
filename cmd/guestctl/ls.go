package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

// lsFlags are the flags of ls.
type lsFlags struct {
	user      string
	long, all bool
}

func newLs(a *app) *cobra.Command {
	var f lsFlags
	cmd := &cobra.Command{
		Use:   "ls [-l] [-a] [-u USER] [PATH]...",
		Short: "List directories",
		Long:  "List what is in directories of the guest, by default the user's home; of a file, the file. The names are sorted, one a line.",
		Example: `  guestctl ls /
  guestctl ls -l /etc
  guestctl ls --json /tmp | jq -r .path`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"."}
			}
			return a.each(cmd.Context(), args, func(ctx context.Context, c *client.Client, path string) error {
				return a.list(ctx, c, path, f, len(args) > 1)
			})
		},
	}
	addUserFlag(cmd.Flags(), &f.user)
	cmd.Flags().BoolVarP(&f.long, "long", "l", false, "show mode, owner, size and time as well")
	cmd.Flags().BoolVarP(&f.all, "all", "a", false, "show names that begin with a dot too")
	return cmd
}

func (a *app) list(ctx context.Context, c *client.Client, path string, f lsFlags, titled bool) error {
	entries, err := readDir(ctx, c, path, f)
	if errors.Is(err, syscall.ENOTDIR) && len(entries) == 0 {
		info, statErr := c.Lstat(ctx, path, &client.FileOptions{User: f.user})
		if statErr != nil {
			return statErr
		}
		return a.printEntries([]*client.FileInfo{info}, f.long, func(*client.FileInfo) string { return path })
	}
	if err != nil && len(entries) == 0 {
		return err
	}
	if titled && !a.json {
		if err := a.println(a.showName(path) + ":"); err != nil {
			return err
		}
	}
	return errors.Join(a.printEntries(entries, f.long, (*client.FileInfo).Name), err)
}

// readDir lists a directory sorted by name; the error tells of what could not be looked at.
func readDir(ctx context.Context, c *client.Client, dir string, f lsFlags) ([]*client.FileInfo, error) {
	var entries []*client.FileInfo
	var errs []error
	for entry, err := range c.List(ctx, dir, &client.ListOptions{User: f.user, SkipHidden: !f.all}) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		entries = append(entries, entry)
	}
	slices.SortFunc(entries, func(x, y *client.FileInfo) int { return cmp.Compare(path.Base(x.Path), path.Base(y.Path)) })
	return entries, errors.Join(errs...)
}

func (a *app) printEntries(entries []*client.FileInfo, long bool, name func(*client.FileInfo) string) error {
	if a.json {
		for _, entry := range entries {
			if err := a.printJSON(newJSONFile(entry)); err != nil {
				return err
			}
		}
		return nil
	}
	var b strings.Builder
	widths := longWidths(entries)
	for _, entry := range entries {
		if long {
			fmt.Fprintf(&b, "%s %*d %-*s %-*s %*d %s %s\n", symbolic(entry.FileMode),
				widths.links, entry.Links, widths.owner, ownerName(entry), widths.group, groupName(entry),
				widths.size, entry.Bytes, lsTime(entry.Modified), a.longName(entry, name(entry)))
			continue
		}
		b.WriteString(a.showName(name(entry)) + "\n")
	}
	_, err := a.stdout.WriteString(b.String())
	return err
}

// columnWidths are those of ls -l.
type columnWidths struct{ links, owner, group, size int }

func longWidths(entries []*client.FileInfo) columnWidths {
	var w columnWidths
	for _, entry := range entries {
		w.links = max(w.links, len(strconv.FormatUint(entry.Links, 10)))
		w.owner = max(w.owner, len(ownerName(entry)))
		w.group = max(w.group, len(groupName(entry)))
		w.size = max(w.size, len(strconv.FormatUint(entry.Bytes, 10)))
	}
	return w
}

func (a *app) longName(entry *client.FileInfo, name string) string {
	if entry.LinkTarget == "" {
		return a.showName(name)
	}
	return a.showName(name) + " -> " + a.showName(entry.LinkTarget)
}

// lsTime is a time as ls -l shows it: with the hour for the last half year, with the year otherwise.
func lsTime(t time.Time) string {
	const halfYear = 182 * 24 * time.Hour
	t = t.Local()
	if age := time.Since(t); age < 0 || age > halfYear {
		return t.Format("Jan _2  2006")
	}
	return t.Format("Jan _2 15:04")
}
