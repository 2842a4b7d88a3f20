package listen

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"guestd.internal/test/need"
)

// helperVariable makes the test binary one of its helper programs.
const helperVariable = "LISTEN_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperVariable) {
	case "dial":
		fmt.Println(knock(os.Args[1]))
		return
	case "serve":
		serveOutsideOnly(os.Args[1])
		return
	}
	before := runtime.NumGoroutine()
	code := m.Run()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		os.Exit(code)
	}
	for deadline := time.Now().Add(10 * time.Second); code == 0 && runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			fmt.Fprintf(os.Stderr, "leaked goroutines:\n%s", buf[:runtime.Stack(buf, true)])
			code = 1
		}
	}
	os.Exit(code)
}

// The answers of knock.
const (
	taken   = "taken"   // the server has sent its HTTP/2 settings
	refused = "refused" // the server has closed the connection without a word
)

// knock connects to a Unix socket and says what the server does.
func knock(path string) string {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	var first [1]byte
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err.Error()
	}
	_, err = conn.Read(first[:])
	switch {
	case err == nil:
		return taken
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return refused
	default:
		return err.Error()
	}
}

// helper is a command that runs the test binary as a helper program. The binary
// is reached through /proc, since its folder is open to its owner only.
func helper(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = []string{helperVariable + "=" + name}
	cmd.Stderr = os.Stderr
	return cmd
}

// knockAs is knock by another user.
func knockAs(t *testing.T, uid uint32, path string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Skip(t, "needs root, to connect as another user")
	}
	cmd := helper(t, "dial", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// socketPath is a path for a socket in a folder that every user may enter.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "listen")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "s")
}

// newHealthServer is a server of the health service behind Credentials.
func newHealthServer(log *slog.Logger) *grpc.Server {
	server := grpc.NewServer(grpc.Creds(Credentials(log)), grpc.ConnectionTimeout(10*time.Second))
	healthv1.RegisterHealthServer(server, health.NewServer())
	return server
}

// serve serves health on l until the test ends.
func serve(t *testing.T, l net.Listener) {
	t.Helper()
	server := newHealthServer(slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve = %v", err)
		}
	})
}

// open opens a listener and serves health on it.
func openAndServe(t *testing.T, address string, trust Trust) *Listener {
	t.Helper()
	a, err := ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(a, trust, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l)
	return l
}

// check makes one call.
func check(t *testing.T, target string) error {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errors.New("no answer"))
	defer cancel()
	_, err = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	return err
}

// serveOutsideOnly is the helper that lives in a pid namespace of its own: it
// serves on path, knocks at its own door, says what came of it, and ends when its
// stdin does.
func serveOutsideOnly(path string) {
	l, err := Open(Address{Kind: Unix, Path: path}, Trust{UnixOutsideOnly: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println(err)
		return
	}
	server := newHealthServer(slog.New(slog.DiscardHandler))
	go server.Serve(l)
	fmt.Println(knock(path))
	io.Copy(io.Discard, os.Stdin)
	server.Stop()
}
