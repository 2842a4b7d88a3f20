package conformance

import (
	"bytes"
	"context"
	"errors"
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
	"google.golang.org/grpc/test/bufconn"

	"guestd.internal/agent"
	"guestd.internal/client"
	pb "guestd.internal/proto/guestd/v1"
	"guestd.internal/test/firecracker"
	"guestd.internal/test/programs"
)

// targetVariable names the target of TestTarget, as client.Dial takes it.
const targetVariable = "GUESTD_CONFORMANCE_TARGET"

// TestMain fails the run if anything of it outlives it.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leaked(); left != "" {
		_, _ = os.Stderr.WriteString("goroutines are left:\n" + left + "\n")
		code = max(code, 1)
	}
	os.Exit(code)
}

// leaked is the stacks of what runs beside the main goroutine, once all that ends
// by itself has had time to.
func leaked() string {
	var left []string
	for range 200 {
		left = nil
		stacks := make([]byte, 4<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for stack := range strings.SplitSeq(string(stacks), "\n\n") {
			if !strings.Contains(stack, "conformance.TestMain") && !strings.Contains(stack, "os/signal.") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			return ""
		}
		time.Sleep(25 * time.Millisecond)
	}
	return strings.Join(left, "\n\n")
}

// local is what a guestd can do that this test starts on its own machine.
func local() Capabilities {
	_, err := exec.LookPath("bash")
	return Capabilities{Root: os.Geteuid() == 0, Python: true, Bash: err == nil}
}

func TestInProcess(t *testing.T) {
	Run(t, Target{Name: "in process", Dial: inProcess(t), Fresh: freshInProcess, Capabilities: local()})
}

func TestUnixSocket(t *testing.T) {
	program := build(t)
	Run(t, Target{
		Name: "unix socket",
		Dial: dialing("unix://" + spawnGuestd(t, program)),
		Fresh: func(t *testing.T) *grpc.ClientConn {
			return dialing("unix://" + spawnGuestd(t, program))(t)
		},
		Capabilities: local(),
	})
}

func TestFirecrackerSocket(t *testing.T) {
	program := build(t)
	dial := func(t *testing.T) func(*testing.T) *grpc.ClientConn {
		return dialing(machine(t, spawnGuestd(t, program)))
	}
	Run(t, Target{
		Name:         "firecracker socket",
		Dial:         dial(t),
		Fresh:        func(t *testing.T) *grpc.ClientConn { return dial(t)(t) },
		Capabilities: local(),
	})
}

// TestTarget runs the suite against a guestd that is there already.
func TestTarget(t *testing.T) {
	uri := os.Getenv(targetVariable)
	if uri == "" {
		t.Skipf("set %s to the address of a guestd", targetVariable)
	}
	dial := dialing(uri)
	Run(t, Target{Name: uri, Dial: dial, Capabilities: probe(t, dial(t))})
}

// probe asks a guestd what it can do. What it says of itself is held against the
// guest by the cases.
func probe(t *testing.T, conn *grpc.ClientConn) Capabilities {
	t.Helper()
	info, err := pb.NewSystemServiceClient(conn).GetInfo(within(t), &pb.GetInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatalf("GetInfo: %v", err)
	}
	has := func(program string) bool {
		request := &pb.RunRequest{Spec: script(`command -v "$1"`, program)}
		response, err := pb.NewProcessServiceClient(conn).Run(within(t), request)
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
		return response.Exit.GetExitCode() == 0
	}
	return Capabilities{Root: info.Root, Python: has("python3"), Bash: has("bash"), Slow: !has("python3")}
}

// dialing connects to an address as client does, for the generated stubs.
func dialing(uri string) func(t *testing.T) *grpc.ClientConn {
	return func(t *testing.T) *grpc.ClientConn {
		t.Helper()
		conn, err := client.Connect(uri, client.WithConnectTimeout(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeConn(t, conn) })
		return conn
	}
}

// closeConn closes a connection that its case may have closed already.
func closeConn(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	if err := conn.Close(); err != nil && !errors.Is(err, grpc.ErrClientConnClosing) { //nolint:staticcheck // it is what Close returns
		t.Errorf("closing the connection: %v", err)
	}
}

// inProcess starts an agent in this process, which ends with the test.
func inProcess(t *testing.T) func(t *testing.T) *grpc.ClientConn {
	t.Helper()
	a, err := agent.New(agent.Config{StateDir: shortDir(t), Logger: logger(t)})
	if err != nil {
		t.Fatalf("starting the agent: %v", err)
	}
	listener := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- a.ServeListener(listener) }()
	t.Cleanup(func() {
		if err := a.Shutdown(context.Background()); err != nil {
			t.Errorf("shutting down: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return func(t *testing.T) *grpc.ClientConn {
		t.Helper()
		conn, err := grpc.NewClient("passthrough:///in-process",
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeConn(t, conn) })
		return conn
	}
}

func freshInProcess(t *testing.T) *grpc.ClientConn { return inProcess(t)(t) }

// build makes guestd's static binary.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := programs.Build(dir, false, "guestd"); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "guestd")
}

// spawnGuestd starts a guestd, which ends with the test, and returns its socket.
func spawnGuestd(t *testing.T, program string) string {
	t.Helper()
	dir := shortDir(t)
	socket := filepath.Join(dir, "guestd.sock")
	var log bytes.Buffer
	command := exec.Command(program, "--listen", "unix://"+socket, "--state-dir", filepath.Join(dir, "state"))
	command.Stderr = &log
	// Should this process be killed, guestd ends too: once the thread that started it is gone, which is therefore kept.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			ended <- command.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("starting guestd: %v", err)
	}
	t.Cleanup(func() {
		// One that a case has shut down is gone already.
		_ = command.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			t.Errorf("guestd ended badly: %v", err)
		}
		if t.Failed() {
			t.Logf("guestd's log:\n%s", log.String())
		}
	})
	return socket
}

// machine plays a microVM's vsock in front of a guestd's socket, until the test
// ends, and returns the address.
func machine(t *testing.T, backend string) string {
	t.Helper()
	proxy, err := firecracker.Listen(filepath.Join(shortDir(t), "vm.vsock"), backend, client.DefaultPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Errorf("closing the machine's socket: %v", err)
		}
	})
	return proxy.Target()
}

// shortDir is a folder whose path leaves room for the names of sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "guestd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("removing the folder: %v", err)
		}
	})
	return dir
}

// logger writes to the test's output what an operator should look at.
func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}
