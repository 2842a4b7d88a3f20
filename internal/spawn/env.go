package spawn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"guestd.internal/internal/account"
)

// EnvVar is one change to an environment.
type EnvVar struct {
	Name  string
	Value string // bytes without NUL, not necessarily UTF-8
	Unset bool   // removes the variable; Value is ignored
}

// ErrBadEnvVar is wrapped by the error of EnvVar.Check.
var ErrBadEnvVar = errors.New("malformed environment variable")

// Check refuses what no environment can hold: an empty name, one with "=", and
// NUL in a name or value.
func (v EnvVar) Check() error {
	if v.Name == "" || strings.ContainsAny(v.Name, "=\x00") {
		return fmt.Errorf("%w: name %q", ErrBadEnvVar, v.Name)
	}
	if strings.ContainsRune(v.Value, 0) {
		return fmt.Errorf("%w: NUL in the value of %q", ErrBadEnvVar, v.Name)
	}
	return nil
}

// systemPath are the folders of PATH after the user's own, as root has them in a
// login: sandboxed users run sudo, and programs in sbin fail by themselves.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// defaultLang makes programs treat text as UTF-8. glibc and musl have this locale
// built in, without language files.
const defaultLang = "C.UTF-8"

// BuildEnv returns the environment of acc's processes: the built-in variables,
// changed by each layer in turn, so the last one wins. guestd's layers are the
// template's file, its configuration and the request; a request that clears the
// environment passes its own alone.
//
// Built in are HOME, SHELL, LANG (C.UTF-8), PATH and, where the account has a
// name, USER and LOGNAME. PATH begins with the user's own folder ~/.local/bin,
// where pip and pipx install to, unless the home is "/". guestd's own
// environment plays no part. Variables keep the order in which they were first
// set. Entries that EnvVar.Check refuses are the caller's to refuse.
func BuildEnv(acc account.Account, layers ...[]EnvVar) []string {
	all := append([][]EnvVar{builtinEnv(acc)}, layers...)
	index := make(map[string]int)
	var vars []EnvVar
	for _, layer := range all {
		for _, v := range layer {
			if i, ok := index[v.Name]; ok {
				vars[i] = v
				continue
			}
			index[v.Name] = len(vars)
			vars = append(vars, v)
		}
	}
	env := make([]string, 0, len(vars))
	for _, v := range vars {
		if !v.Unset {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	return env
}

func builtinEnv(acc account.Account) []EnvVar {
	path := systemPath
	if filepath.IsAbs(acc.Home) && acc.Home != "/" {
		path = filepath.Join(acc.Home, ".local/bin") + ":" + systemPath
	}
	env := []EnvVar{
		{Name: "HOME", Value: acc.Home},
		{Name: "SHELL", Value: acc.Shell},
		{Name: "PATH", Value: path},
		{Name: "LANG", Value: defaultLang},
	}
	if acc.Name != "" {
		env = append(env, EnvVar{Name: "USER", Value: acc.Name}, EnvVar{Name: "LOGNAME", Value: acc.Name})
	}
	return env
}

// EnvironmentFile is where a template puts variables for all its processes.
const EnvironmentFile = "/etc/guestd/environment"

// environmentFileMax bounds ReadEnvironment: execve(2) takes no more than some
// megabytes in all.
const environmentFileMax = 1 << 20

// ReadEnvironment reads a file for ParseEnvironment, of at most 1 MiB. A file
// that does not exist is an empty one.
func ReadEnvironment(path string) ([]EnvVar, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > environmentFileMax {
		return nil, fmt.Errorf("%s: not a regular file of at most %d bytes", path, environmentFileMax)
	}
	data, err := os.ReadFile(path)
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
	return v, v.Check()
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
