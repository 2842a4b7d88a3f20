package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"guestd.internal/internal/fscred"
	"guestd.internal/kernel/internal/kernelspec"
)

// Language is one way to run code.
type Language struct {
	Name        string
	Aliases     []string // other names that mean the same
	DisplayName string   // for people
	Stateful    bool     // it keeps state between executions
	Unavailable string   // why it cannot be run now and what to do, or ""
}

// Languages returns what a user can run: what is built in, and the kernels that
// are installed. Errors are account's about the user, and *InvalidError.
func (cs *Contexts) Languages(user string) ([]Language, error) {
	if strings.ContainsRune(user, 0) {
		return nil, &InvalidError{Field: "user", Problem: "has a NUL"}
	}
	configured := ""
	if cs.cfg.DefaultUser != nil {
		configured = cs.cfg.DefaultUser()
	}
	acc, err := cs.cfg.Accounts.Serve(user, configured)
	if err != nil {
		return nil, fmt.Errorf("choosing the user: %w", err)
	}
	l := launcher{cfg: &cs.cfg, acc: acc, language: python}
	getenv := getenv(l.environment(""))
	var languages []Language
	err = fscred.Do(acc, func() error {
		specs := kernelspec.Find(kernelspec.DataDirs(getenv, acc.Home))
		languages = []Language{pythonLanguage(specs, getenv("PATH"))}
		for _, process := range slices.SortedFunc(maps.Values(processLanguages), byName) {
			languages = append(languages, process.describe(getenv("PATH")))
		}
		for _, spec := range specs {
			if aliasOf(spec.Name) == "" { // else it is one of those above
				languages = append(languages, specLanguage(spec, getenv("PATH")))
			}
		}
		return nil
	})
	return languages, err
}

func byName(a, b processLanguage) int { return cmp.Compare(a.name, b.name) }

// aliasOf is the built-in language that a name means, or "".
func aliasOf(name string) string {
	canonical := canonicalLanguage(name)
	if _, ok := processLanguages[canonical]; ok || canonical == python {
		return canonical
	}
	return ""
}

// aliasesOf are the other names of a built-in language.
func aliasesOf(language string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(aliases)) {
		if name != "" && aliases[name] == language {
			names = append(names, name)
		}
	}
	return names
}

func pythonLanguage(specs []kernelspec.Spec, path string) Language {
	l := Language{Name: python, Aliases: aliasesOf(python), DisplayName: "Python", Stateful: true}
	found, err := findPython(slices.Clone(specs), path)
	switch {
	case err != nil:
		l.Unavailable = reason(err)
	case found.spec.DisplayName != "":
		l.DisplayName = found.spec.DisplayName
	}
	return l
}

func specLanguage(spec kernelspec.Spec, path string) Language {
	l := Language{Name: spec.Name, DisplayName: cmp.Or(spec.DisplayName, spec.Name), Stateful: true}
	if _, err := findSpec([]kernelspec.Spec{spec}, spec.Name, path); err != nil {
		l.Unavailable = reason(err)
	}
	return l
}

// reason is why a language is not available and what to do about it.
func reason(err error) string {
	if unavailable, ok := errors.AsType[*LanguageUnavailableError](err); ok {
		return unavailable.Reason + "; " + unavailable.Install
	}
	return err.Error()
}
