package agent

import (
	"cmp"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"guestd.internal/agent/internal/listen"
)

const (
	// DefaultListen is where guestd serves when nothing else is said.
	DefaultListen = "vsock://:5005"
	// DefaultDrain is how long running calls get at a shutdown.
	DefaultDrain = 2 * time.Second
	// MaxShutdown bounds a whole shutdown.
	MaxShutdown = 10 * time.Second
)

// Config configures an Agent. Its zero value serves the host of a virtual
// machine on vsock port 5005, without a token.
type Config struct {
	// Listen are the addresses that Serve listens on: "vsock://:PORT",
	// "unix:///PATH" or "tcp://HOST:PORT". Empty is DefaultListen alone.
	Listen []string
	// VsockAllowCIDs are the context ids that may connect over vsock; nil is 2, the
	// host, alone.
	VsockAllowCIDs []uint32
	// UnixAllowUIDs may connect to Unix sockets besides root and guestd's own user.
	UnixAllowUIDs []uint32
	// UnixOutsideOnly takes peers on Unix sockets from outside guestd's pid
	// namespace only, and then whatever their uid: for containers, whose own
	// processes must not reach their guardian.
	UnixOutsideOnly bool

	// TokenFile names a file with the token that every call but health must bring:
	// 16 to 4,096 printable ASCII characters without space; white space around it
	// is ignored. It is read once, by New. Nobody but its owner may read it, and
	// that is root or guestd's own user. Empty is no token, until Configure sets
	// one.
	TokenFile string

	// DefaultUser runs what names no user: a name or "uid[:gid]". Empty is the
	// account "user" where there is one and guestd runs as root, else guestd's own.
	DefaultUser string
	// EnvironmentFile has the template's environment for all processes, a NAME=value
	// a line; empty is /etc/guestd/environment. It need not exist, and is read again
	// when it has changed.
	EnvironmentFile string
	// StateDir is a folder for what lives as long as guestd does; it is made if
	// missing, belongs to guestd's user and is writable by nobody else. Empty is
	// /run/guestd as root, else guestd in $XDG_RUNTIME_DIR, else a fresh folder that
	// is removed at the end. Absolute and at most 70 bytes: sockets are made in it.
	StateDir string
	// CgroupRoot is the cgroup v2 folder to make processes' groups in. Empty looks
	// for a writable one; "none" does without.
	CgroupRoot string
	// Reaper makes this process the one that orphans are given to, and collects
	// them. It changes the whole process: only guestd's own program sets it.
	Reaper bool

	// AdaptProcessors fits the number of processors that run this process's goroutines
	// (GOMAXPROCS) to the calls in progress: one call at a time is answered sooner by
	// one. It changes the whole process: only guestd's own program sets it.
	AdaptProcessors bool
	// SysmonSlack is how much later than it asks for the Go runtime's monitor of this
	// process is woken up, which takes time from short commands; 0 leaves it as it is. See
	// package sysmon for the price. Without the right to change it nothing happens. It
	// changes the whole process: only guestd's own program sets it.
	SysmonSlack time.Duration

	// PrewarmPython is how many Python kernels are started before anybody asks for
	// one, and kept ready; 0 is none: no Python runs before the first code does.
	PrewarmPython int
	// ColdStart starts every kernel as a process of its own. Otherwise Python kernels
	// become forks of a process that has common libraries imported, from the second
	// one on.
	ColdStart bool

	// Drain is how long running calls get at a shutdown before processes are sent
	// SIGTERM; 0 is DefaultDrain, negative none at all, and MaxShutdown the most.
	Drain time.Duration

	// Degraded is what the embedding program could not have, a sentence each, for
	// GetInfo to tell.
	Degraded []string
	// Logger takes what operators want to know; nil is nowhere.
	Logger *slog.Logger
}

// ConfigError says which setting is wrong.
type ConfigError struct {
	Field   string // of Config
	Problem string
}

// Error implements error.
func (e *ConfigError) Error() string { return e.Field + ": " + e.Problem }

// maxStateDir leaves room for the sockets' own names in the 107 bytes of a
// Unix socket's path.
const maxStateDir = 70

// Validate reports the first setting that is wrong, as a *ConfigError. It looks at
// the settings alone and opens nothing.
func (c *Config) Validate() error {
	for _, s := range c.Listen {
		address, err := listen.ParseAddress(s)
		if err != nil {
			return &ConfigError{"Listen", err.Error()}
		}
		if address.Kind == listen.TCP && c.TokenFile == "" {
			return &ConfigError{"Listen", fmt.Sprintf("%s needs a token: anybody could connect (set TokenFile)", s)}
		}
	}
	if c.StateDir != "" && !filepath.IsAbs(c.StateDir) {
		return &ConfigError{"StateDir", fmt.Sprintf("%q is not absolute", c.StateDir)}
	}
	if len(c.StateDir) > maxStateDir {
		return &ConfigError{"StateDir", fmt.Sprintf("%d bytes; %d are the most", len(c.StateDir), maxStateDir)}
	}
	if c.CgroupRoot != "" && c.CgroupRoot != "none" && !filepath.IsAbs(c.CgroupRoot) {
		return &ConfigError{"CgroupRoot", fmt.Sprintf("%q is neither absolute nor \"none\"", c.CgroupRoot)}
	}
	if c.Drain > MaxShutdown {
		return &ConfigError{"Drain", fmt.Sprintf("%v; %v is the most", c.Drain, MaxShutdown)}
	}
	return nil
}

// addresses are the parsed Listen of a Config that is valid.
func (c *Config) addresses() ([]listen.Address, error) {
	list := c.Listen
	if len(list) == 0 {
		list = []string{DefaultListen}
	}
	addresses := make([]listen.Address, len(list))
	for i, s := range list {
		var err error
		if addresses[i], err = listen.ParseAddress(s); err != nil {
			return nil, err
		}
	}
	return addresses, nil
}

func (c *Config) trust() listen.Trust {
	return listen.Trust{VsockCIDs: c.VsockAllowCIDs, UnixUIDs: c.UnixAllowUIDs, UnixOutsideOnly: c.UnixOutsideOnly}
}

// drain is Drain without its special values.
func (c *Config) drain() time.Duration {
	return max(0, cmp.Or(c.Drain, DefaultDrain))
}
