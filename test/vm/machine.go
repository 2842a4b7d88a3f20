package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

const qemu = "qemu-system-x86_64"

func (vm *VM) vhostSocket() string { return vm.path("vhost.sock") }

// deviceArgs tells vhost-device-vsock to serve QEMU on one socket and the host's
// programs on the other.
func (vm *VM) deviceArgs() []string {
	return []string{
		"--guest-cid", fmt.Sprint(guestCID),
		"--socket", vm.vhostSocket(),
		"--uds-path", vm.Socket(),
	}
}

// machineArgs describes the machine. Its memory is shared, since the device reads
// and writes it from its own process; its console goes into a file, which never
// blocks it; a panic ends it.
func (vm *VM) machineArgs(cfg Config) []string {
	kernelLine := []string{
		"console=ttyS0", "quiet", "panic=-1",
		"guestd_args=" + strings.Join(cfg.GuestdArgs, ","),
	}
	return []string{
		"-accel", cfg.Accelerator, "-cpu", "max", "-smp", "2",
		"-m", fmt.Sprint(cfg.MemoryMiB),
		"-object", fmt.Sprintf("memory-backend-memfd,id=mem,size=%dM,share=on", cfg.MemoryMiB),
		"-machine", "q35,memory-backend=mem",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-serial", "file:" + vm.path("console.log"),
		"-chardev", "socket,id=vsock,path=" + vm.vhostSocket(),
		"-device", "vhost-user-vsock-pci,chardev=vsock",
		"-kernel", cfg.Parts + "/vmlinuz",
		"-initrd", vm.path("initramfs"),
		"-append", strings.Join(kernelLine, " "),
	}
}

// retryDelay is between two looks at something that another process makes.
const retryDelay = 20 * time.Millisecond

// awaitSocket waits until path is there.
func awaitSocket(ctx context.Context, path string) error {
	return retry(ctx, func() error {
		_, err := os.Stat(path)
		return err
	})
}

// initMark is what the guest's init writes once the vsock driver is there.
const initMark = "init: starting guestd"

// awaitGuestd waits until guestd accepts connections, the machine has ended, or
// ctx has.
//
// Nothing is dialled before the guest's driver is up: vhost-device-vsock 0.3 was
// seen to stop accepting for good after it had been dialled that early.
func (vm *VM) awaitGuestd(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(vm.running, func() { cancel(context.Cause(vm.running)) })
	defer stop()
	err := retry(ctx, func() error {
		console, err := os.ReadFile(vm.path("console.log"))
		if err == nil && !bytes.Contains(console, []byte(initMark)) {
			err = errors.New("init has not started guestd")
		}
		return err
	})
	if err != nil {
		return err
	}
	return retry(ctx, func() error {
		conn, err := dial(ctx, vm.Socket(), Port)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// retry calls try until it succeeds or ctx ends; then the error holds the cause
// and the last failure.
func retry(ctx context.Context, try func() error) error {
	tick := time.NewTicker(retryDelay)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// An acknowledgement is "OK <number>\n": Firecracker's number is the port that
// the host's side was given, up to ten digits.
const (
	ackMax      = 32
	ackDeadline = 5 * time.Second
)

// dial connects to a vsock port of the guest behind the Unix socket at path. The
// error of a port that nobody listens on is io.EOF or a reset.
//
// The client has a handshake of its own, which is under test here and would
// retry.
func dial(ctx context.Context, path string, port uint32) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := handshake(conn, port); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connecting to the guest's port %d: %w", port, err)
	}
	return conn, nil
}

// handshake asks for port. The answer is read byte by byte: what follows it
// already belongs to the connection's user.
func handshake(conn net.Conn, port uint32) error {
	if err := conn.SetDeadline(time.Now().Add(ackDeadline)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %d\n", port); err != nil {
		return err
	}
	var ack []byte
	for one := make([]byte, 1); !strings.HasSuffix(string(ack), "\n"); ack = append(ack, one[0]) {
		if len(ack) == ackMax {
			return fmt.Errorf("no acknowledgement but %q", ack)
		}
		if _, err := conn.Read(one); err != nil {
			return err
		}
	}
	if !strings.HasPrefix(string(ack), "OK ") {
		return fmt.Errorf("no acknowledgement but %q", ack)
	}
	return conn.SetDeadline(time.Time{})
}
