package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"guestd.internal/client"
)

// each does something with each path. As coreutils do, it tells a failure at once and goes on; the
// exit code is 125 then. What concerns them all (a signal, a stdout that takes no more, a guest that
// does not answer) ends it.
func (a *app) each(ctx context.Context, paths []string, do func(context.Context, *client.Client, string) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	var result error
	for _, path := range paths {
		err := do(ctx, c, path)
		if err != nil && endsAll(ctx, err) {
			return err
		}
		result = a.noteFailure(ctx, naming(path, err), result)
	}
	return result
}

// naming is an error whose text names what it is about, which of several guestd need not have told.
func naming(name string, err error) error {
	if err == nil || name == "" {
		return err
	}
	// What is about a field of the request may quote what looks like the name, and never is.
	refused, is := errors.AsType[*client.Error](err)
	ofField := is && refused.Field != ""
	// What is below it names it as well.
	if !ofField && strings.Contains(plain(err), strings.TrimSuffix(quoted(name), `"`)) {
		return err
	}
	return fmt.Errorf("%s: %w", quoted(name), err)
}

// endsAll tells whether there is no point in going on with other paths.
func endsAll(ctx context.Context, err error) bool {
	return ctx.Err() != nil || isStdout(err) || errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrUnauthenticated)
}

// noteFailure tells of a failure, if it is one, and gives the result of the whole verb, whose result
// was so far the given one.
func (a *app) noteFailure(ctx context.Context, err, result error) error {
	if err == nil {
		return result
	}
	if message := complaint(ctx, err); message != "" {
		a.notice("%s", message)
	}
	return exitError(exitFailure)
}
