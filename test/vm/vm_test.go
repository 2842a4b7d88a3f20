//go:build vm

package vm_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"guestd.internal/client"
	"guestd.internal/test/conformance"
	"guestd.internal/test/vm"
)

// Where `make test-vm` has put things, from this folder.
const (
	parts  = "../../.cache/vm/parts"
	guestd = "../../bin/guestd"
	// In the guest.
	peer       = "/usr/lib/guestd-test/vsockpeer"
	fakeKernel = "/usr/lib/guestd-test/kernel"
)

// bootDeadline is generous: an emulated guest on two busy cores.
const bootDeadline = 3 * time.Minute

// TestMicroVM boots one guest and runs everything in it, in order.
func TestMicroVM(t *testing.T) {
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	guest := boot(interrupted, t)
	// The suite has no context to cancel: an interrupt ends the guest and all of this.
	keep := context.AfterFunc(interrupted, func() {
		_ = guest.Close()
		os.Exit(1)
	})
	defer keep()

	t.Run("HostIsServed", func(t *testing.T) { hostIsServed(t, guest) })
	t.Run("GuestIsRefusedOverLoopback", func(t *testing.T) { guestIsRefused(t, guest) })
	t.Run("CgroupsAreWhole", func(t *testing.T) { cgroupsAreWhole(t, guest) })
	t.Run("Conformance", func(t *testing.T) { conformanceSuite(t, guest) })
}

func boot(ctx context.Context, t *testing.T) *vm.VM {
	t.Helper()
	for path, fix := range map[string]string{parts: "scripts/vm-parts.sh", guestd: "make build"} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v (`%s` makes it; `make test-vm` does all that is needed)", err, fix)
		}
	}
	bin := t.TempDir()
	programs := map[string]string{peer: filepath.Join(bin, "vsockpeer"), fakeKernel: filepath.Join(bin, "kernel")}
	build(ctx, t, "build", "-o", programs[peer], "./vsockpeer")
	build(ctx, t, "test", "-c", "-o", programs[fakeKernel], "guestd.internal/kernel")
	bootCtx, cancel := context.WithTimeout(ctx, bootDeadline)
	defer cancel()
	guest, err := vm.Boot(bootCtx, vm.Config{
		Parts:       parts,
		Guestd:      guestd,
		Programs:    programs,
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

// build has the go command make a static program.
func build(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", args[0], err, out)
	}
}

// hostIsServed reaches the guest as a host program does, and is the control of
// guestIsRefused.
func hostIsServed(t *testing.T, guest *vm.VM) {
	c := dial(t, guest)
	output, err := c.Command("uname", "-n").Output(t.Context())
	if err != nil || string(output) != "guest\n" {
		t.Errorf("uname -n: %q, %v, want \"guest\\n\"", output, err)
	}
}

// guestIsRefused has code in the guest dial guestd over loopback vsock, as the
// guest's root: /dev/vsock, which tells the guest's own CID, is root's.
func guestIsRefused(t *testing.T, guest *vm.VM) {
	c := dial(t, guest)
	attempt := c.Command(peer, strconv.Itoa(vm.Port))
	attempt.User = "root"
	output, err := attempt.Output(t.Context())
	t.Logf("vsockpeer said:\n%s", output)
	if err != nil {
		t.Errorf("vsockpeer: %v, want exit code 0 (1: served; 2: nothing proven)", err)
	}
}

func dial(t *testing.T, guest *vm.VM) *client.Client {
	t.Helper()
	c, err := client.Dial(guest.Target())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// conformanceSuite runs what the suite has for a guest without Python, from
// outside.
func conformanceSuite(t *testing.T, guest *vm.VM) {
	conformance.Run(t, conformance.Target{
		Name: "MicroVM",
		Dial: func(t *testing.T) *grpc.ClientConn {
			conn, err := client.Connect(guest.Target())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		},
		Capabilities: conformance.Capabilities{Root: true, Bash: true, Slow: true},
	})
}
