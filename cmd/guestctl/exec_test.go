package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Output that could not be written is told whatever the command's end.
func TestExecOntoAFullDisk(t *testing.T) {
	g := startGuest(t)
	for _, c := range []struct {
		args []string
		code int
		said string
	}{
		{[]string{"exec", "--", "echo", "hi"}, 125, ""},
		{[]string{"exec", "--", "sh", "-c", "echo hi; exit 3"}, 3, ""},
		{[]string{"exec", "-d", "--", "true"}, 125, "p-"}, // or nobody would know its id
		{[]string{"--json", "exec", "-d", "--", "true"}, 125, "p-"},
	} {
		full := exec.Command("sh", append([]string{"-c", `exec "$@" >/dev/full`, "sh", filepath.Join(bin, "guestctl")}, c.args...)...)
		full.Env = append(os.Environ(), envTarget+"="+g.target)
		out, _ := full.CombinedOutput()
		if full.ProcessState.ExitCode() != c.code || !strings.Contains(string(out), "no space left on device") || !strings.Contains(string(out), c.said) {
			t.Errorf("%q: %v and %q, want exit code %d", c.args, full.ProcessState, out, c.code)
		}
	}
}

func TestExec(t *testing.T) {
	g := startGuest(t)
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args           []string
		stdin          string
		code           int
		stdout, stderr string
	}{
		"output":              {[]string{"exec", "--", "echo", "hello"}, "", 0, "hello\n", ""},
		"no shell line":       {[]string{"exec", "--shell", "--", ""}, "", 125, "", "guestctl: the shell line is empty"},
		"no name":             {[]string{"exec", "--", "", "x"}, "", 125, "", "guestctl: the command's name is empty"},
		"no name, detached":   {[]string{"exec", "-d", "--", ""}, "", 125, "", "guestctl: the command's name is empty"},
		"without dashes":      {[]string{"exec", "echo", "-n", "--json"}, "", 0, "--json", ""},
		"streams apart":       {[]string{"exec", "--", "sh", "-c", "echo out; echo err >&2"}, "", 0, "out\n", "err\n"},
		"exit code":           {[]string{"exec", "--", "sh", "-c", "exit 42"}, "", 42, "", ""},
		"signal":              {[]string{"exec", "--", "sh", "-c", "kill -SEGV $$"}, "", 139, "", ""},
		"no stdin":            {[]string{"exec", "--", "cat"}, "not for you", 0, "", ""},
		"stdin":               {[]string{"exec", "-i", "--", "cat"}, "for you", 0, "for you", ""},
		"shell line":          {[]string{"exec", "--shell", "--", "echo a | tr a b"}, "", 0, "b\n", ""},
		"shell words":         {[]string{"exec", "--shell", "echo", "a;", "echo", "b"}, "", 0, "a\nb\n", ""},
		"directory":           {[]string{"exec", "-w", dir, "--", "pwd"}, "", 0, dir + "\n", ""},
		"environment":         {[]string{"exec", "-e", "A=1 2", "-e", "B=", "--", "sh", "-c", `echo "$A,${B-unset}"`}, "", 0, "1 2,\n", ""},
		"time-out":            {[]string{"exec", "--timeout", "100ms", "--", "sleep", "60"}, "", 124, "", "ran out of time"},
		"no such command":     {[]string{"exec", "--", "no-such-command"}, "", 127, "", "no-such-command"},
		"not executable":      {[]string{"exec", "--", plain}, "", 126, "", plain},
		"no such directory":   {[]string{"exec", "-w", "/no/such", "--", "true"}, "", 125, "", "/no/such"},
		"no such user":        {[]string{"exec", "-u", "no-such-user", "--", "true"}, "", 125, "", "no-such-user"},
		"nothing":             {[]string{"exec"}, "", 125, "", "exec takes a command"},
		"bad flag":            {[]string{"exec", "--bogus"}, "", 125, "", "guestctl exec --help"},
		"detached with stdin": {[]string{"exec", "-d", "-i", "--", "cat"}, "", 125, "", "exclude each other"},
		"verb misspelled":     {[]string{"exce"}, "", 125, "", "exec"},
		"malformed target":    {[]string{"--target", "x", "exec", "--", "true"}, "", 125, "", "accepted are vsock://"},
		"target behind verb":  {[]string{"exec", "--target", g.target, "--", "true"}, "", 0, "", ""},
		"nobody there":        {[]string{"exec", "--target", "unix:///no/such", "--", "true"}, "", 125, "", "/no/such"},
	} {
		t.Run(name, func(t *testing.T) {
			g.run(t, c.stdin, c.args...).want(t, c.code, c.stdout, c.stderr)
		})
	}
}

