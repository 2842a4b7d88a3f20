package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// reconnectPatience is how long a reader goes on trying to come back after its connection broke:
// guestd keeps its place for as long, since requests leave reconnect_grace at its default.
const reconnectPatience = time.Minute

// comeBack opens a new stream after one broke, until guestd answers or patience ends, and tells whoever
// watches the connection of both.
func (c *Client) comeBack(ctx context.Context, broke error, open func() error) error {
	c.watch(broke)
	defer c.watch(nil)
	deadline := time.Now().Add(reconnectPatience)
	backoff := minBackoff
	for {
		err := open()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errors.ErrUnsupported):
			return broke // this guestd cannot be come back to
		case !broken(err):
			return fmt.Errorf("coming back after %w: %w", broke, err)
		case time.Now().After(deadline):
			return fmt.Errorf("the connection was lost, and did not come back: %w", err)
		}
		if !pause(ctx, backoff) {
			return context.Cause(ctx)
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// futilePause is the longest pause before coming back over links that are of no use, and how long one
// has to live to be of some.
const futilePause = time.Second

// futility slows coming back down over links that break before they have carried anything: guestd, or
// something between, lets nothing but greetings through.
type futility struct {
	since   time.Time // zero while links are of use
	backoff time.Duration
}

// pause is for the end of a link that has lived for so long, and tells whether to come back at all.
func (f *futility) pause(ctx context.Context, lived time.Duration, useful bool) error {
	if useful || lived >= futilePause {
		*f = futility{}
		return nil
	}
	if f.since.IsZero() {
		*f = futility{time.Now(), minBackoff}
		return nil
	}
	if time.Since(f.since) > reconnectPatience {
		return errors.New("the connection breaks whenever it has come back")
	}
	if !pause(ctx, f.backoff) {
		return context.Cause(ctx)
	}
	f.backoff = min(2*f.backoff, futilePause)
	return nil
}
