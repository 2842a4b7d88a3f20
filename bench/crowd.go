package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"

	"guestd.internal/client"
)

// measureCrowd is the time until the last of many commands that start at once has
// ended.
func measureCrowd(ctx context.Context, b *bench) (results []result, err error) {
	err = b.withDaemon(ctx, func(_ *daemon, c *client.Client) error {
		samples, err := interleave(1, b.scale.crowds,
			afterRest(timed(func() error {
				return atOnce(b.scale.crowd, func() error { return c.Command(trueProgram).Run(ctx) })
			})),
			afterRest(timed(func() error {
				return atOnce(b.scale.crowd, func() error { return exec.Command(trueProgram).Run() })
			})),
		)
		if err == nil {
			name := fmt.Sprintf("%d times Exec /bin/true at once", b.scale.crowd)
			results = append(results, latency(name, samples[0], "os/exec", samples[1], atMost(1.3)))
		}
		return err
	})
	return results, err
}

// restTime is how long it takes guestd and the kernel to clear away what a crowd leaves.
const restTime = 200 * time.Millisecond

// afterRest is an arm that begins when nothing is left to do of the one before.
func afterRest(a arm) arm {
	return func() (time.Duration, error) {
		time.Sleep(restTime)
		return a()
	}
}

func atOnce(n int, job func() error) error {
	var group errgroup.Group
	for range n {
		group.Go(job)
	}
	return group.Wait()
}
