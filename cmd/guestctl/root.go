package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"guestd.internal/internal/version"
)

const rootHelp = `guestctl runs commands, shells, code and files in a guest, through the guestd inside it.

A guest is named by --target or GUESTD_TARGET:

  vsock://CID:PORT                a microVM, from its host (guestd listens on port 5005)
  firecracker:///PATH?port=PORT   a microVM behind the vsock socket of Firecracker or cloud-hypervisor
  unix:///PATH                    a Unix socket
  tcp://HOST:PORT                 TCP (guestd demands a token there)

With neither, guestctl starts a private guestd on this machine for the one command, so that everything can be tried at once.

Exit codes are those of the command that was run; 124 when it ran out of time, 125 when guestctl or the request failed, 126 when
the command cannot be executed, 127 when it was not found, and 128+n when signal n ended it.`

const rootExamples = `  guestctl exec -- uname -a
  guestctl shell
  guestctl run -c 'import sys; print(sys.version)'
  guestctl cp report.csv :/tmp/report.csv
  guestctl --target vsock://3:5005 exec -u root -- dmesg`

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "guestctl",
		Short:         "Run commands, shells, code and files in a guest",
		Long:          rootHelp,
		Example:       rootExamples,
		Version:       version.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(cmd, args[0])
			}
			return cmd.Help()
		},
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	flags := root.PersistentFlags()
	flags.StringVar(&a.target, "target", "", "the guest's `URI` (default: $GUESTD_TARGET, else a private guestd)")
	flags.StringVar(&a.tokenFile, "token-file", "", "`FILE` with the guest's token (default: $GUESTD_TOKEN)")
	flags.BoolVar(&a.json, "json", false, "print JSON: one object, or one a line")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w\nTry '%s --help'", badFlag(cmd, err), cmd.CommandPath())
	})
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Running:"},
		&cobra.Group{ID: groupProcesses, Title: "Processes:"},
		&cobra.Group{ID: groupFiles, Title: "Files:"},
		&cobra.Group{ID: groupGuest, Title: "The guest:"},
	)
	addVerbs(root, a)
	wrapHelp(root)
	return root
}

// The groups in which help lists the verbs.
const (
	groupRun       = "run"
	groupProcesses = "processes"
	groupFiles     = "files"
	groupGuest     = "guest"
)

// addVerbs adds each verb to its group.
func addVerbs(root *cobra.Command, a *app) {
	for group, verbs := range map[string][]*cobra.Command{
		groupRun:       {newExec(a), newShell(a), newRun(a), newContext(a)},
		groupProcesses: {newPS(a), newAttach(a), newWait(a), newKill(a), newResize(a)},
		groupFiles:     {newCp(a), newCat(a), newWrite(a), newLs(a), newStat(a), newMkdir(a), newMv(a), newRm(a), newWatch(a), newFind(a), newGrep(a)},
		groupGuest:     {newInfo(a), newHealth(a), newShutdown(a), newVersion(a)},
	} {
		for _, verb := range verbs {
			verb.GroupID = group
			root.AddCommand(verb)
		}
	}
}

func unknownVerb(parent *cobra.Command, verb string) error {
	message := fmt.Sprintf("there is no verb %s", quoted(verb))
	if near := parent.SuggestionsFor(verb); len(near) > 0 {
		message += "; is it " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("%s\nTry '%s --help'", message, parent.CommandPath())
}

// exactly refuses any other number of arguments, naming what is wanted.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%s takes %s, not %d arguments\nTry '%s --help'", cmd.Name(), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}

// atLeast refuses fewer arguments, naming what is wanted.
func atLeast(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return fmt.Errorf("%s takes %s\nTry '%s --help'", cmd.Name(), what, cmd.CommandPath())
		}
		return nil
	}
}
