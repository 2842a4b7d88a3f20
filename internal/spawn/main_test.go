package spawn

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/internal/id"
	"guestd.internal/test/need"
)

// helperWord as first argument turns the test binary into the helper program
// that the second one names.
const helperWord = "spawn-test-helper"

var helpers = map[string]func(args []string){
	"report": func([]string) { helperReport() },
	"fds":    func([]string) { helperFDs() },

	"unprivileged": func([]string) { helperUnprivileged() },
	"headless":     func([]string) { helperHeadless() },
}

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == helperWord {
		helpers[os.Args[2]](os.Args[3:])
		return
	}
	fds, goroutines := openFDs(), runtimeGoroutines()
	code := m.Run()
	if code == 0 {
		code = checkLeaks(fds, goroutines)
	}
	os.Exit(code)
}

// report is what a child sees of itself.
type report struct {
	UID, GID, SID, PGID, PID int
	Groups                   []int
	Umask                    string
	Nice, OOMScoreAdj        int
	NoFile, Core             [2]uint64
	SigBlk, SigIgn           string
	Env                      []string
	Dir                      string
	CapEff                   string
	Comm                     string
}

func helperReport() {
	r := report{UID: os.Getuid(), GID: os.Getgid(), PID: os.Getpid(), Env: os.Environ()}
	r.Groups, _ = os.Getgroups()
	r.SID, _ = unix.Getsid(0)
	r.PGID = unix.Getpgrp()
	r.Dir, _ = os.Getwd()
	fields := statusFields("self")
	r.Umask, r.SigBlk, r.SigIgn, r.CapEff = fields["Umask"], fields["SigBlk"], fields["SigIgn"], fields["CapEff"]
	nice, _ := unix.Getpriority(unix.PRIO_PROCESS, 0)
	r.Nice = 20 - nice
	oom, _ := os.ReadFile("/proc/self/oom_score_adj")
	r.OOMScoreAdj, _ = strconv.Atoi(strings.TrimSpace(string(oom)))
	var lim unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &lim)
	r.NoFile = [2]uint64{lim.Cur, lim.Max}
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &lim)
	r.Core = [2]uint64{lim.Cur, lim.Max}
	_ = json.NewEncoder(os.Stdout).Encode(r)
}

func helperFDs() {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		fmt.Println(err)
		return
	}
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		link, err := os.Readlink("/proc/self/fd/" + name)
		n, _ := strconv.Atoi(name)
		runtimes := strings.Contains(link, "[event") || strings.HasPrefix(link, "/sys/fs/cgroup/cpu")
		if n == int(dir.Fd()) || err != nil || runtimes {
			continue // opened by this program, not inherited
		}
		fmt.Println(name, link)
	}
}

// helperHeadless ends its main thread and goes on with the others.
func helperHeadless() {
	go func() {
		for {
			time.Sleep(time.Hour)
		}
	}()
	// The main goroutine is on the main thread: package fscred sees to that.
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
}

func statusFields(pid string) map[string]string {
	fields := make(map[string]string)
	data, _ := os.ReadFile("/proc/" + pid + "/status")
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}

