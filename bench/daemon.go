package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"guestd.internal/client"
)

const (
	// servePatience is how long guestd may take to serve, endPatience how long to end.
	servePatience = 30 * time.Second
	endPatience   = 20 * time.Second
	// dialPause is between two attempts to connect to a guestd that is starting.
	dialPause = 100 * time.Microsecond
)

// daemon is a guestd of our own.
type daemon struct {
	command *exec.Cmd
	folder  string // holds its socket and its state
	log     bytes.Buffer
	ended   chan struct{}
}

// coldStart keeps guestd from starting kernels ahead, beside what is measured.
const coldStart = "--cold-start"

// startDaemon starts guestd, with some more flags, and does not wait until it serves.
func (b *bench) startDaemon(flags ...string) (*daemon, error) {
	folder, err := os.MkdirTemp(b.temp, "d")
	if err != nil {
		return nil, err
	}
	d := &daemon{folder: folder, ended: make(chan struct{})}
	d.command = exec.Command(b.guestd, append([]string{"--listen", d.target(), "--state-dir", d.state(),
		"--user", strconv.Itoa(os.Geteuid()), "--log-level", "warn", "--drain", "0s"}, flags...)...)
	d.command.Stderr = &d.log
	if err := d.command.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	go func() {
		_ = d.command.Wait() // how it ends is no business of ours; stop looks at whether
		close(d.ended)
	}()
	return d, nil
}

func (d *daemon) socket() string { return filepath.Join(d.folder, "s") }
func (d *daemon) target() string { return "unix://" + d.socket() }
func (d *daemon) state() string  { return filepath.Join(d.folder, "state") }
func (d *daemon) pid() int       { return d.command.Process.Pid }

// ready connects as soon as guestd listens, and returns once it says SERVING.
func (d *daemon) ready(ctx context.Context) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, servePatience)
	defer cancel()
	for {
		conn, err := net.Dial("unix", d.socket())
		if err == nil {
			_ = conn.Close() // it was only to see whether somebody listens
			break
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for guestd: %w", context.Cause(ctx))
		case <-d.ended:
			return nil, fmt.Errorf("guestd ended: %s", d.log.String())
		case <-time.After(dialPause):
		}
	}
	c, err := client.Dial(d.target())
	if err != nil {
		return nil, err
	}
	if err := c.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// stop ends guestd and all that it runs, and removes its folder.
func (d *daemon) stop() error {
	_ = d.command.Process.Signal(syscall.SIGTERM) // it may have ended
	var err error
	select {
	case <-d.ended:
	case <-time.After(endPatience):
		_ = d.command.Process.Kill()
		<-d.ended
		err = errors.New("guestd did not end in time and was killed")
	}
	return errors.Join(err, os.RemoveAll(d.folder))
}

// withDaemon gives a job a guestd that serves, and a connection to it.
func (b *bench) withDaemon(ctx context.Context, job func(*daemon, *client.Client) error, flags ...string) error {
	d, err := b.startDaemon(flags...)
	if err != nil {
		return err
	}
	c, err := d.ready(ctx)
	if err == nil {
		err = errors.Join(job(d, c), c.Close())
	}
	return errors.Join(err, d.stop())
}

// memory tells guestd's resident memory now, and the most that it ever was, in bytes.
func (d *daemon) memory() (now, peak int64, err error) { return residentMemory(d.pid()) }

// residentMemory is a process's, now and at most.
func residentMemory(pid int) (now, peak int64, err error) {
	if now, err = memoryField(pid, "status", "VmRSS"); err == nil {
		peak, err = memoryField(pid, "status", "VmHWM")
	}
	return now, peak, err
}

// memoryField is a number of bytes from a file of a process in /proc.
func memoryField(pid int, file, field string) (int64, error) {
	path := fmt.Sprintf("/proc/%d/%s", pid, file)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); name == field {
			return kibibytes(value)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, field)
}

// kibibytes reads "  1234 kB".
func kibibytes(text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 10, 64)
	return n << 10, err
}

// parentOf is the id of a process's parent.
func parentOf(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "PPid:"); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, fmt.Errorf("process %d has no parent", pid)
}
