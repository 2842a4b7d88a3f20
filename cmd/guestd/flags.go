package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"guestd.internal/agent"
)

// options are what the command line says.
type options struct {
	config    agent.Config
	logLevel  slog.Level
	logFormat string
	version   bool
}

// flagNames are the flags that agent.Config's fields are set by.
var flagNames = map[string]string{
	"Listen":          "listen",
	"VsockAllowCIDs":  "vsock-allow-cid",
	"UnixAllowUIDs":   "unix-allow-uid",
	"UnixOutsideOnly": "unix-outside-only",
	"TokenFile":       "token-file",
	"DefaultUser":     "user",
	"StateDir":        "state-dir",
	"CgroupRoot":      "cgroup-root",
	"Drain":           "drain",
}

// newFlags declares the flags, which fill in opts.
func newFlags(opts *options) *flag.FlagSet {
	c := &opts.config
	fs := flag.NewFlagSet("guestd", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are printed by main, once
	fs.Func("listen", "serve on `ADDRESS`: vsock://:PORT, unix:///PATH or tcp://HOST:PORT\n"+
		"(which needs a token); repeatable (default "+agent.DefaultListen+")", func(s string) error {
		c.Listen = append(c.Listen, s)
		return nil
	})
	fs.Func("vsock-allow-cid", "let the vsock context id `CID` connect; repeatable (default 2, the host)", ids(&c.VsockAllowCIDs))
	fs.Func("unix-allow-uid", "let `UID` connect to Unix sockets besides root and guestd's own user;\nrepeatable", ids(&c.UnixAllowUIDs))
	fs.BoolVar(&c.UnixOutsideOnly, "unix-outside-only", false,
		"let only processes outside of guestd's pid namespace connect to Unix\nsockets, whatever their uid: for containers")
	fs.StringVar(&c.TokenFile, "token-file", "", "demand the token in `FILE` (mode 0600) of every call but health")
	fs.StringVar(&c.DefaultUser, "user", "", "run as `USER` (a name or uid[:gid]) what names no user\n"+
		"(default: the account \"user\" where there is one, else guestd's own)")
	fs.StringVar(&c.StateDir, "state-dir", "", "keep sockets and such in `DIR` (default /run/guestd as root,\n"+
		"else $XDG_RUNTIME_DIR/guestd, else a temporary folder)")
	fs.StringVar(&c.CgroupRoot, "cgroup-root", "", "make cgroups in `DIR`, on a cgroup v2 mount, or \"none\"\n(default: found by itself)")
	fs.BoolVar(&c.Reaper, "reaper", true, "collect the orphans of ended processes")
	fs.Func("prewarm", "start a kernel for `LANGUAGE`, which is python or python:N for N kernels,\nbefore anybody asks for one", prewarm(c))
	fs.BoolVar(&c.ColdStart, "cold-start", false, "start every kernel as a process of its own, and none ahead")
	fs.Func("drain", "give running calls `DURATION` at a shutdown (default 2s)", drain(c))
	fs.Func("log-level", "log from `LEVEL` on: debug, info, warn or error (default info)", func(s string) error {
		if opts.logLevel.UnmarshalText([]byte(s)) != nil {
			return errors.New("want debug, info, warn or error")
		}
		return nil
	})
	fs.Func("log-format", "log as `FORMAT`: text or json (default: text on a terminal, else json)", func(s string) error {
		if s != "text" && s != "json" {
			return fmt.Errorf("want text or json")
		}
		opts.logFormat = s
		return nil
	})
	fs.BoolVar(&opts.version, "version", false, "print the version and exit")
	return fs
}

// maxPrewarm bounds the kernels that are kept ready.
const maxPrewarm = 32

// prewarm is the flag for Config.PrewarmPython.
func prewarm(c *agent.Config) func(string) error {
	return func(s string) error {
		language, count, counted := strings.Cut(s, ":")
		n := 1
		if counted {
			var err error
			if n, err = strconv.Atoi(count); err != nil || n < 1 || n > maxPrewarm {
				return fmt.Errorf("want python or python:N, N from 1 to %d", maxPrewarm)
			}
		}
		if language != "python" {
			return fmt.Errorf("want python or python:N, N from 1 to %d", maxPrewarm)
		}
		c.PrewarmPython = n
		return nil
	}
}

// drain is the flag for Config.Drain, in which 0 means the default.
func drain(c *agent.Config) func(string) error {
	return func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return fmt.Errorf("want a duration such as 500ms or 2s, not negative")
		}
		if c.Drain = d; d == 0 {
			c.Drain = -1
		}
		return nil
	}
}

// ids is a repeatable flag that takes numbers from 0 to 2³²-2, as uids and context
// ids are.
func ids(list *[]uint32) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil || n == 1<<32-1 {
			return fmt.Errorf("want a number from 0 to 4294967294")
		}
		*list = append(*list, uint32(n))
		return nil
	}
}

// parseFlags reads the command line. The error is flag.ErrHelp, or complete.
func parseFlags(args []string) (options, error) {
	var opts options
	fs := newFlags(&opts)
	if err := fs.Parse(args); err != nil {
		return opts, err
	}
	if fs.NArg() > 0 {
		return opts, fmt.Errorf("unexpected argument %q: guestd takes flags only", fs.Arg(0))
	}
	if err := opts.config.Validate(); err != nil {
		return opts, fmt.Errorf("%s", describe(err))
	}
	return opts, nil
}

const helpIntro = `guestd runs commands, terminals, files and code inside a sandbox, for a host that
drives it over gRPC (see guestctl).

Usage:
  guestd [FLAG]...

Examples:
  guestd                                          in a microVM: the host, over vsock
  guestd --listen unix:///run/guestd.sock         root and guestd's own user
  guestd --listen tcp://0.0.0.0:5005 --token-file /etc/guestd/token

SIGTERM, SIGINT and SIGHUP end it in order, within ten seconds; a second one at once.

Flags:
`

// helpText is what --help prints.
func helpText() string {
	var text strings.Builder
	text.WriteString(helpIntro)
	newFlags(new(options)).VisitAll(func(f *flag.Flag) {
		name, usage := flag.UnquoteUsage(f)
		head := "--" + f.Name
		if name != "" && name != "value" {
			head += " " + name
		}
		fmt.Fprintf(&text, "  %s\n", head)
		for line := range strings.Lines(usage) {
			fmt.Fprintf(&text, "        %s", line)
		}
		if f.Name == "reaper" {
			fmt.Fprintf(&text, " (default %s)", f.DefValue)
		}
		text.WriteString("\n")
	})
	return text.String()
}
