package kernel

import (
	"fmt"
	"slices"
	"strings"
)

// poolKey is what kernels must have in common to be forks of one server.
type poolKey struct {
	account     string
	python      string // the interpreter, and its own arguments
	environment string // the variables that matter while libraries are imported
}

// key returns the pool that a context's kernels belong to; false where there can be
// none.
func (l *launcher) key(cmd command) (poolKey, bool) {
	if l.language != python || !cmd.ours {
		return poolKey{}, false
	}
	key := l.keyWith(cmd)
	plain := l.plain()
	return key, key == plain.keyWith(cmd)
}

func (l *launcher) keyWith(cmd command) poolKey {
	return poolKey{
		account:     fmt.Sprint(l.acc.UID, l.acc.GID, l.acc.Groups, l.acc.Home),
		python:      strings.Join(append([]string{cmd.program}, cmd.invocation.Python[1:]...), "\x00"),
		environment: importEnvironment(l.environment("")),
	}
}

// plain is the launcher of a context of the same user without wishes of its own.
func (l *launcher) plain() launcher {
	return launcher{cfg: l.cfg, acc: l.acc, language: l.language}
}

// importPrefixes are the beginnings of the names of variables that are read when
// Python starts or a library is imported, and not again.
var importPrefixes = []string{
	"BLIS_", "GOTO_", "HOME=", "LANG", "LC_", "LD_", "MALLOC_", "MKL_", "MPL", "NPY_", "NUMEXPR_", "OMP_",
	"OPENBLAS_", "PANDAS_", "PYTHON", "VECLIB_", "XDG_",
}

func importEnvironment(env []string) string {
	var found []string
	for _, entry := range env {
		if slices.ContainsFunc(importPrefixes, func(prefix string) bool { return strings.HasPrefix(entry, prefix) }) {
			found = append(found, entry)
		}
	}
	slices.Sort(found)
	return strings.Join(found, "\x00")
}
