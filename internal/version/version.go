// Package version says which build of guestd or guestctl is running.
//
// The Makefile sets the three variables at link time. A binary that was built
// without them (`go build`, `go install`, `go test`) falls back to what the Go
// tool chain recorded, so that the answer is never empty. The package starts
// nothing and owns nothing.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
)

// Set with -ldflags "-X guestd.internal/internal/version.Version=…". Read them
// through Get, which fills in what was not set.
var (
	// Version is the release, as `git describe` tells it: "v1.2.3", or
	// "v1.2.3-4-g0123abc" between releases.
	Version string
	// Commit is the full hash of the commit that was built, with "-dirty" behind
	// it where the tree had changes that were not committed.
	Commit string
	// Date is the commit's time, RFC 3339 in UTC. It is the commit's and not the
	// build's, so that building the same commit twice gives the same bytes.
	Date string
)

// Info describes one build. No field is empty: what is not known says so.
type Info struct {
	Version string // the release, or "dev" where nobody gave one
	Commit  string // the commit's hash, or "unknown"
	Date    string // the commit's time (RFC 3339), or "unknown"
	Go      string // the Go release that compiled it, such as "go1.26.0"
}

// Get returns the running binary's build information.
func Get() Info { return get() }

// The build information is parsed once: GetInfo answers may be frequent.
var get = sync.OnceValue(func() Info {
	build, _ := debug.ReadBuildInfo()
	return resolve(Info{Version: Version, Commit: Commit, Date: Date, Go: runtime.Version()}, build)
})

// String returns Get in one line, for `--version` and logs:
// "v1.2.3 (0123abc…, 2026-01-02T15:04:05Z, go1.26.0)".
func String() string { return Get().String() }

// String returns i in one line.
func (i Info) String() string {
	return fmt.Sprintf("%s (%s, %s, %s)", i.Version, i.Commit, i.Date, i.Go)
}

// resolve fills what the linker did not set from build, which may be nil, and
// then with words that say that it is not known.
func resolve(i Info, build *debug.BuildInfo) Info {
	if build != nil {
		// "(devel)" says no more than our own "dev".
		if i.Version == "" && build.Main.Version != "(devel)" {
			i.Version = build.Main.Version
		}
		settings := make(map[string]string, len(build.Settings))
		for _, s := range build.Settings {
			settings[s.Key] = s.Value
		}
		if i.Commit == "" {
			i.Commit = settings["vcs.revision"]
			if i.Commit != "" && settings["vcs.modified"] == "true" {
				i.Commit += "-dirty"
			}
		}
		if i.Date == "" {
			i.Date = settings["vcs.time"]
		}
	}
	orElse := func(field *string, otherwise string) {
		if *field == "" {
			*field = otherwise
		}
	}
	orElse(&i.Version, "dev")
	orElse(&i.Commit, "unknown")
	orElse(&i.Date, "unknown")
	return i
}
