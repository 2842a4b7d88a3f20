package spawn

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/test/need"
)

// user returns an account without an entry, whose rights are nobody's else.
func user(t testing.TB) account.Account {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Skip(t, "starting processes as another user needs root; try: sudo go test")
	}
	return account.Account{UID: 54321, GID: 54322, Groups: []uint32{54322, 54323}, Home: "/", Shell: "/bin/sh"}
}

// openDir returns a folder that every user may enter and list.
func openDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "spawn-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t testing.TB, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

type failure struct {
	name   string
	change func(*Command)
	reason Reason
	errno  syscall.Errno
	path   string
}

func failures(t *testing.T, dir string) []failure {
	args := func(args ...string) func(*Command) {
		return func(c *Command) { c.Args = args }
	}
	cwd := func(path string) func(*Command) { return func(c *Command) { c.Dir = path } }
	script := write(t, dir+"/script", "#!/no/such/interpreter\n", 0o755)
	plain := write(t, dir+"/plain", "data", 0o644)
	write(t, dir+"/bin/not-executable", "data", 0o644)
	write(t, dir+"/bin/bad-interpreter", "#!/no/such/interpreter\n", 0o755)
	write(t, dir+"/secret/tool", "#!/bin/sh\n", 0o755)
	if err := os.Mkdir(dir+"/bin/folder", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/secret", 0o700); err != nil {
		t.Fatal(err)
	}
	inPath := func(name string) func(*Command) {
		return func(c *Command) { c.Args, c.Env = []string{name}, []string{"PATH=" + dir + "/bin:/usr/bin:/bin"} }
	}
	return []failure{
		{"no such name", args("no-such-command"), CommandNotFound, syscall.ENOENT, "no-such-command"},
		{"no such path", args(dir + "/none"), CommandNotFound, syscall.ENOENT, dir + "/none"},
		{"file as folder", args(plain + "/x"), CommandNotFound, syscall.ENOENT, plain + "/x"},
		{"empty PATH", func(c *Command) { c.Args, c.Env = []string{"sh"}, []string{"PATH=/none"} }, CommandNotFound, syscall.ENOENT, "sh"},
		{"no x bit", args(plain), CommandNotExecutable, syscall.EACCES, plain},
		{"no x bit in PATH", inPath("not-executable"), CommandNotExecutable, syscall.EACCES, "not-executable"},
		{"a folder", args(dir), CommandNotExecutable, syscall.EACCES, dir},
		{"a folder in PATH", inPath("folder"), CommandNotExecutable, syscall.EACCES, "folder"},
		{"interpreter missing", args(script), BadInterpreter, syscall.ENOENT, script},
		{"interpreter missing in PATH", inPath("bad-interpreter"), BadInterpreter, syscall.ENOENT, dir + "/bin/bad-interpreter"},
		{"no such cwd", cwd(dir + "/none"), CwdNotFound, syscall.ENOENT, dir + "/none"},
		{"cwd is a file", cwd(plain), CwdNotDirectory, syscall.ENOTDIR, plain},
		{"too long", args("true", strings.Repeat("x", 200<<10)), TooLong, syscall.E2BIG, "/usr/bin/true"},
		{"no command", args(), Other, syscall.EINVAL, ""},
		{"NUL", args("true", "a\x00b"), Other, syscall.EINVAL, ""},
		{"relative cwd", cwd("tmp"), Other, syscall.EINVAL, "tmp"},
		{"bad limit", func(c *Command) {
			c.Rlimits = []Rlimit{{Resource: unix.RLIMIT_CORE, Soft: 2, Hard: 1}}
		}, Other, syscall.EINVAL, ""},
		{"unknown limit", func(c *Command) { c.Rlimits = []Rlimit{{Resource: 999}} }, Other, syscall.EINVAL, ""},
	}
}

func check(t *testing.T, s *Spawner, f failure, acc account.Account) {
	t.Helper()
	cmd := command(t, "true")
	cmd.Account = acc
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	f.change(&cmd)
	c, err := s.Start(cmd)
	if err == nil {
		<-c.Done()
		c.Release()
		t.Fatalf("started, and ended with %+v", c.Status())
	}
	var start *StartError
	if !errors.As(err, &start) || start.Reason != f.reason || !errors.Is(err, f.errno) || start.Path != f.path {
		t.Errorf("got %#v (%v), want %v for %q, %v", err, err, f.reason, f.path, f.errno)
	}
}

func TestStartFailuresAreToldApart(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		for _, f := range failures(t, openDir(t)) {
			t.Run(f.name, func(t *testing.T) { check(t, s, f, self(t)) })
		}
	})
}

func TestStartFailuresOfAnotherUser(t *testing.T) {
	acc := user(t)
	s := newSpawner(t, Config{})
	dir := openDir(t)
	all := append(failures(t, dir),
		failure{"unreachable", func(c *Command) { c.Args = []string{dir + "/secret/tool"} }, CommandNotExecutable, syscall.EACCES, dir + "/secret/tool"},
		failure{"unreachable in PATH", func(c *Command) {
			c.Args, c.Env = []string{"tool"}, []string{"PATH=" + dir + "/secret:/usr/bin"}
		}, CommandNotExecutable, syscall.EACCES, "tool"},
		failure{"cwd denied", func(c *Command) { c.Dir = dir + "/secret" }, CwdDenied, syscall.EACCES, dir + "/secret"},
		failure{"below a denied cwd", func(c *Command) { c.Dir = dir + "/secret/none" }, CwdDenied, syscall.EACCES, dir + "/secret/none"},
	)
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) { check(t, s, f, acc) })
	}
}

