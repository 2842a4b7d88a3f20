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
