package main

import (
	"github.com/spf13/cobra"

	"guestd.internal/internal/version"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Tell guestctl's own version (info tells guestd's)",
		Example: `  guestctl version
  guestctl version --json | jq -r .commit`,
		Args: exactly(0, "nothing"),
		RunE: func(*cobra.Command, []string) error {
			if !a.json {
				return a.println("guestctl " + version.String())
			}
			v := version.Get()
			return a.printJSON(struct {
				Version string `json:"version"`
				Commit  string `json:"commit"`
				Date    string `json:"date"`
				Go      string `json:"go"`
			}{v.Version, v.Commit, v.Date, v.Go})
		},
	}
}
