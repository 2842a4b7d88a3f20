package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"guestd.internal/client"
)

// Environment variables that guestctl reads.
const (
	envTarget = "GUESTD_TARGET"
	envToken  = "GUESTD_TOKEN"
	envGuestd = "GUESTD_BIN"
)

// app is what every verb works with: the global flags, the standard streams, and the guest.
type app struct {
	target    string
	tokenFile string
	json      bool

	signals               *signalWatch
	stdin, stdout, stderr *os.File

	umask fs.FileMode // of what is written on the host

	cancel     context.CancelCauseFunc // ends the verb
	connection *connectionWatch
	lost       atomic.Bool // output of a process, which the user was told

	mu      sync.Mutex // protects the following: a verb that does not end is left behind
	client  *client.Client
	private *privateGuestd
}

// newApp makes an app whose verb cancel ends.
func newApp(signals *signalWatch, cancel context.CancelCauseFunc) *app {
	a := &app{signals: signals, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, umask: currentUmask(), cancel: cancel}
	a.connection = &connectionWatch{notice: a.notice, cancel: cancel}
	return a
}

// currentUmask is for before anything else makes files: it cannot be read without being changed.
func currentUmask() fs.FileMode {
	mask := syscall.Umask(0o077)
	syscall.Umask(mask)
	return fs.FileMode(mask) & fs.ModePerm
}

// connect returns the guest that the flags name, or a private one.
func (a *app) connect(ctx context.Context) (*client.Client, error) {
	if a.client != nil {
		return a.client, nil
	}
	token, err := a.token()
	if err != nil {
		return nil, err
	}
	// close may come meanwhile, but not before what is to be closed is known.
	a.mu.Lock()
	defer a.mu.Unlock()
	target := a.targetURI()
	if target == "" {
		if a.private, err = startPrivateGuestd(ctx); err != nil {
			return nil, err
		}
		target = a.private.target()
	}
	a.client, err = client.Dial(target, client.WithToken(token), client.WithConnectionWatch(a.connection.changed))
	if err != nil {
		return nil, err
	}
	if a.private != nil {
		if err := a.private.waitReady(ctx, a.client); err != nil {
			return nil, err
		}
		go a.private.watch(a.cancel)
	}
	return a.client, nil
}

// connectLasting is connect for verbs that are about something that outlives the command.
func (a *app) connectLasting(ctx context.Context, what string) (*client.Client, error) {
	if a.targetURI() == "" {
		return nil, fmt.Errorf("%s needs a guest that outlives this command: name it with --target or %s", what, envTarget)
	}
	return a.connect(ctx)
}

func (a *app) targetURI() string {
	if a.target != "" {
		return a.target
	}
	return os.Getenv(envTarget)
}

// token reads the token from --token-file, or the environment; never from an argument, which others
// could see.
func (a *app) token() (string, error) {
	if a.tokenFile == "" {
		return os.Getenv(envToken), nil
	}
	text, err := os.ReadFile(a.tokenFile)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("reading the token: %s is empty", quoted(a.tokenFile))
	}
	return token, nil
}

// close ends the connection and the private guestd.
func (a *app) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	if a.client != nil {
		errs = append(errs, a.client.Close())
	}
	if a.private != nil {
		errs = append(errs, a.private.stop())
	}
	if err := errors.Join(errs...); err != nil {
		a.notice("%s", plain(err))
	}
}

// notice tells the user something on stderr, where it is in no script's way.
func (a *app) notice(format string, args ...any) {
	before, after := "", "\n"
	if isRaw(a.stderr) {
		before, after = "\r\n", "\r\n"
	}
	fmt.Fprintf(a.stderr, before+"guestctl: "+format+after, args...)
}
