package main

import (
	"context"
	"errors"

	"guestd.internal/client"
)

// each does something with each path. As coreutils do, it goes on after one that fails and tells
// each failure; the first of them decides the exit code.
func (a *app) each(ctx context.Context, paths []string, do func(context.Context, *client.Client, string) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range paths {
		if err := do(ctx, c, path); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}
