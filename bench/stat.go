package main

import (
	"context"

	"guestd.internal/client"
)

// measureStat is the time of one look at a file, against the shortest call that
// there is.
func measureStat(ctx context.Context, b *bench) (results []result, err error) {
	err = b.withDaemon(ctx, func(_ *daemon, c *client.Client) error {
		samples, err := interleave(max(1, b.scale.stats/10), b.scale.stats,
			timed(func() error {
				_, err := c.Stat(ctx, trueProgram, nil)
				return err
			}),
			timed(func() error {
				_, err := c.Health(ctx, "")
				return err
			}),
		)
		if err == nil {
			results = append(results, latency("Stat", samples[0], "health check", samples[1], atMost(2)))
		}
		return err
	})
	return results, err
}
