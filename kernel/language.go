package kernel

import (
	"cmp"
	"slices"
	"strings"

	"guestd.internal/internal/account"
	"guestd.internal/internal/fscred"
	"guestd.internal/kernel/internal/kernelspec"
	"guestd.internal/kernel/internal/pykernel"
)

// python is the canonical name of the default language.
const python = "python"

// aliases are other names of the languages that are built in.
var aliases = map[string]string{
	"":        python,
	"py":      python,
	"python3": python,
	"sh":      bash,
	"shell":   bash,
	"js":      javascript,
	"node":    javascript,
}

// canonicalLanguage is the name under which a language's default context is
// known: one that is built in, or that of a kernelspec.
func canonicalLanguage(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	if canonical, ok := aliases[name]; ok {
		return canonical
	}
	return name
}

// command is how a language's kernel is started.
type command struct {
	spec    kernelspec.Spec
	program string

	invocation pykernel.Invocation // if ours
	ours       bool                // it runs ipykernel, for which we have a launcher
}

// findLanguage finds the kernel for a language as the given user has it.
// Errors are *LanguageNotFoundError and *LanguageUnavailableError.
func findLanguage(acc account.Account, language string, getenv func(string) string) (found command, err error) {
	err = fscred.Do(acc, func() error {
		specs := kernelspec.Find(kernelspec.DataDirs(getenv, acc.Home))
		if language == python {
			found, err = findPython(specs, getenv("PATH"))
		} else {
			found, err = findSpec(specs, language, getenv("PATH"))
		}
		return err
	})
	if err == nil {
		found.invocation, found.ours = pykernel.Parse(found.spec.Command(found.program, ""))
	}
	return found, err
}

// findPython prefers the kernelspec python3, then python, then any other whose
// language is Python, and does without where there is none.
func findPython(specs []kernelspec.Spec, path string) (command, error) {
	specs = slices.DeleteFunc(specs, func(s kernelspec.Spec) bool { return !strings.EqualFold(s.Language, python) })
	rank := func(s kernelspec.Spec) int {
		switch s.Name {
		case "python3":
			return 0
		case python:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(specs, func(a, b kernelspec.Spec) int { return cmp.Compare(rank(a), rank(b)) })
	for _, spec := range specs {
		if program, ok := spec.Program(path); ok { // else its interpreter is gone
			return command{spec: spec, program: program}, nil
		}
	}
	if program, ok := kernelspec.LookPath("python3", path); ok {
		return command{program: program, spec: kernelspec.Spec{
			Name:     "python3",
			Language: python,
			Argv:     []string{"python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"},
		}}, nil
	}
	return command{}, pythonUnavailable("there is neither a Python kernelspec nor python3 in PATH")
}

func pythonUnavailable(reason string) *LanguageUnavailableError {
	return &LanguageUnavailableError{
		Language: python,
		Reason:   reason,
		Install:  "install ipykernel: \"apt-get install python3-ipykernel\", or \"pip install ipykernel\" for another Python",
	}
}

// findSpec finds an installed kernelspec by its name.
func findSpec(specs []kernelspec.Spec, name, path string) (command, error) {
	for _, spec := range specs {
		if spec.Name != name {
			continue
		}
		program, ok := spec.Program(path)
		if !ok {
			return command{}, &LanguageUnavailableError{
				Language: name,
				Reason:   "the kernelspec's program " + spec.Argv[0] + " does not exist or cannot be run",
				Install:  "install it, or remove " + spec.Dir,
			}
		}
		return command{spec: spec, program: program}, nil
	}
	return command{}, &LanguageNotFoundError{Language: name}
}
