package main

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

// mvFlags are the flags of mv.
type mvFlags struct {
	client.RenameOptions
	exact bool
}

func newMv(a *app) *cobra.Command {
	var f mvFlags
	cmd := &cobra.Command{
		Use:   "mv [-n] [-T] [-u USER] SOURCE... DESTINATION",
		Short: "Move files and directories",
		Long: `Move files and directories within the guest: to a new name, or into a directory that exists. A file
replaces a file at once, and a directory an empty one. --json prints each new path with the old one.`,
		Example: `  guestctl mv draft.txt final.txt
  guestctl mv a.txt b.txt /srv/texts/`,
		Args: atLeast(2, "a source and a destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			last := len(args) - 1
			return a.move(cmd.Context(), args[:last], args[last], f)
		},
	}
	addUserFlag(cmd.Flags(), &f.User)
	cmd.Flags().BoolVarP(&f.NoReplace, "no-clobber", "n", false, "fail if the destination exists")
	cmd.Flags().BoolVarP(&f.exact, "no-target-directory", "T", false, "give exactly that name, also where a directory has it")
	return cmd
}

func (a *app) move(ctx context.Context, sources []string, destination string, f mvFlags) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	into := false
	if !f.exact {
		if into, err = isGuestDir(ctx, c, destination, f.User); err != nil {
			return err
		}
	}
	if !into && len(sources) > 1 {
		return fmt.Errorf("%s is no directory", quoted(destination))
	}
	moved := make(map[string]string) // sources by their new paths
	return a.each(ctx, sources, func(ctx context.Context, c *client.Client, source string) error {
		to := destination
		if into {
			to = inDirectory(destination, path.Base(source))
		}
		if before, is := moved[to]; is {
			return fmt.Errorf("%s would replace what %s has just become", quoted(source), quoted(before))
		}
		if err := c.Rename(ctx, source, to, &f.RenameOptions); err != nil {
			return err
		}
		moved[to] = source
		if !a.json {
			return nil
		}
		return a.printJSON(struct {
			jsonPath
			Old jsonPath `json:"old_path"`
		}{newJSONPath(to), newJSONPath(source)})
	})
}

// inDirectory is the path of a name in a directory, which is not simplified: what is in front of a
// ".." may be a link.
func inDirectory(dir, name string) string {
	if !strings.HasSuffix(dir, "/") {
		dir += "/"
	}
	return dir + name
}

// isGuestDir tells whether a path of the guest leads to a directory; a path that does not exist does not.
func isGuestDir(ctx context.Context, c *client.Client, name, user string) (bool, error) {
	info, err := c.Stat(ctx, name, &client.FileOptions{User: user})
	if client.IsMissing(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return info.IsDir(), nil
}
