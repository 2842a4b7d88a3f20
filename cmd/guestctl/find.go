package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

// findDepth is how many levels guestd goes down at most.
const findDepth = 256

// findFields are the names of find's flags for fields of a listing.
var findFields = map[string]string{"include": "-name", "exclude": "-exclude", "depth": "-maxdepth"}

// findFlags are the flags of find.
type findFlags struct {
	user           string
	names, exclude []string
	types          fileTypes
	maxDepth       int
	print0         bool
}

func newFind(a *app) *cobra.Command {
	var f findFlags
	cmd := &cobra.Command{
		Use:   "find [-u USER] [PATH]... [-name GLOB]... [-exclude GLOB]... [-type TYPES] [-maxdepth N] [-print0]",
		Short: "Find files by name",
		Long: `List files of the guest with all that is below them, one a line and in no particular order, by
default from the user's home. A path is printed with the one it was found under in front of it. Links
are not followed, unless one is given with a slash behind it. Directories are entered at most 256 levels
deep. --json prints what stat prints.

A GLOB is matched with names; one with a slash in it, with paths below the one that was given, where
** is any number of levels. Of several one must match. What -exclude matches is not entered either.`,
		Example: `  guestctl find /srv -name '*.log'
  guestctl find . -type d -maxdepth 1
  guestctl find src -name '*.go' -exclude testdata
  guestctl find /tmp -type f -print0 | xargs -0 guestctl rm`,
		Annotations: map[string]string{singleDashed: "name exclude type maxdepth print0"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"."}
			}
			return a.find(cmd.Context(), args, &f)
		},
	}
	flags := cmd.Flags()
	addUserFlag(flags, &f.user)
	flags.StringArrayVar(&f.names, "name", nil, "only what matches `GLOB`; repeatable")
	flags.StringArrayVar(&f.exclude, "exclude", nil, "nothing that matches `GLOB`, nor what is below it; repeatable")
	flags.Var(&f.types, "type", "only these types: f, d, l, p, s, c and b, with commas between them")
	flags.IntVar(&f.maxDepth, "maxdepth", findDepth, "go down at most `N` levels; 0 is the paths themselves")
	flags.BoolVarP(&f.print0, "print0", "0", false, "end each path with a NUL byte instead of a line end, and never quote it")
	return cmd
}

func (a *app) find(ctx context.Context, paths []string, f *findFlags) error {
	if f.maxDepth < 0 || f.maxDepth > findDepth {
		return fmt.Errorf("-maxdepth %d: want 0 to %d", f.maxDepth, findDepth)
	}
	s := &finder{app: a, out: a.newResults(), flags: f}
	err := a.each(ctx, paths, s.walk)
	return cmp.Or(s.out.Flush(), err)
}

// finder prints what one find finds.
type finder struct {
	app   *app
	out   *results
	flags *findFlags
}

// walk finds what is below a path, and the path itself.
func (s *finder) walk(ctx context.Context, c *client.Client, given string) error {
	root, err := c.Lstat(ctx, given, &client.FileOptions{User: s.flags.user})
	if err != nil {
		return err
	}
	if s.flags.namesRoot(given) {
		if err := s.print(root, given); err != nil {
			return err
		}
	}
	if !root.IsDir() || s.flags.maxDepth == 0 {
		return nil
	}
	var result error
	for entry, err := range c.List(ctx, given, &client.ListOptions{
		User: s.flags.user, Depth: s.flags.maxDepth, Include: s.flags.names, Exclude: s.flags.exclude,
	}) {
		if err == nil {
			shown := underGiven(given, root.Path, entry.Path)
			if err := s.print(entry, shown); err != nil {
				return err
			}
			continue
		}
		if err = (worded{err, findFields}); endsAll(ctx, err) {
			return err
		}
		result = s.app.noteFailure(ctx, err, result)
	}
	return result
}

// namesRoot tells whether a path that was given has a name that is wanted; guestd decides on those below it.
func (f *findFlags) namesRoot(given string) bool {
	for _, glob := range f.names {
		if matches, err := path.Match(glob, path.Base(given)); matches && err == nil {
			return true
		}
	}
	return len(f.names) == 0
}

func (s *finder) print(info *client.FileInfo, shown string) error {
	switch {
	case !s.flags.types.has(info.FileMode):
		return nil
	case s.app.json:
		return s.out.printJSON(newJSONFile(info))
	case s.flags.print0:
		shown += "\x00"
	default:
		shown = s.app.showName(shown) + "\n"
	}
	if _, err := s.out.WriteString(shown); err != nil {
		return err
	}
	return s.out.endLine()
}

// underGiven is a path below root as somebody sees it who gave root another name, or none.
func underGiven(given, root, full string) string {
	below := strings.TrimPrefix(strings.TrimPrefix(full, root), "/")
	switch {
	case below == "":
		return given
	case given == "":
		return below
	default:
		return inDirectory(given, below)
	}
}

// fileTypes is a flag that takes letters of types as find(1) has them, with commas between them.
type fileTypes struct {
	letters string
	types   []fs.FileMode
}

// typeOfLetter knows find's letters.
var typeOfLetter = map[string]fs.FileMode{
	"f": 0, "d": fs.ModeDir, "l": fs.ModeSymlink, "p": fs.ModeNamedPipe, "s": fs.ModeSocket,
	"c": fs.ModeDevice | fs.ModeCharDevice, "b": fs.ModeDevice,
}

func (t *fileTypes) String() string { return t.letters }

// Set implements pflag.Value.
func (t *fileTypes) Set(text string) error {
	for letter := range strings.SplitSeq(text, ",") {
		mode, known := typeOfLetter[letter]
		if !known {
			return errors.New("want f, d, l, p, s, c or b, or several with commas between them")
		}
		t.types = append(t.types, mode)
	}
	t.letters = text
	return nil
}

// Type implements pflag.Value.
func (t *fileTypes) Type() string { return "TYPES" }

// has tells whether a file's type is wanted; without the flag all are.
func (t *fileTypes) has(mode fs.FileMode) bool {
	for _, wanted := range t.types {
		if mode.Type() == wanted {
			return true
		}
	}
	return len(t.types) == 0
}
