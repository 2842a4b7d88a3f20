//go:build vm

package vm_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	guestdv1 "guestd.internal/proto/guestd/v1"
	"guestd.internal/test/vm"
)

// Where `make test-vm` has put things, from this folder.
const (
	parts  = "../../.cache/vm/parts"
	guestd = "../../bin/guestd"
	peer   = "/usr/lib/guestd-test/vsockpeer" // in the guest
)

// bootDeadline is generous: an emulated guest on two busy cores.
const bootDeadline = 3 * time.Minute

// TestMicroVM boots one guest and runs everything in it, in order.
func TestMicroVM(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	guest := boot(ctx, t)

	t.Run("HostIsServed", func(t *testing.T) { hostIsServed(ctx, t, guest) })
	t.Run("GuestIsRefusedOverLoopback", func(t *testing.T) { guestIsRefused(ctx, t, guest) })
	t.Run("Conformance", func(t *testing.T) { conformance(ctx, t, guest) })
}

func boot(ctx context.Context, t *testing.T) *vm.VM {
	t.Helper()
	for path, fix := range map[string]string{parts: "scripts/vm-parts.sh", guestd: "make build"} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v (`%s` makes it; `make test-vm` does all that is needed)", err, fix)
		}
	}
	helper := filepath.Join(t.TempDir(), "vsockpeer")
	build := exec.CommandContext(ctx, "go", "build", "-o", helper, "./vsockpeer")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building vsockpeer: %v\n%s", err, out)
	}
	bootCtx, cancel := context.WithTimeout(ctx, bootDeadline)
	defer cancel()
	guest, err := vm.Boot(bootCtx, vm.Config{
		Parts:       parts,
		Guestd:      guestd,
		Programs:    map[string]string{peer: helper},
		Accelerator: os.Getenv("VM_ACCEL"),
		Logger:      slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(guest.Logs())
		}
		if err := guest.Close(); err != nil {
			t.Error(err)
		}
	})
	return guest
}

// hostIsServed is the control of guestIsRefused, and shows that it is the guest
// that answers.
func hostIsServed(ctx context.Context, t *testing.T, guest *vm.VM) {
	exit, output := run(ctx, t, guest, "uname", "-n")
	if exit.GetExitCode() != 0 || output != "guest\n" {
		t.Errorf("uname -n: exit %v, output %q, want status 0 and \"guest\\n\"", exit, output)
	}
}

// guestIsRefused has code in the guest dial guestd over loopback vsock.
func guestIsRefused(ctx context.Context, t *testing.T, guest *vm.VM) {
	exit, output := run(ctx, t, guest, peer, fmt.Sprint(vm.Port))
	t.Logf("vsockpeer said:\n%s", output)
	if exit.GetExitCode() != 0 || exit.GetSignal() != 0 {
		t.Errorf("vsockpeer's exit is %v, want status 0 (1: served; 2: nothing proven)", exit)
	}
}

// conformance runs what the suite has for a guest without Python, from outside.
// The suite is a package of its own with its own main, so it runs as one.
func conformance(ctx context.Context, t *testing.T, guest *vm.VM) {
	suite := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run", "^TestTarget$", "./test/conformance")
	suite.Dir = "../.."
	suite.Env = append(os.Environ(), "GUESTD_CONFORMANCE_TARGET="+guest.Target())
	suite.Stdout, suite.Stderr = t.Output(), t.Output()
	// `go test` passes an interrupt on to the test, which a kill would orphan.
	suite.Cancel = func() error { return suite.Process.Signal(os.Interrupt) }
	suite.WaitDelay = 30 * time.Second
	if err := suite.Run(); err != nil {
		t.Errorf("the conformance suite against %s: %v", guest.Target(), err)
	}
}

// run runs a command in the guest to its end and returns its exit and what it
// wrote to stdout and stderr together.
func run(ctx context.Context, t *testing.T, guest *vm.VM, args ...string) (*guestdv1.ProcessExit, string) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///guest",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return vm.Dial(ctx, guest.Socket(), vm.Port)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	command := &guestdv1.Arguments{}
	for _, arg := range args {
		command.Values = append(command.Values, []byte(arg))
	}
	answer, err := guestdv1.NewProcessServiceClient(conn).Run(ctx, &guestdv1.RunRequest{
		RequestId: t.Name(),
		Spec: &guestdv1.ProcessSpec{
			Command: &guestdv1.ProcessSpec_Arguments{Arguments: command},
			Output:  guestdv1.OutputMode_OUTPUT_MODE_MERGED,
			Timeout: durationpb.New(2 * time.Minute),
		},
	})
	if err != nil {
		t.Fatalf("running %q in the guest: %v", args, err)
	}
	var output []byte
	for _, stream := range answer.GetOutputs() {
		output = append(append(output, stream.GetHead()...), stream.GetTail()...)
	}
	return answer.GetExit(), string(output)
}
