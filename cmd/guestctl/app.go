package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

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

	client  *client.Client
	private *privateGuestd
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
	target := a.targetURI()
	if target == "" {
		if a.private, err = startPrivateGuestd(ctx); err != nil {
			return nil, err
		}
		target = a.private.target()
	}
	a.client, err = client.Dial(target, client.WithToken(token))
	if err != nil {
		return nil, err
	}
	if a.private != nil {
		if err := a.private.waitReady(ctx, a.client); err != nil {
			return nil, err
		}
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
		return "", fmt.Errorf("reading the token: %s is empty", a.tokenFile)
	}
	return token, nil
}

// close ends the connection and the private guestd.
func (a *app) close() {
	var errs []error
	if a.client != nil {
		errs = append(errs, a.client.Close())
	}
	if a.private != nil {
		errs = append(errs, a.private.stop())
	}
	if err := errors.Join(errs...); err != nil {
		a.notice("%v", err)
	}
}

// notice tells the user something on stderr, where it is in no script's way.
func (a *app) notice(format string, args ...any) {
	fmt.Fprintf(a.stderr, "guestctl: "+format+"\n", args...)
}
