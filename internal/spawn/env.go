package spawn

import (
	"errors"
	"fmt"
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

// ErrBadEnvVar is wrapped by every EnvVarError.
var ErrBadEnvVar = errors.New("malformed environment variable")

// EnvVarError says what no environment can hold.
type EnvVarError struct {
	Part    string // of EnvVar: "Name" or "Value"
	Problem string
}

// Error implements error.
func (e *EnvVarError) Error() string {
	return fmt.Sprintf("%v: its %s %s", ErrBadEnvVar, strings.ToLower(e.Part), e.Problem)
}

// Unwrap returns ErrBadEnvVar.
func (e *EnvVarError) Unwrap() error { return ErrBadEnvVar }

// Check refuses an empty name, one with "=", and NUL in a name or value, with an
// *EnvVarError, nil if there is nothing wrong.
func (v EnvVar) Check() *EnvVarError {
	switch {
	case v.Name == "":
		return &EnvVarError{"Name", "is empty"}
	case strings.ContainsAny(v.Name, "=\x00"):
		return &EnvVarError{"Name", "has a '=' or NUL"}
	case strings.ContainsRune(v.Value, 0):
		return &EnvVarError{"Value", "has a NUL byte"}
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
