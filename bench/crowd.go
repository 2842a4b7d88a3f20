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
// ended. One guestd after another is asked: of two that are the same, on the same
// machine, one can take a tenth longer for as long as it lives.
func measureCrowd(ctx context.Context, b *bench) ([]result, error) {
	var ours, floor sample
	for range b.scale.daemons {
		err := b.withDaemon(ctx, func(_ *daemon, c *client.Client) error {
			samples, err := b.crowds(ctx, c)
			if err != nil {
				return err
			}
			ours, floor = append(ours, samples[0]...), append(floor, samples[1]...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	name := fmt.Sprintf("%d times Exec /bin/true at once", b.scale.crowd)
	return []result{latency(name, ours, "os/exec", floor, atMost(1.3))}, nil
}

func (b *bench) crowds(ctx context.Context, c *client.Client) ([]sample, error) {
	warmUp := max(1, b.scale.crowds/4) // guestd learns what bursts there are
	return interleave(warmUp, b.scale.crowds,
		afterRest(timed(func() error {
			return atOnce(b.scale.crowd, func() error { return c.Command(trueProgram).Run(ctx) })
		})),
		afterRest(timed(func() error {
			return atOnce(b.scale.crowd, func() error { return exec.Command(trueProgram).Run() })
		})),
	)
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
