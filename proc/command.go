package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/internal/spawn"
)

// maxArgument is the kernel's limit for one argument (MAX_ARG_STRLEN, 32 pages)
// without its terminating NUL.
const maxArgument = 32*4096 - 1

// scriptPrefix lets a long shell line close the descriptor that it came in by
// before anything of it runs. It adds no line, so that line numbers stay right.
const scriptPrefix = "exec 3<&-; "

// scriptCommand runs what descriptor 3 holds in the shell itself, which keeps
// $0, $# and stdin as they are with -c.
const scriptCommand = ". /proc/self/fd/3"

// arguments returns the argument list to start, and the file for descriptor 3
// where the shell line is too long for an argument. The caller closes it.
func (s *Spec) arguments(acc account.Account) (args []string, script *os.File, err error) {
	switch {
	case s.LoginShell:
		return []string{acc.Shell, "-l"}, nil, nil
	case s.Shell == nil:
		return s.Args, nil, nil
	}
	args = []string{"/bin/sh", "-c", s.Shell.Line}
	if s.Shell.Login {
		args = []string{"bash", "-l", "-c", s.Shell.Line}
	}
	if len(s.Shell.Line) <= maxArgument {
		return args, nil, nil
	}
	args[len(args)-1] = scriptCommand
	script, err = scriptFile(s.Shell.Line)
	return args, script, err
}

// scriptFile returns a file in memory with the script, which any user may read.
func scriptFile(line string) (*os.File, error) {
	fd, err := unix.MemfdCreate("shell-line", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file for the shell line: %w", err)
	}
	file := os.NewFile(uintptr(fd), "shell-line")
	_, err = file.WriteString(scriptPrefix + line)
	if err == nil {
		err = file.Chmod(0o444)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("storing the shell line: %w", err)
	}
	return file, nil
}

// dir returns the working directory.
func (s *Spec) dir(acc account.Account) string {
	if filepath.IsAbs(s.Dir) {
		return s.Dir
	}
	// Not filepath.Join, which would resolve ".." across symbolic links.
	home := acc.Home
	if !filepath.IsAbs(home) {
		home = "/"
	}
	if s.Dir == "" {
		return home
	}
	return home + "/" + s.Dir
}

// environment returns the complete environment, configured being the layer
// between the template's and the request's.
func (s *Spec) environment(acc account.Account, configured []spawn.EnvVar) []string {
	var builtin []spawn.EnvVar
	if s.Terminal != nil {
		builtin = []spawn.EnvVar{{Name: "TERM", Value: "xterm-256color"}}
	}
	if s.ClearEnv {
		return applyEnv(append(builtin, s.Env...))
	}
	return spawn.BuildEnv(acc, builtin, configured, s.Env)
}

// applyEnv returns an environment of nothing but the given changes.
func applyEnv(changes []spawn.EnvVar) []string {
	var env []string
	last := make(map[string]int, len(changes))
	for i, v := range changes {
		last[v.Name] = i
	}
	for i, v := range changes {
		if last[v.Name] == i && !v.Unset {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	return env
}

const (
	// maxKeptArgs is how much of its arguments a process is known by once it runs: each that has ended
	// is listed for minutes, and its arguments may have megabytes.
	maxKeptArgs = 64 << 10
	argOverhead = 16 // of a string, which may be empty
)

// keptArgs returns what is kept of arguments, and whether that is not all.
func keptArgs(args []string) (kept []string, cut bool) {
	left := maxKeptArgs
	for i, arg := range args {
		left -= argOverhead + len(arg)
		if left >= 0 {
			continue
		}
		kept = slices.Clone(args[:i])
		if part := left + len(arg); part > 0 {
			kept = append(kept, strings.Clone(arg[:part])) // or all of it would be kept
		}
		return kept, true
	}
	return args, false
}
