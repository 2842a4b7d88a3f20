// Package vm boots a small Linux guest with guestd in it, under QEMU, with a real
// virtio-vsock device that is reached as Firecracker's is: through a Unix socket
// of the host and its "CONNECT port" handshake. It is for tests alone.
//
// It does not fetch anything (scripts/vm-parts.sh does), does not build guestd
// (make does), and does not speak gRPC: whoever has a VM dials its Target.
//
// A VM owns two processes, vhost-device-vsock and QEMU, the goroutine that
// started them, and a folder with its sockets, image and console log. Close ends
// and removes all of it. Should the program die without Close, the kernel kills
// both processes.
package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Port is the vsock port that guestd listens on in the guest.
const Port = 5005

// guestCID is the guest's address. vhost-device-vsock emulates the host's side in
// its own process, so that guests with the same one do not meet.
const guestCID = 3

// logTail is how much of each log's end an error carries, in bytes.
const logTail = 16 << 10

// Config says what to boot. Parts and Guestd are needed.
type Config struct {
	Parts      string            // the folder that scripts/vm-parts.sh filled
	Guestd     string            // the static guestd binary
	GuestdArgs []string          // its arguments, without blanks and commas; nil: --listen vsock://:5005
	Programs   map[string]string // further static programs: path in the guest to path here
	MemoryMiB  int               // the guest's memory; 0: 512
	Logger     *slog.Logger      // nil: discards

	// Accelerator is QEMU's: "tcg" (emulation, the default) or "kvm". There is no
	// probing: /dev/kvm may be there, create machines and yet not run one, as in
	// many nested machines, and emulation works everywhere.
	Accelerator string
}

// VM is a running guest.
type VM struct {
	dir    string
	log    *slog.Logger
	close  func() error
	cancel context.CancelCauseFunc // ends both processes
	ended  chan struct{}           // closed once both are gone and reaped

	// running ends with the machine; its cause says why. It is the life of the
	// processes, not a caller's context.
	running context.Context
}

// errClosed is the cause of an end that Close asked for.
var errClosed = errors.New("the virtual machine was closed")

// Boot starts a guest and waits until guestd accepts connections in it. Emulated,
// that takes 5 to 10 seconds on two cores; ctx bounds it. The error of a guest
// that does not come up carries the end of its console. After a nil error the
// caller must call Close.
func Boot(ctx context.Context, cfg Config) (*VM, error) {
	cfg.MemoryMiB = cmp.Or(cfg.MemoryMiB, 512)
	if cfg.GuestdArgs == nil {
		cfg.GuestdArgs = []string{"--listen", fmt.Sprintf("vsock://:%d", Port)}
	}
	cfg.Accelerator = cmp.Or(cfg.Accelerator, "tcg")
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	// A socket's path has at most 107 bytes, so the folder's name is short.
	dir, err := os.MkdirTemp("", "guestvm")
	if err != nil {
		return nil, fmt.Errorf("making the virtual machine's folder: %w", err)
	}
	running, cancel := context.WithCancelCause(context.Background())
	vm := &VM{dir: dir, log: cfg.Logger, running: running, cancel: cancel, ended: make(chan struct{})}
	vm.close = sync.OnceValue(vm.stop)
	if err := vm.writeImage(cfg); err != nil {
		cancel(err)
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go vm.run(cfg)

	began := time.Now()
	if err := vm.awaitGuestd(ctx); err != nil {
		err = fmt.Errorf("booting the guest: %w\n%s", err, vm.Logs())
		return nil, errors.Join(err, vm.Close())
	}
	vm.log.Info("the guest serves", "after", time.Since(began).Round(time.Millisecond))
	return vm, nil
}

// Socket returns the path of the Unix socket that leads into the guest.
func (vm *VM) Socket() string { return vm.path("vm.vsock") }

// Target returns guestd's address in the form that the client dials.
func (vm *VM) Target() string { return fmt.Sprintf("firecracker://%s?port=%d", vm.Socket(), Port) }

// Logs returns the ends of what the guest wrote to its console (the kernel, init
// and guestd) and of what QEMU and the device said, at most 16 KiB of each.
func (vm *VM) Logs() string {
	return fmt.Sprintf("--- the end of the guest's console ---\n%s\n--- the end of the host's messages ---\n%s",
		tail(vm.path("console.log")), tail(vm.path("host.log")))
}

func tail(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-logTail), io.SeekStart)
	}
	content, err := io.ReadAll(io.LimitReader(f, logTail))
	if err != nil {
		return err.Error()
	}
	return strings.ToValidUTF8(string(content), "\uFFFD")
}

func (vm *VM) path(name string) string { return filepath.Join(vm.dir, name) }

// Close ends the guest and removes its files. It returns once both processes are
// gone. Further calls do nothing and return the same.
func (vm *VM) Close() error { return vm.close() }

func (vm *VM) stop() error {
	vm.cancel(errClosed)
	<-vm.ended
	err := os.RemoveAll(vm.dir)
	if cause := context.Cause(vm.running); !errors.Is(cause, errClosed) {
		err = errors.Join(cause, err)
	}
	return err
}

func (vm *VM) writeImage(cfg Config) error {
	f, err := os.Create(vm.path("initramfs"))
	if err != nil {
		return err
	}
	err = writeImage(f, cfg.Parts, cfg.Guestd, cfg.Programs)
	return errors.Join(err, f.Close())
}

// run starts the device and then the machine, and waits for both. When one ends,
// the other is ended.
//
// PR_SET_PDEATHSIG goes by the thread that forked, so that thread must live as
// long as the children: the goroutine keeps it for itself.
func (vm *VM) run(cfg Config) {
	defer close(vm.ended)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var children sync.WaitGroup
	defer children.Wait()

	err := vm.start(&children, filepath.Join(cfg.Parts, "vhost-device-vsock"), vm.deviceArgs()...)
	if err == nil {
		// QEMU gives up at once when the device's socket is not there yet.
		err = awaitSocket(vm.running, vm.vhostSocket())
	}
	if err == nil {
		err = vm.start(&children, qemu, vm.machineArgs(cfg)...)
	}
	if err != nil {
		vm.cancel(err)
	}
}

// start starts a program that SIGTERM ends when the machine is closed, SIGKILL
// three seconds later, and the kernel when this thread dies. Its end, whatever
// the reason, closes the machine. Its messages go into the machine's host.log.
func (vm *VM) start(children *sync.WaitGroup, program string, args ...string) error {
	messages, err := os.OpenFile(vm.path("host.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer messages.Close()
	cmd := exec.CommandContext(vm.running, program, args...)
	cmd.Stdout, cmd.Stderr = messages, messages
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	// A group of their own keeps the terminal's Ctrl-C for the test, which then
	// ends them in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", filepath.Base(program), err)
	}
	vm.log.Debug("started", "program", filepath.Base(program), "pid", cmd.Process.Pid)
	children.Go(func() {
		err := cmd.Wait()
		vm.cancel(fmt.Errorf("%s ended: %w", filepath.Base(program), cmp.Or(err, errors.New("status 0"))))
	})
	return nil
}