// The shell starts no program while it waits: dash loses a signal that comes during its vfork(2).
func TestExecPassesSignalsOn(t *testing.T) {
	g := startGuest(t)
	for name, signal := range forwardable {
		for range 3 {
			cmd := exec.Command(filepath.Join(bin, "guestctl"), "--target", g.target, "exec", "--timeout", "1m", "--shell",
				`for s in INT TERM HUP QUIT USR1 USR2; do trap "echo $s; exit 9" $s; done; echo ready; while :; do :; done`)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(stdout, make([]byte, len("ready\n"))); err != nil {
				t.Fatal(err)
			}
			cmd.Process.Signal(signal)
			rest, _ := io.ReadAll(stdout)
			cmd.Wait()
			if exitCodeOf(cmd) != 9 || string(rest) != name+"\n" {
				t.Errorf("%s: exit code %d, %q", name, exitCodeOf(cmd), rest)
			}
		}
	}
}

// forwardable are the signals that a running command gets when guestctl does.
var forwardable = map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP,
	"QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2}

// startExec starts guestctl exec with a target and arguments.
func startExec(t *testing.T, target string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "guestctl"), append([]string{"--target", target, "exec"}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// A guest that takes the connection and says nothing never lets the command start.
func TestSignalBeforeTheStartGivesItUp(t *testing.T) {
	address := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, args := range [][]string{{"--", "true"}, {"-t", "--", "true"}} {
		for times, signal := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM} {
			cmd := startExec(t, "unix://"+address, args...)
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			io.ReadFull(conn, make([]byte, 24)) // HTTP/2's preface comes with the first call
			for range times + 1 {               // the second time SIGTERM waits for nothing
				cmd.Process.Signal(signal)
			}
			cmd.Wait()
			conn.Close()
			if code := exitCodeOf(cmd); code != 128+int(signal) {
				t.Errorf("%v, %v: exit code %d", args, signal, code)
			}
		}
	}
}

// Whenever a signal comes, the command's trap runs, or it ends as the signal has it, or never starts;
// and it is never killed. (Of other signals Go's runtime drops those that come before main.)
func TestSignalWhileTheCommandStarts(t *testing.T) {
	g := startGuest(t)
	for i := range 60 {
		signal := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}[i%3]
		cmd := startExec(t, g.target, "--timeout", "1m", "--shell", `trap "exit 9" INT TERM HUP; while :; do :; done`)
		for range i % 20 {
			time.Sleep(time.Millisecond)
		}
		cmd.Process.Signal(signal)
		cmd.Wait()
		code := exitCodeOf(cmd)
		if killed, is := cmd.ProcessState.Sys().(syscall.WaitStatus); is && killed.Signaled() {
			code = 128 + int(killed.Signal()) // before guestctl handles it
		}
		if code != 9 && code != 128+int(signal) {
			t.Errorf("%v after %d ms: exit code %d", signal, i%20, code)
		}
	}
}

func TestExecWhoseReaderHasEnough(t *testing.T) {
	g := startGuest(t)
	cmd := exec.Command(filepath.Join(bin, "guestctl"), "--target", g.target, "exec", "--", "yes")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.Read(make([]byte, 10))
	r.Close()
	cmd.Wait()
	if code := exitCodeOf(cmd); code != 141 || stderr.Len() > 0 {
		t.Errorf("exit code %d, %q; want 141 and silence", code, stderr.String())
	}
	if out := g.run(t, "", "ps"); strings.Contains(out.stdout, "yes") {
		t.Errorf("it still runs: %s", out.stdout)
	}
}

func TestDetachedProcess(t *testing.T) {
	g := startGuest(t)
	id := strings.TrimSpace(g.run(t, "", "exec", "-d", "--", "sh", "-c", "echo out; echo err >&2; while [ ! -e "+t.TempDir()+"/x ]; do sleep 0.01; done").stdout)
	if !strings.HasPrefix(id, "p-") {
		t.Fatalf("exec -d printed %q", id)
	}
	if out := g.run(t, "", "ps"); !strings.Contains(out.stdout, id) || !strings.Contains(out.stdout, "running") {
		t.Errorf("ps shows %q", out.stdout)
	}
	var p jsonProcess
	if out := g.run(t, "", "ps", "--json"); json.Unmarshal([]byte(out.stdout), &p) != nil || p.ID != id || !p.Running {
		t.Errorf("ps --json shows %q", out.stdout)
	}
	g.run(t, "", "kill", "-s", "USR1", id).want(t, 0, "", "")
	g.run(t, "", "wait", id).want(t, 138, "", "")
	g.run(t, "", "attach", id).want(t, 138, "out\n", "err\n")
	g.run(t, "", "attach", "--from", "1,2", id).want(t, 138, "ut\n", "r\n")
	g.run(t, "", "ps").want(t, 0, "ID  PID  USER  AGE  STATUS  COMMAND\n", "")
	if out := g.run(t, "", "ps", "-a"); !strings.Contains(out.stdout, "signal: user defined signal 1") {
		t.Errorf("ps -a shows %q", out.stdout)
	}
	g.run(t, "", "kill", id).want(t, 125, "", "finished")
	for _, verb := range []string{"attach", "wait", "kill"} {
		g.run(t, "", verb, "p-nosuchprocess").want(t, 125, "", "p-nosuchprocess")
	}
	g.run(t, "", "resize", id, "--rows", "10", "--columns", "20").want(t, 125, "", "terminal")
}

