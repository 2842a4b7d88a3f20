package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"guestd.internal/client"
)

// How long a private guestd may take to serve, and to end.
const (
	privateStartTimeout = 10 * time.Second
	privateStopTimeout  = 5 * time.Second
)

// privateGuestd is a guestd that serves one guestctl only. It is ended by stop; should guestctl die
// without that, the kernel sends it SIGTERM.
type privateGuestd struct {
	dir     string // its socket, state and log; only we may enter
	process *os.Process
	ended   chan struct{}    // closed when the process was reaped
	state   *os.ProcessState // how it ended, once ended is closed
}

// startPrivateGuestd starts guestd on a Unix socket in a folder of its own.
func startPrivateGuestd(ctx context.Context) (_ *privateGuestd, err error) {
	program, err := findGuestd()
	if err != nil {
		return nil, err
	}
	dir, err := makePrivateDir()
	if err != nil {
		return nil, fmt.Errorf("making a folder for a private guestd: %w", err)
	}
	p := &privateGuestd{dir: dir, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := p.start(program); err != nil {
		return nil, fmt.Errorf("starting a private guestd (no target was named): %w", err)
	}
	return p, nil
}

// maxPrivateDir is the longest folder that leaves room for the names of guestd's and its kernels'
// sockets, which the kernel limits to 107 bytes.
const maxPrivateDir = 60

// makePrivateDir makes a folder that only we may enter: where temporary files go, or in /tmp where
// that path is too long for sockets.
func makePrivateDir() (string, error) {
	const pattern = "guestctl-*"
	parent := os.TempDir()
	if len(parent)+len("/guestctl-")+len("1234567890") > maxPrivateDir {
		parent = "/tmp"
	}
	return os.MkdirTemp(parent, pattern) // mode 0700
}

func (p *privateGuestd) start(program string) error {
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program,
		"--listen", p.target(), "--state-dir", filepath.Join(p.dir, "state"),
		"--drain", "0s", "--log-level", "warn", "--log-format", "text")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true, // the terminal's Ctrl-C is for the command, which guestctl passes it on to
		Pdeathsig: syscall.SIGTERM,
	}
	started := make(chan error, 1)
	go func() {
		// The death signal comes when the thread that started the process ends, so this one waits
		// with it.
		runtime.LockOSThread()
		defer close(p.ended)
		err := cmd.Start()
		p.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // the state tells more
			p.state = cmd.ProcessState
		}
	}()
	return <-started
}

func (p *privateGuestd) target() string  { return "unix://" + filepath.Join(p.dir, "guestd.sock") }
func (p *privateGuestd) logPath() string { return filepath.Join(p.dir, "log") }

// waitReady waits until guestd serves, and tells what it said if it ends instead.
func (p *privateGuestd) waitReady(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeoutCause(ctx, privateStartTimeout, errors.New("it took too long"))
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- c.WaitReady(ctx) }()
	select {
	case err := <-ready:
		if err != nil {
			return fmt.Errorf("starting a private guestd: %w", err)
		}
		return nil
	case <-p.ended:
		return fmt.Errorf("starting a private guestd: it ended (%s): %s", p.state, p.lastWords())
	}
}

// watch ends the verb when guestd ends under it. It returns with guestd's end.
func (p *privateGuestd) watch(cancel context.CancelCauseFunc) {
	<-p.ended
	cancel(fmt.Errorf("the private guestd has ended (%s): %s", p.state, p.lastWords()))
}

// lastWords is the end of guestd's log.
func (p *privateGuestd) lastWords() string {
	const most = 2 << 10
	log, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(log[max(0, len(log)-most):]))
}

// stop ends guestd with all that it runs, and removes its folder.
func (p *privateGuestd) stop() error {
	// An error means that it has ended already.
	_ = p.process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(privateStopTimeout)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		_ = p.process.Kill()
		<-p.ended
	}
	return os.RemoveAll(p.dir)
}

// findGuestd finds the program: GUESTD_BIN, beside guestctl, or in PATH.
func findGuestd() (string, error) {
	if program := os.Getenv(envGuestd); program != "" {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%s: %w", envGuestd, err)
		}
		return program, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "guestd")
		if _, err := exec.LookPath(beside); err == nil {
			return beside, nil
		}
	}
	if program, err := exec.LookPath("guestd"); err == nil {
		return program, nil
	}
	return "", fmt.Errorf("no target is named (--target or %s), and no guestd is found to start a private one: "+
		"not in %s, not beside guestctl, not in PATH", envTarget, envGuestd)
}
