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
	"time"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

// lsFlags are the flags of ls.
type lsFlags struct {
	user                         string
	long, all, recursive, itself bool
}

func newLs(a *app) *cobra.Command {
	var f lsFlags
	cmd := &cobra.Command{
		Use:   "ls [-l] [-a] [-R] [-d] [-u USER] [PATH]...",
		Short: "List directories",
		Long: `List what is in directories of the guest, by default the user's home; of a file, the file. The names
are sorted, one a line. A link to a directory is followed, but not with -l unless a slash is behind it,
and never below a directory.`,
		Example: `  guestctl ls /
  guestctl ls -l /etc
  guestctl ls -R src
  guestctl ls --json /tmp | jq -r .path`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"."}
			}
			return a.ls(cmd.Context(), args, f)
		},
	}
	addUserFlag(cmd.Flags(), &f.user)
	cmd.Flags().BoolVarP(&f.long, "long", "l", false, "show mode, owner, size and time as well")
	cmd.Flags().BoolVarP(&f.all, "all", "a", false, "show names that begin with a dot too")
	cmd.Flags().BoolVarP(&f.recursive, "recursive", "R", false, "list subdirectories too, and theirs")
	cmd.Flags().BoolVarP(&f.itself, "directory", "d", false, "list directories themselves, not what is in them")
	return cmd
}

// lister lists what one ls was given.
type lister struct {
	app     *app
	flags   lsFlags
	titled  bool // directories are named
	printed bool // there is something in front of the next directory
}

// ls lists files first and then, each under its name if there are several, directories.
func (a *app) ls(ctx context.Context, paths []string, f lsFlags) error {
	l := &lister{app: a, flags: f, titled: len(paths) > 1 || f.recursive}
	given := make(map[*client.FileInfo]string)
	var files []*client.FileInfo
	var dirs []string
	result := a.each(ctx, paths, func(ctx context.Context, c *client.Client, path string) error {
		info, err := c.Lstat(ctx, path, &client.FileOptions{User: f.user})
		if err != nil {
			return err
		}
		if f.lists(info) {
			dirs = append(dirs, path)
			return nil
		}
		given[info] = path
		files = append(files, info)
		return nil
	})
	if result != nil && !errors.Is(result, exitError(exitFailure)) {
		return result
	}
	if len(files) > 0 {
		l.printed = true
		if err := a.printEntries(files, f.long, func(i *client.FileInfo) string { return given[i] }); err != nil {
			return err
		}
	}
	return cmp.Or(a.each(ctx, dirs, l.directory), result)
}

// lists tells whether what is in a file is listed, rather than itself.
func (f *lsFlags) lists(info *client.FileInfo) bool {
	return !f.itself && (info.IsDir() || info.TargetMode.IsDir() && !f.long)
}

// directory lists a directory, and with -R those below it.
func (l *lister) directory(ctx context.Context, c *client.Client, dir string) error {
	entries, result := l.read(ctx, c, dir)
	if result != nil && (endsAll(ctx, result) || len(entries) == 0) {
		return result
	}
	if err := l.title(dir); err != nil {
		return err
	}
	if err := l.app.printEntries(entries, l.flags.long, (*client.FileInfo).Name); err != nil {
		return err
	}
	if !l.flags.recursive {
		return result
	}
	var below []string
	for _, entry := range entries {
		if entry.IsDir() {
			below = append(below, inDirectory(dir, entry.Name()))
		}
	}
	return cmp.Or(l.app.each(ctx, below, l.directory), result)
}

// title names the directory that comes.
func (l *lister) title(dir string) error {
	if !l.titled || l.app.json {
		return nil
	}
	title := l.app.showName(dir) + ":"
	if l.printed {
		title = "\n" + title
	}
	l.printed = true
	return l.app.println(title)
}

// read reads a directory, sorted by name. What could not be looked at in it is told, and the error
// is for the exit code then.
func (l *lister) read(ctx context.Context, c *client.Client, dir string) ([]*client.FileInfo, error) {
	var entries []*client.FileInfo
	var result error
	for entry, err := range c.List(ctx, dir, &client.ListOptions{User: l.flags.user, SkipHidden: !l.flags.all}) {
		if err == nil {
			entries = append(entries, entry)
			continue
		}
		if endsAll(ctx, err) {
			return nil, err
		}
		result = l.app.noteFailure(ctx, err, result)
	}
	slices.SortFunc(entries, func(x, y *client.FileInfo) int { return cmp.Compare(path.Base(x.Path), path.Base(y.Path)) })
	return entries, result
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