// shortTempDir is a temporary folder whose path is short enough for sockets.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "gt-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestPrivateGuestd(t *testing.T) {
	long := "TMPDIR=" + filepath.Join(t.TempDir(), strings.Repeat("long", 20))
	guestctl(t, []string{long}, "", "exec", "--", "echo", "hi").want(t, 0, "hi\n", "")
	temp := shortTempDir(t)
	env := []string{"TMPDIR=" + temp}
	guestctl(t, env, "", "exec", "--", "sh", "-c", "echo hi; exit 3").want(t, 3, "hi\n", "")
	guestctl(t, env, "", "health").want(t, 0, "SERVING\n", "")
	for _, args := range [][]string{
		{"exec", "-d", "--", "true"}, {"ps"}, {"attach", "p-x"}, {"wait", "p-x"}, {"kill", "p-x"},
		{"resize", "p-x", "--rows", "1", "--columns", "1"}, {"shutdown"},
	} {
		guestctl(t, env, "", args...).want(t, 125, "", "--target")
	}
	guestctl(t, append(env, envGuestd+"=/no/such/guestd"), "", "info").want(t, 125, "", envGuestd)
	if entries, err := os.ReadDir(temp); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestPrivateGuestdDiesWithGuestctl(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		temp := shortTempDir(t)
		cmd := exec.Command(filepath.Join(bin, "guestctl"), "exec", "--", "sh", "-c", "echo $PPID $$; exec sleep 1000")
		cmd.Env = append(os.Environ(), "TMPDIR="+temp)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 100)
		n, err := stdout.Read(line)
		if err != nil {
			cmd.Wait()
			t.Fatalf("%v, stderr %q", err, stderr.String())
		}
		cmd.Process.Signal(signal)
		cmd.Wait()
		for _, pid := range strings.Fields(string(line[:n])) {
			deadline := time.Now().Add(15 * time.Second)
			for isRunning(pid) {
				if time.Now().After(deadline) {
					t.Fatalf("%v: process %s outlives guestctl", signal, pid)
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
		if signal != syscall.SIGTERM {
			continue
		}
		if code := exitCodeOf(cmd); code != 143 {
			t.Errorf("exit code %d, want 143", code)
		}
		if entries, err := os.ReadDir(temp); err != nil || len(entries) > 0 {
			t.Errorf("left behind: %v, %v", entries, err)
		}
	}
}

// isRunning tells whether a process is there and no zombie.
func isRunning(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestToken(t *testing.T) {
	const token = "a-token-of-the-test"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGuest(t, "--token-file", file)
	g.run(t, "", "exec", "--", "true").want(t, 125, "", "--token-file")
	g.run(t, "", "exec", "--token-file", file, "--", "true").want(t, 0, "", "")
	guestctl(t, []string{envToken + "=" + token, envTarget + "=" + g.target}, "", "exec", "--", "true").want(t, 0, "", "")
	guestctl(t, []string{envToken + "=wrong-token-of-the-test", envTarget + "=" + g.target}, "", "exec", "--", "true").want(t, 125, "", "--token-file")
	g.run(t, "", "exec", "--token-file", "/no/such/file", "--", "true").want(t, 125, "", "/no/such/file")
}

func TestGuestVerbs(t *testing.T) {
	g := startGuest(t)
	if out := g.run(t, "", "info"); out.code != 0 || !strings.Contains(out.stdout, "serving since") {
		t.Errorf("info: %+v", out)
	}
	var info jsonInfo
	if out := g.run(t, "", "--json", "info"); json.Unmarshal([]byte(out.stdout), &info) != nil || info.APIVersion != "v1" || info.InstanceID == "" {
		t.Errorf("info --json: %+v", out)
	}
	g.run(t, "", "health", "guestd.v1.ProcessService").want(t, 0, "SERVING\n", "")
	g.run(t, "", "health", "no.such.Service").want(t, 125, "", `no service "no.such.Service"`)
	g.run(t, "", "health", "--json").want(t, 0, `{"status":"SERVING"}`+"\n", "")
	if out := g.run(t, "", "version"); out.code != 0 || !strings.HasPrefix(out.stdout, "guestctl ") {
		t.Errorf("version: %+v", out)
	}
	g.run(t, "", "shutdown").want(t, 0, "", "")
	if err := g.cmd.Wait(); err != nil {
		t.Errorf("guestd ended with %v", err)
	}
}

func TestHelp(t *testing.T) {
	root := newRoot(&app{stdout: os.Stdout, stderr: os.Stderr})
	for _, verb := range root.Commands() {
		if verb.Short == "" || verb.GroupID == "" {
			t.Errorf("%s has no short text or group", verb.Name())
		}
		if len(verb.Commands()) == 0 && verb.Flags().HasFlags() && verb.Long == "" {
			t.Errorf("%s has no long text", verb.Name())
		}
	}
	if out := guestctl(t, nil, "", "--help"); out.code != 0 || !strings.Contains(out.stdout, "GUESTD_TARGET") {
		t.Errorf("help: %+v", out)
	}
}