func TestAFailedStartLeavesNothing(t *testing.T) {
	s := newSpawner(t, Config{})
	if s.cgroups == nil {
		need.Skip(t, "no writable cgroup v2 mount")
	}
	for range 20 {
		if _, err := s.Start(command(t, "no-such-command")); err == nil {
			t.Fatal("started")
		}
	}
	awaitNoTrees(t, s)
}

func TestLookupIsExecvps(t *testing.T) {
	s := newSpawner(t, Config{})
	dir := openDir(t)
	write(t, dir+"/a/tool", "#!/bin/sh\necho a", 0o644)
	write(t, dir+"/b/tool", "#!/bin/sh\necho b", 0o755)
	write(t, dir+"/c/tool", "#!/bin/sh\necho c", 0o755)
	write(t, dir+"/c/plain", "echo plain $0 $1", 0o755)
	for _, tc := range []struct {
		name, path, dir string
		args            []string
		want            string
	}{
		{"first that can be executed", dir + "/none:" + dir + "/a:" + dir + "/b:" + dir + "/c", "/", []string{"tool"}, "b\n"},
		{"relative folder", "c:" + dir + "/b", dir, []string{"tool"}, "c\n"},
		{"empty entry is the working directory", ":/bin", dir + "/c", []string{"tool"}, "c\n"},
		{"path with a slash", "/bin", dir, []string{"b/tool"}, "b\n"},
		{"no known format", dir + "/c:/bin", "/", []string{"plain", "one"}, "plain " + dir + "/c/plain one\n"},
	} {
		cmd := command(t, tc.args...)
		cmd.Env, cmd.Dir = []string{"PATH=" + tc.path}, tc.dir
		if got := output(t, s, cmd); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	cmd := command(t, "sh", "-c", "echo default")
	cmd.Env = nil
	if got := output(t, s, cmd); got != "default\n" {
		t.Errorf("without PATH: %q", got)
	}
}

// Another user's PATH may hold what only that user can execute.
func TestLookupHasTheUsersRights(t *testing.T) {
	acc := user(t)
	s := newSpawner(t, Config{})
	dir := openDir(t)
	write(t, dir+"/root/tool", "#!/bin/sh\necho root", 0o700)
	write(t, dir+"/own/tool", "#!/bin/sh\necho own", 0o700)
	for _, path := range []string{dir + "/own", dir + "/own/tool"} {
		if err := os.Chown(path, int(acc.UID), int(acc.GID)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := command(t, "tool")
	cmd.Account, cmd.Env = acc, []string{"PATH=" + dir + "/root:" + dir + "/own:/bin"}
	if got := output(t, s, cmd); got != "own\n" {
		t.Errorf("ran %q, want the user's own", got)
	}
}

// A file that is written and started at once, while other starts run, is busy for
// as long as one of their children holds its descriptor.
func TestAFileJustWrittenCanBeStarted(t *testing.T) {
	s := newSpawner(t, Config{})
	stop := make(chan struct{})
	defer close(stop)
	for range 4 {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		}()
	}
	dir := openDir(t)
	shell, err := os.ReadFile("/usr/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		tool := write(t, fmt.Sprintf("%s/tool%d", dir, i), string(shell), 0o755)
		c, err := s.Start(command(t, tool))
		if err != nil {
			t.Fatal(err)
		}
		<-c.Done()
		c.Release()
		os.Remove(tool)
	}
}

// A script that was written on Windows asks for "/bin/sh\r", which nobody sees unless it is told.
func TestMissingInterpretersAreNamed(t *testing.T) {
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	dir := openDir(t)
	other := write(t, dir+"/other", "#!/no/such/interpreter\n", 0o755)
	plain := write(t, dir+"/plain", "data", 0o644)
	for content, want := range map[string]string{
		"#!/no/such/interpreter\n":    `: its interpreter "/no/such/interpreter": no such file`,
		"#! \t/no/such/sh -e\nexit 0": `: its interpreter "/no/such/sh": no such file`,
		"#!/bin/sh\r\necho hello\r\n": `: its interpreter "/bin/sh\r": no such file`,
		"#!" + other + "\n":           `: the interpreter of its interpreter "` + other + `": no such file`,
		"#!" + plain + "\n":           `: its interpreter "` + plain + `": permission denied`,
		"#!" + dir + "\n":             `: its interpreter "` + dir + `": permission denied`,
		strings.ReplaceAll(string(program), "/ld-linux", "/no-linux"): ": the loader that it is linked with: no such file",
	} {
		s := newSpawner(t, Config{})
		_, err := s.Start(command(t, write(t, openDir(t)+"/file", content, 0o755)))
		if err == nil || !strings.Contains(err.Error(), want) || err.(*StartError).Reason != BadInterpreter {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