// newSpawner returns a Spawner that the test closes at its end.
func newSpawner(t testing.TB, cfg Config) *Spawner {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// eachTreeMode runs the test with cgroups, where there are any, with audit
// sessions, and with neither.
func eachTreeMode(t *testing.T, test func(t *testing.T, s *Spawner)) {
	t.Run("cgroup", func(t *testing.T) {
		s := newSpawner(t, Config{})
		if s.cgroups == nil {
			need.Skip(t, "no writable cgroup v2 mount; try: mount -t cgroup2 none /sys/fs/cgroup")
		}
		test(t, s)
	})
	t.Run("cgroup without kill file", func(t *testing.T) {
		s := newSpawner(t, Config{})
		if s.cgroups == nil {
			need.Skip(t, "no writable cgroup v2 mount")
		}
		s.cgroups.kill = false
		test(t, s)
	})
	t.Run("audit", func(t *testing.T) {
		s := newSpawner(t, Config{CgroupRoot: "none"})
		if !s.audit {
			t.Skip("no audit sessions: needs CONFIG_AUDIT and the right to write loginuid")
		}
		test(t, s)
	})
	t.Run("proc", func(t *testing.T) {
		s := newSpawner(t, Config{CgroupRoot: "none"})
		s.audit = false
		test(t, s)
	})
}

func self(t testing.TB) account.Account {
	t.Helper()
	acc, err := account.Open("").Current()
	if err != nil {
		t.Fatal(err)
	}
	return acc
}

// command returns a Command of guestd's own user in the root folder.
func command(t testing.TB, args ...string) Command {
	t.Helper()
	return Command{
		ID:      id.New("p"),
		Args:    args,
		Env:     []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
		Dir:     "/",
		Account: self(t),
	}
}

func helper(t testing.TB, name string, args ...string) Command {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, append([]string{exe, helperWord, name}, args...)...)
	cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0") // a second for each, otherwise
	return cmd
}

func start(t testing.TB, s *Spawner, cmd Command) *Child {
	t.Helper()
	c, err := s.Start(cmd)
	if err != nil {
		t.Fatalf("Start(%q): %v", cmd.Args, err)
	}
	t.Cleanup(c.Release)
	return c
}

// output runs cmd to its end and returns its stdout.
func output(t testing.TB, s *Spawner, cmd Command) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "stdout")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd.Stdout = f
	c := start(t, s, cmd)
	<-c.Done()
	data, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if st := c.Status(); st.Code != 0 {
		t.Fatalf("%q ended with %+v, stdout %q", cmd.Args, st, data)
	}
	return string(data)
}

func reportOf(t testing.TB, s *Spawner, change func(*Command)) report {
	t.Helper()
	cmd := helper(t, "report")
	if change != nil {
		change(&cmd)
	}
	var r report
	text := output(t, s, cmd)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("report %q: %v", text, err)
	}
	return r
}

// await waits until the condition holds; only a hang makes it fail.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("still waiting for %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// alive says whether pid runs: exists and is no zombie.
func alive(pid int) bool {
	p, err := readProcess(pid)
	return err == nil && !p.zombie()
}

func openFDs() map[string]string {
	fds := make(map[string]string)
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			fds[e.Name()] = link
		}
	}
	return fds
}

// checkLeaks returns 1 if the tests left something behind.
func checkLeaks(fds map[string]string, goroutines map[string]int) int {
	signal.Reset()
	code := 0
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		leaks := leaked(fds, goroutines)
		if len(leaks) == 0 {
			return code
		}
		if time.Now().After(deadline) {
			for _, l := range leaks {
				fmt.Fprintln(os.Stderr, "leaked:", l)
			}
			return 1
		}
	}
}

func leaked(fds map[string]string, goroutines map[string]int) []string {
	var leaks []string
	now := openFDs()
	for _, fd := range slices.Sorted(maps.Keys(now)) {
		link := now[fd]
		if _, before := fds[fd]; !before && !strings.Contains(link, "/proc/") && !strings.Contains(link, "anon_inode:[event") {
			leaks = append(leaks, "descriptor "+fd+" "+link)
		}
	}
	for stack, n := range runtimeGoroutines() {
		if n > goroutines[stack] {
			leaks = append(leaks, fmt.Sprintf("%d goroutines:\n%s", n, stack))
		}
	}
	for _, p := range allProcesses() {
		if p.ppid == os.Getpid() {
			leaks = append(leaks, fmt.Sprintf("child process %+v", p))
		}
	}
	return leaks
}

// expectCode starts a command and waits for its end.
func expectCode(t *testing.T, s *Spawner, cmd Command, want int) {
	t.Helper()
	child, err := s.Start(cmd)
	if err != nil {
		t.Error(err)
		return
	}
	<-child.Done()
	child.Release()
	if got := child.Status().Code; got != want {
		t.Errorf("%q ended with %d, want %d", cmd.Args, got, want)
	}
}
