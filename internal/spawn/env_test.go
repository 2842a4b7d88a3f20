package spawn

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

func TestBuildEnv(t *testing.T) {
	ann := account.Account{Name: "ann", UID: 1000, Home: "/home/ann", Shell: "/bin/bash"}
	const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, tc := range []struct {
		name   string
		acc    account.Account
		layers [][]EnvVar
		want   []string
	}{
		{"built in", ann, nil, []string{"HOME=/home/ann", "SHELL=/bin/bash", "PATH=/home/ann/.local/bin:" + path, "LANG=C.UTF-8", "USER=ann", "LOGNAME=ann"}},
		{"without an entry", account.Account{Home: "/", Shell: "/bin/sh"}, nil,
			[]string{"HOME=/", "SHELL=/bin/sh", "PATH=" + path, "LANG=C.UTF-8"}},
		{"later layers win", account.Account{Home: "/", Shell: "/bin/sh"}, [][]EnvVar{
			{{Name: "A", Value: "file"}, {Name: "B", Value: "file"}, {Name: "LANG", Value: "de_DE.UTF-8"}},
			{{Name: "A", Value: "configured"}, {Name: "C", Unset: true}},
			{{Name: "A", Value: "request"}, {Name: "B", Unset: true}, {Name: "PATH", Unset: true}, {Name: "E", Value: ""}},
		}, []string{"HOME=/", "SHELL=/bin/sh", "LANG=de_DE.UTF-8", "A=request", "E="}},
		{"set again after unset", account.Account{Home: "/", Shell: "/bin/sh"}, [][]EnvVar{
			{{Name: "PATH", Unset: true}}, {{Name: "PATH", Value: "/x\xff=y"}},
		}, []string{"HOME=/", "SHELL=/bin/sh", "PATH=/x\xff=y", "LANG=C.UTF-8"}},
	} {
		if diff := cmp.Diff(tc.want, BuildEnv(tc.acc, tc.layers...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestParseEnvironment(t *testing.T) {
	got, err := ParseEnvironment([]byte("# comment\n\nA=1\n  export B = two words  \nC='single \"$x\\n'\nD=\"a \\\"b\\\" \\$HOME \\n\"\nE=\nF=a#b='c'\r\nG=\"\""))
	if err != nil {
		t.Fatal(err)
	}
	want := []EnvVar{
		{Name: "A", Value: "1"}, {Name: "B", Value: "two words"}, {Name: "C", Value: `single "$x\n`},
		{Name: "D", Value: `a "b" $HOME \n`}, {Name: "E"}, {Name: "F", Value: "a#b='c'"}, {Name: "G"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{"A", "=1", "A=1\nB C=2", "A=\"x", "A='x' y", "A=x\x00y", "A='"} {
		if vars, err := ParseEnvironment([]byte(bad)); !errors.Is(err, ErrBadEnvVar) {
			t.Errorf("%q: %v, %v, want ErrBadEnvVar", bad, vars, err)
		}
	}
	if _, err := ParseEnvironment([]byte("A=1\nB")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("%v does not name the line", err)
	}
}

func TestEnvironmentFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "environment")
	file := NewEnvironmentFile(path)
	check := func(want []EnvVar, problem string) {
		t.Helper()
		vars, err := file.Vars()
		if !slices.Equal(vars, want) || (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("got %v, %v; want %v, %q", vars, err, want, problem)
		}
	}
	check(nil, "")
	write(t, path, "A=1\n", 0o644)
	check([]EnvVar{{Name: "A", Value: "1"}}, "")
	write(t, path, "A=22\n", 0o644)
	check([]EnvVar{{Name: "A", Value: "22"}}, "")
	write(t, path, "A=22\nB\n", 0o644)
	check(nil, path+": line 2")
	check(nil, path+": line 2")
	if err := os.Truncate(path, environmentFileMax+1); err != nil {
		t.Fatal(err)
	}
	check(nil, "not a regular file")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check(nil, "")
	if err := unix.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	check(nil, "not a regular file") // and does not wait for a writer
}

// Whatever ParseEnvironment takes can be put into an environment.
func FuzzParseEnvironment(f *testing.F) {
	for _, seed := range []string{"A=1\n# c\nexport B='x y'\n", "C=\"\\\"\\$\"", "=", "A='", "\xff=\xfe"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		vars, err := ParseEnvironment(data)
		if err != nil && !errors.Is(err, ErrBadEnvVar) {
			t.Fatalf("untyped error %v", err)
		}
		for _, v := range vars {
			if err := v.Check(); err != nil || v.Unset {
				t.Fatalf("took %+v: %v", v, err)
			}
		}
	})
}

// The name in a stat line is the process's own choice.
func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (a) b) R 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0\n"))
	f.Add([]byte("7 () "))
	f.Add([]byte(")("))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := parseStat(data); err != nil && p != (process{}) {
			t.Fatalf("both %+v and %v", p, err)
		}
	})
}

func TestParseStat(t *testing.T) {
	got, err := parseStat([]byte("7 (a) R 9 9) S 3 7 6 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0\n"))
	if want := (process{pid: 7, ppid: 3, session: 6, start: 12345, state: 'S', threads: 1}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}
