package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	guestdv1 "guestd.internal/proto/guestd/v1"
	"guestd.internal/test/need"
)

// asGuestd makes the test binary guestd itself.
const asGuestd = "GUESTD_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asGuestd) != "" {
		os.Unsetenv(asGuestd)
		main()
	}
	os.Exit(m.Run())
}

// guestd is a running guestd.
type guestd struct {
	cmd    *exec.Cmd
	socket string
	log    *lockedBuffer
	client *grpc.ClientConn
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start starts guestd on a Unix socket, as uid where that is not 0.
func start(t *testing.T, uid uint32, env []string, args ...string) *guestd {
	t.Helper()
	dir, err := os.MkdirTemp("", "guestd-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	g := &guestd{socket: filepath.Join(dir, "s"), log: new(lockedBuffer)}
	args = append([]string{"--listen", "unix://" + g.socket, "--cgroup-root", "none", "--log-level", "debug"}, args...)
	// By way of /proc: the test binary's folder is open to its owner only.
	g.cmd = exec.Command("/proc/self/exe", args...)
	g.cmd.Env = append([]string{asGuestd + "=1", "XDG_RUNTIME_DIR=" + dir}, env...)
	g.cmd.Stderr = g.log
	if uid != 0 {
		if err := os.Chown(dir, int(uid), int(uid)); err != nil {
			t.Fatal(err)
		}
		g.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if g.cmd.ProcessState == nil {
			g.cmd.Process.Kill()
			g.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("guestd's log:\n%s", g.log)
		}
	})
	g.client, err = grpc.NewClient("unix://"+g.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.client.Close() })
	return g
}

// serving waits until guestd answers.
func (g *guestd) serving(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errors.New("guestd does not answer"))
	defer cancel()
	resp, err := healthv1.NewHealthClient(g.client).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil || resp.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Fatalf("health = %v, %v", resp, err)
	}
}

// exitCode waits for guestd's end.
func (g *guestd) exitCode(t *testing.T) int {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- g.cmd.Wait() }()
	select {
	case <-done:
		return g.cmd.ProcessState.ExitCode()
	case <-time.After(30 * time.Second):
		g.cmd.Process.Kill()
		<-done
		t.Fatal("guestd does not end")
		return -1
	}
}

func TestServesAndEndsOnSIGTERM(t *testing.T) {
	g := start(t, 0, nil)
	g.serving(t)
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := g.exitCode(t); code != 0 {
		t.Errorf("exit code = %d", code)
	}
	if _, err := os.Lstat(g.socket); err == nil {
		t.Error("the socket is left behind")
	}
	for _, want := range []string{`"level":"INFO"`, "guestd starts", "listening", "received terminated"} {
		if !strings.Contains(g.log.String(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}

// nohup means that guestd is not to end with its terminal.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	ignored := []os.Signal{syscall.SIGHUP, syscall.SIGINT}
	signal.Ignore(ignored...)
	g := start(t, 0, nil)
	signal.Notify(make(chan os.Signal, 1), ignored...) // or they would stay ignored here
	signal.Reset(ignored...)
	g.serving(t)
	for _, s := range append(ignored, syscall.SIGTERM) {
		if err := g.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if s != syscall.SIGTERM {
			g.serving(t)
		}
	}
	if code := g.exitCode(t); code != 0 || !strings.Contains(g.log.String(), "received terminated") {
		t.Errorf("exit code = %d, log %s", code, g.log.String())
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	g := start(t, 0, nil, "--drain", "10s")
	g.serving(t)
	processes := guestdv1.NewProcessServiceClient(g.client)
	run := make(chan error, 1)
	go func() {
		_, err := processes.Run(t.Context(), &guestdv1.RunRequest{Spec: &guestdv1.ProcessSpec{
			User:    "0",
			Command: &guestdv1.ProcessSpec_Shell{Shell: &guestdv1.ShellLine{Line: []byte("trap '' TERM; while :; do sleep 1000; done")}},
		}})
		run <- err
	}()
	for {
		list, err := processes.List(t.Context(), &guestdv1.ProcessServiceListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.GetProcesses()) > 0 {
			break
		}
		select {
		case err := <-run:
			t.Fatal(err)
		default:
		}
	}
	began := time.Now()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(g.log.String(), "shutting down") {
		time.Sleep(time.Millisecond)
	}
	if err := g.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := g.exitCode(t); code != 0 {
		t.Errorf("exit code = %d", code)
	}
	<-run
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("took %v; the drain alone is 10 s", took)
	}
}

func TestShutdownCallEndsGuestd(t *testing.T) {
	g := start(t, 0, nil)
	g.serving(t)
	if _, err := guestdv1.NewSystemServiceClient(g.client).Shutdown(t.Context(), &guestdv1.ShutdownRequest{}); err != nil {
		t.Fatal(err)
	}
	if code := g.exitCode(t); code != 0 {
		t.Errorf("exit code = %d", code)
	}
}

func TestTellsItsSupervisor(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "n"), fmt.Sprintf("@guestd-test-%d", os.Getpid())} {
		supervisor, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer supervisor.Close()
		if err := supervisor.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		next := func() string {
			buf := make([]byte, 256)
			n, err := supervisor.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			return string(buf[:n])
		}
		g := start(t, 0, []string{"NOTIFY_SOCKET=" + name})
		if got := next(); got != "READY=1" {
			t.Errorf("first message = %q", got)
		}
		g.serving(t)
		if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if got := next(); got != "STOPPING=1" {
			t.Errorf("second message = %q", got)
		}
		if code := g.exitCode(t); code != 0 {
			t.Errorf("exit code = %d", code)
		}
	}
}

func TestWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Skip(t, "needs root, to start guestd as somebody else")
	}
	const uid = 65534
	g := start(t, uid, nil)
	g.serving(t) // root may connect
	info, err := guestdv1.NewSystemServiceClient(g.client).GetInfo(t.Context(), &guestdv1.GetInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if info.GetRoot() || info.GetDefaultUser() == "root" {
		t.Errorf("root = %t, default user = %q", info.GetRoot(), info.GetDefaultUser())
	}
	run, err := guestdv1.NewProcessServiceClient(g.client).Run(t.Context(), &guestdv1.RunRequest{Spec: &guestdv1.ProcessSpec{
		Command: &guestdv1.ProcessSpec_Arguments{Arguments: &guestdv1.Arguments{Values: [][]byte{[]byte("id"), []byte("-u")}}},
		Cwd:     []byte("/"),
	}})
	if err != nil || string(run.GetOutputs()[0].GetHead()) != "65534\n" {
		t.Errorf("id -u = %v, %v", run, err)
	}
	// The files of a process that is not dumpable belong to root (proc(5)).
	var stat syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d/environ", g.cmd.Process.Pid), &stat); err != nil {
		t.Fatal(err)
	}
	if stat.Uid != 0 {
		t.Errorf("/proc/PID/environ belongs to %d: guestd's memory is open to its user", stat.Uid)
	}
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := g.exitCode(t); code != 0 {
		t.Errorf("exit code = %d", code)
	}
}

func TestCannotListen(t *testing.T) {
	g := start(t, 0, nil, "--listen", "unix:///no/such/folder/s")
	if code := g.exitCode(t); code != exitFailure {
		t.Errorf("exit code = %d", code)
	}
	if !strings.Contains(g.log.String(), "/no/such/folder/s") {
		t.Error("the log does not name the address")
	}
}
