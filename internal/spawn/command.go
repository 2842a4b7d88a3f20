package spawn

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"guestd.internal/internal/account"
)

// IDVariable is the environment variable in which every child, and whatever
// inherits its environment, carries its Command's ID.
const IDVariable = "GUESTD_PROCESS_ID"

// DefaultUmask is the umask of a child whose Command names none, as after an
// ordinary login.
const DefaultUmask = 0o022

// Command says what to start and how. Start copies what it needs.
type Command struct {
	// ID is guestd's name for the process, for example "p-4jx2mq7ahk3ub", and the
	// value of GUESTD_PROCESS_ID. It must be unique among the children of a Spawner.
	ID string

	// Args is the argument list; it is not empty. Args[0] is looked up in Env's
	// PATH unless it has a slash; a relative one, and relative folders in PATH,
	// start at Dir. As with execvp(3) a file without a known format is run by
	// /bin/sh.
	Args []string

	// Env is the complete environment as "NAME=value", the last one of a name
	// winning; see BuildEnv. Start replaces GUESTD_PROCESS_ID in it.
	Env []string

	// Dir is the working directory, an absolute path, entered with the account's
	// rights.
	Dir string

	// Account is the user the child runs as. Without root only guestd's own.
	Account account.Account

	// Stdin, Stdout and Stderr are the child's descriptors 0, 1 and 2; nil is
	// /dev/null. The same file may be given twice. Their open file descriptions
	// are put into blocking mode, as programs expect. They stay the caller's, who
	// closes them after Start.
	Stdin, Stdout, Stderr *os.File

	// Extra, if not nil, is the child's descriptor 3, under the same rules.
	Extra *os.File

	// Forks says that forks of the process are to be trees of their own, see
	// Adopt. It then has no audit session, by which they would be taken for its own.
	Forks bool

	// Await says that the caller calls Child.Await and Child.Reap, which it must not
	// forget: nobody else waits for the leader.
	Await bool

	// Terminal says that Stdin is the slave of a terminal, which becomes the
	// child's controlling terminal.
	Terminal bool

	// Umask is the file mode creation mask; nil is DefaultUmask.
	Umask *uint32

	// Nice is the nice value, -20 to 19; nil leaves guestd's own. Below guestd's
	// own it needs CAP_SYS_NICE; where refused the child keeps guestd's and
	// Degraded says so.
	Nice *int

	// OOMScoreAdj is the preference of the kernel's out-of-memory killer, -1000
	// to 1000; nil is 0 where guestd has a negative one and guestd's own
	// otherwise. Lowering it needs CAP_SYS_RESOURCE; where refused the child keeps
	// what it has and Degraded says so.
	OOMScoreAdj *int

	// Rlimits are set on top of the limits guestd was started with. Raising a hard
	// limit needs CAP_SYS_RESOURCE, as do, where package syscall starts the child, all
	// limits of another user; where refused the child keeps what it has and Degraded
	// says so.
	Rlimits []Rlimit
}

// Rlimit is one resource limit of setrlimit(2).
type Rlimit struct {
	Resource int    // RLIMIT_…, for example unix.RLIMIT_NOFILE
	Soft     uint64 // in the resource's unit; unix.RLIM_INFINITY is no limit
	Hard     uint64 // at least Soft
}

// check refuses a Command that cannot be started by anyone.
func (cmd *Command) check() error {
	switch {
	case len(cmd.Args) == 0 || cmd.Args[0] == "":
		return newStartError(Other, "", syscall.EINVAL, "no command given")
	case cmd.ID == "" || strings.ContainsAny(cmd.ID, "\x00\n="):
		return newStartError(Other, "", syscall.EINVAL, fmt.Sprintf("malformed id %q", cmd.ID))
	case !filepath.IsAbs(cmd.Dir):
		return newStartError(Other, cmd.Dir, syscall.EINVAL, "the working directory is not absolute")
	case hasNUL(cmd.Args) || hasNUL(cmd.Env) || strings.ContainsRune(cmd.Dir, 0):
		return newStartError(Other, "", syscall.EINVAL, "NUL in an argument, variable or path")
	case cmd.Umask != nil && *cmd.Umask > 0o777:
		return newStartError(Other, "", syscall.EINVAL, "umask out of range")
	case cmd.OOMScoreAdj != nil && (*cmd.OOMScoreAdj < -1000 || *cmd.OOMScoreAdj > 1000):
		return newStartError(Other, "", syscall.EINVAL, "oom_score_adj out of range")
	case cmd.Nice != nil && (*cmd.Nice < -20 || *cmd.Nice > 19):
		return newStartError(Other, "", syscall.EINVAL, "nice value out of range")
	case cmd.Terminal && cmd.Stdin == nil:
		return newStartError(Other, "", syscall.EINVAL, "a terminal needs stdin")
	}
	for _, limit := range cmd.Rlimits {
		if limit.Resource < 0 || limit.Resource >= rlimits || limit.Soft > limit.Hard {
			return newStartError(Other, "", syscall.EINVAL, fmt.Sprintf("resource limit %+v", limit))
		}
	}
	return nil
}

// rlimits is the kernel's RLIM_NLIMITS.
const rlimits = 16

func hasNUL(values []string) bool {
	for _, v := range values {
		if strings.IndexByte(v, 0) >= 0 {
			return true
		}
	}
	return false
}

// environment returns Env with the mark set and each name at most once; a
// program that takes the first of two would otherwise see another value than
// one that takes the last.
func (cmd *Command) environment() []string {
	last := make(map[string]int, len(cmd.Env))
	for i, entry := range cmd.Env {
		name, _, _ := strings.Cut(entry, "=")
		last[name] = i
	}
	env := make([]string, 0, len(cmd.Env)+1)
	env = append(env, IDVariable+"="+cmd.ID) // first: environments are searched up to a limit
	for i, entry := range cmd.Env {
		name, _, _ := strings.Cut(entry, "=")
		if last[name] == i && name != IDVariable {
			env = append(env, entry)
		}
	}
	return env
}

// files returns the child's descriptors. Fd puts each into blocking mode.
func (cmd *Command) files(null *os.File) []uintptr {
	fds := make([]uintptr, 3)
	for i, f := range []*os.File{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		if f == nil {
			f = null
		}
		fds[i] = f.Fd()
	}
	if cmd.Extra != nil {
		fds = append(fds, cmd.Extra.Fd())
	}
	return fds
}
