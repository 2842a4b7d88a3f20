package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"guestd.internal/internal/spawn"
	"guestd.internal/kernel/internal/kernelspec"
)

func spec(name, language, program string) kernelspec.Spec {
	return kernelspec.Spec{Name: name, Language: language, Argv: []string{program, "{connection_file}"}}
}

func TestFindPython(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"python3", "r"} {
		if err := os.WriteFile(filepath.Join(bin, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		specs []kernelspec.Spec
		path  string
		want  string // name and program
	}{
		"python3 first":        {[]kernelspec.Spec{spec("a", "python", "/bin/sh"), spec("python", "python", "/bin/sh"), spec("python3", "python", "/bin/true")}, "", "python3 /bin/true"},
		"then python":          {[]kernelspec.Spec{spec("a", "python", "/bin/sh"), spec("python", "Python", "/bin/true")}, "", "python /bin/true"},
		"then any Python":      {[]kernelspec.Spec{spec("ir", "R", "/bin/true"), spec("my-env", "python", "/bin/sh")}, "", "my-env /bin/sh"},
		"not one that is gone": {[]kernelspec.Spec{spec("python3", "python", "/gone/python3"), spec("b", "python", "/bin/sh")}, "", "b /bin/sh"},
		"python3 in PATH":      {[]kernelspec.Spec{spec("ir", "R", "/bin/true")}, bin, "python3 " + bin + "/python3"},
		"nothing":              {nil, "/nowhere", ""},
	} {
		got, err := findPython(test.specs, test.path)
		if test.want == "" {
			var unavailable *LanguageUnavailableError
			if !errors.As(err, &unavailable) || unavailable.Install == "" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if found := fmt.Sprint(got.spec.Name, " ", got.program); err != nil || found != test.want {
			t.Errorf("%s: %s, %v, want %s", name, found, err, test.want)
		}
	}
}

func TestFindSpecByName(t *testing.T) {
	specs := []kernelspec.Spec{spec("ir", "R", "/bin/sh"), spec("old", "R", "/gone")}
	if got, err := findSpec(specs, "ir", ""); err != nil || got.program != "/bin/sh" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := findSpec(specs, "old", ""); !errors.As(err, new(*LanguageUnavailableError)) {
		t.Errorf("a kernel whose program is gone: %v", err)
	}
	if _, err := findSpec(specs, "none", ""); !errors.As(err, new(*LanguageNotFoundError)) {
		t.Errorf("no such kernel: %v", err)
	}
}

func TestAliasesShareAContext(t *testing.T) {
	cs := newContexts(t, withFake(t, "kernel"))
	var ids []string
	for _, language := range []string{"", "python", "Python3", "py"} {
		x := start(t, cs, Request{Code: "nothing", Language: language})
		collect(t, x)
		ids = append(ids, x.ContextID())
	}
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("contexts %v", ids)
		}
	}
	if infos := cs.List(); len(infos) != 1 || infos[0].Language != "python" || infos[0].State != Idle {
		t.Errorf("%+v", infos)
	}
	x := start(t, cs, Request{Code: "nothing", ContextID: ids[0], Language: "py"})
	collect(t, x)
	var invalid *InvalidError
	if _, err := cs.Execute(t.Context(), Request{Code: "1", ContextID: ids[0], Language: "ir"}); !errors.As(err, &invalid) {
		t.Errorf("another language in the context: %v", err)
	}
}

// A user's environment reaches the kernel and wins over the defaults.
func TestEnvironment(t *testing.T) {
	cs := newContexts(t, func(cfg *Config) {
		cfg.Environment = func() []spawn.EnvVar {
			return []spawn.EnvVar{{Name: "GREETING", Value: "hi"}, {Name: "MPLBACKEND", Value: "agg"}}
		}
	})
	if out := mustOK(t, cs, "import os; print(os.environ['GREETING'], os.environ['MPLBACKEND'], os.environ['HOME'] != '')"); out.stdout != "hi agg True\n" {
		t.Errorf("%q", out.stdout)
	}
}
