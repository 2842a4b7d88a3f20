package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

// exitNoMatch is grep's exit code where nothing matches.
const exitNoMatch = 1

// maxContext is how many lines of context guestd tells at most.
const maxContext = 100

// grepFlags are the flags of grep.
type grepFlags struct {
	client.SearchOptions
	patterns                     []string
	maxCount                     int64
	fixed, words, lines          bool
	numbers, list, count         bool
	quiet, withName, withoutName bool
	around                       int
	groups                       bool // lines that are not adjacent are kept apart, also where -A is 0
	recursive, extended          bool
}

func newGrep(a *app) *cobra.Command {
	var f grepFlags
	cmd := &cobra.Command{
		Use:   "grep [flags] [-e] PATTERN [PATH]...",
		Short: "Find lines in files",
		Long: `Print the lines of the guest's files that match PATTERN, a regular expression in RE2 syntax: of files,
and of all that are below directories, by default the user's home. Links below a directory are not
followed. Of a binary file (with a NUL byte in its first 8 KiB) only that it matches is told. A line
is searched to its end, LF or CRLF, which is no part of it; of a very long one the first 64 KiB are shown.

Each line of PATTERN is a pattern, and so is each that -e gives: one of them must match.

A GLOB is matched with names; one with a slash in it, with paths below the one that was given, where
** is any number of levels.

Exit codes: 0 when something matches, 1 when nothing does, 125 when anything could not be searched.`,
		Example: `  guestctl grep -n 'func main' src
  guestctl grep -i -C 2 error /var/log/syslog
  guestctl grep -l --gitignore --include '*.go' TODO .
  guestctl grep --json 'id=[0-9]+' /srv | jq -r .text`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("regexp") {
				return nil
			}
			return atLeast(1, "a pattern")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			patterns, paths := f.patterns, args
			if !cmd.Flags().Changed("regexp") {
				patterns, paths = args[:1], args[1:]
			}
			if len(paths) == 0 {
				paths = []string{""}
			}
			if err := cmp.Or(excluding(cmd, "with-filename", "no-filename"), f.prepare(patterns, cmd.Flags().Changed)); err != nil {
				return err
			}
			if cmd.Flags().Changed("max-count") && f.maxCount == 0 {
				return exitError(exitNoMatch) // as for grep(1), which looks at no file then
			}
			return a.grep(cmd.Context(), paths, &f)
		},
	}
	f.addTo(cmd)
	return cmd
}

func (f *grepFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	addUserFlag(flags, &f.User)
	flags.StringArrayVarP(&f.patterns, "regexp", "e", nil, "find `PATTERN`, which may begin with a hyphen then; repeatable")
	flags.BoolVarP(&f.IgnoreCase, "ignore-case", "i", false, "match without regard to case")
	flags.BoolVarP(&f.Invert, "invert-match", "v", false, "find the lines that do not match")
	flags.BoolVarP(&f.fixed, "fixed-strings", "F", false, "PATTERN is plain text")
	flags.BoolVarP(&f.words, "word-regexp", "w", false, "match from word boundary to word boundary only: RE2's \\b, for which words are of ASCII letters, digits and _")
	flags.BoolVarP(&f.lines, "line-regexp", "x", false, "match whole lines only")
	flags.BoolVarP(&f.numbers, "line-number", "n", false, "show line numbers")
	flags.BoolVarP(&f.list, "files-with-matches", "l", false, "show only the names of files that match")
	flags.BoolVarP(&f.count, "count", "c", false, "show only how many lines match (of a binary file, whether any does): of each file, but below directories only where any does")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "show nothing, and end at the first match")
	flags.BoolVarP(&f.withName, "with-filename", "H", false, "show names of files (default: where there may be several)")
	flags.BoolVar(&f.withoutName, "no-filename", false, "show no names of files")
	flags.IntVarP(&f.After, "after-context", "A", 0, "show `N` lines behind each match too, at most 100")
	flags.IntVarP(&f.Before, "before-context", "B", 0, "show `N` lines before each match too, at most 100")
	flags.IntVarP(&f.around, "context", "C", 0, "show `N` lines around each match too, at most 100")
	flags.Int64VarP(&f.maxCount, "max-count", "m", 0, "end with a file after `N` lines (default, and below 0: no limit)")
	flags.StringArrayVar(&f.Include, "include", nil, "below directories, only files that match `GLOB`; repeatable")
	flags.StringArrayVar(&f.Exclude, "exclude", nil, "below directories, nothing that matches `GLOB`; repeatable")
	flags.BoolVar(&f.Gitignore, "gitignore", false, "leave out what .gitignore files say")
	flags.BoolVarP(&f.recursive, "recursive", "r", false, "search directories, which grep does anyway")
	flags.BoolVarP(&f.extended, "extended-regexp", "E", false, "take regular expressions for what they are, which grep does anyway")
}

// prepare turns the flags into what guestd is asked; given tells which there are.
func (f *grepFlags) prepare(patterns []string, given func(string) bool) error {
	pattern, err := f.oneOf(patterns)
	if err != nil {
		return err
	}
	f.Pattern = &pattern
	f.MaxMatchesPerFile = uint64(max(f.maxCount, 0))
	f.Binary = true
	f.groups = given("before-context") || given("after-context") || given("context")
	if !given("before-context") {
		f.Before = f.around
	}
	if !given("after-context") {
		f.After = f.around
	}
	if least, most := min(f.Before, f.After), max(f.Before, f.After); least < 0 || most > maxContext {
		return fmt.Errorf("-A, -B and -C: want 0 to %d lines", maxContext)
	}
	if f.list || f.count || f.quiet {
		f.Before, f.After = 0, 0
	}
	if f.list {
		f.MaxMatchesPerFile = 1
	}
	if f.quiet {
		f.MaxMatches = 1
	}
	return nil
}

// grep searches all paths. It goes on after one that cannot be searched, as each does.
func (a *app) grep(ctx context.Context, paths []string, f *grepFlags) error {
	p := newGrepPrinter(a, f, len(paths) > 1)
	matched := false
	err := a.each(ctx, paths, func(ctx context.Context, c *client.Client, given string) error {
		if f.quiet && matched {
			return nil
		}
		search, before := c.Search(ctx, cmp.Or(given, "."), &f.SearchOptions), p.files
		for match, err := range search.Matches() {
			if err != nil {
				return err
			}
			matched = true
			if f.quiet {
				return nil
			}
			if err := p.match(given, search.Root(), match); err != nil {
				return err
			}
		}
		if root := search.Root(); f.count && p.files == before && !root.IsDir() {
			p.begin(given, root, root.Path)
		}
		return cmp.Or(p.endFile(), a.tellUnread(ctx, search.Summary()))
	})
	err = cmp.Or(p.out.Flush(), err)
	switch {
	case f.quiet && matched && !endsAll(ctx, err):
		return nil // as for grep(1), whatever else went wrong
	case err == nil && !matched:
		return exitError(exitNoMatch)
	default:
		return err
	}
}

// tellUnread tells what a search could not read.
func (a *app) tellUnread(ctx context.Context, s *client.SearchSummary) error {
	var result error
	for _, failure := range s.Failures {
		result = a.noteFailure(ctx, failure, result)
	}
	if more := s.FailureCount - uint64(len(s.Failures)); s.FailureCount > 0 && more > 0 {
		a.notice("and %d more could not be read", more)
	}
	return result
}
