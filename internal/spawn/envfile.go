package spawn

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/filestamp"
)

// EnvironmentPath is where a template puts variables for all its processes.
const EnvironmentPath = "/etc/guestd/environment"

// environmentFileMax bounds an EnvironmentFile: execve(2) takes no more than some
// megabytes in all.
const environmentFileMax = 1 << 20

// An EnvironmentFile is a file for ParseEnvironment, of at most 1 MiB. It is read
// again when it has changed. It is safe for concurrent use.
type EnvironmentFile struct {
	path string

	// mu protects the following.
	mu    sync.Mutex
	stamp filestamp.Stamp // what vars and err were made from
	vars  []EnvVar
	err   error
}

// NewEnvironmentFile returns the file at path, which need not exist.
func NewEnvironmentFile(path string) *EnvironmentFile { return &EnvironmentFile{path: path} }

// Vars returns the file's variables, which are not to be changed: none where
// there is no file. An error names the file, and the line where one is malformed;
// then there are no variables either, since half an environment is worse to
// find out about than none.
func (f *EnvironmentFile) Vars() ([]EnvVar, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamp, err := filestamp.Of(f.path)
	if err != nil {
		return nil, err
	}
	if stamp != f.stamp {
		f.vars, f.err = nil, nil
		if stamp != (filestamp.Stamp{}) {
			f.vars, f.err = readEnvironment(f.path)
		}
		f.stamp = stamp
	}
	return f.vars, f.err
}

// readEnvironment opens without waiting and looks afterwards: the path may lead to
// a FIFO by now.
func readEnvironment(path string) ([]EnvVar, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > environmentFileMax {
		return nil, fmt.Errorf("%s: not a regular file of at most %d bytes", path, environmentFileMax)
	}
	data, err := io.ReadAll(io.LimitReader(file, environmentFileMax))
	if err != nil {
		return nil, err
	}
	vars, err := ParseEnvironment(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return vars, nil
}

// ParseEnvironment parses lines of the form NAME=value, as in systemd's
// EnvironmentFile= and /etc/environment. Empty lines and lines that begin with
// "#" are skipped, a leading "export " is allowed, and blanks around name and
// value do not count. A value may be enclosed in single quotes, and is then taken
// as it is, or in double quotes, where a backslash takes away the meaning of ",
// \, $ and `. Nothing is expanded, and a "#" within a value belongs to it. A
// malformed line is an error that names its number.
func ParseEnvironment(data []byte) ([]EnvVar, error) {
	var vars []EnvVar
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		v, err := parseAssignment(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		vars = append(vars, v)
	}
	return vars, nil
}

func parseAssignment(line string) (EnvVar, error) {
	if rest, ok := strings.CutPrefix(line, "export "); ok {
		line = strings.TrimSpace(rest)
	}
	name, raw, ok := strings.Cut(line, "=")
	if !ok {
		return EnvVar{}, fmt.Errorf("%w: no \"=\"", ErrBadEnvVar)
	}
	value, err := unquote(strings.TrimSpace(raw))
	if err != nil {
		return EnvVar{}, err
	}
	v := EnvVar{Name: strings.TrimSpace(name), Value: value}
	if strings.ContainsAny(v.Name, " \t") {
		return EnvVar{}, fmt.Errorf("%w: name %q", ErrBadEnvVar, v.Name)
	}
	if err := v.Check(); err != nil {
		return EnvVar{}, err
	}
	return v, nil
}

// unquote takes away one pair of quotes around the whole of raw.
func unquote(raw string) (string, error) {
	if raw == "" || raw[0] != '"' && raw[0] != '\'' {
		return raw, nil
	}
	quote := raw[0]
	var value strings.Builder
	for i := 1; i < len(raw); i++ {
		switch {
		case raw[i] == quote && i == len(raw)-1:
			return value.String(), nil
		case raw[i] == quote:
			return "", fmt.Errorf("%w: text after the closing quote", ErrBadEnvVar)
		case raw[i] == '\\' && quote == '"' && i+1 < len(raw) && strings.IndexByte("\"\\$`", raw[i+1]) >= 0:
			i++
		}
		value.WriteByte(raw[i])
	}
	return "", fmt.Errorf("%w: no closing quote", ErrBadEnvVar)
}
