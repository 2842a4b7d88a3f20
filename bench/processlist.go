package main

import (
	"context"
	"fmt"

	"guestd.internal/client"
)

// measureProcessList is the time to list many processes. They have ended, so that
// the machine does nothing else and each has an exit to tell.
func measureProcessList(ctx context.Context, b *bench) (results []result, err error) {
	err = b.withDaemon(ctx, func(_ *daemon, c *client.Client) error {
		for range b.scale.listed {
			if err := c.Command(trueProgram).Run(ctx); err != nil {
				return err
			}
		}
		samples, err := interleave(2, b.scale.lists, timed(func() error {
			listed := 0
			for _, err := range c.Processes(ctx, client.ProcessFilter{}) {
				if err != nil {
					return err
				}
				listed++
			}
			if listed != b.scale.listed {
				return fmt.Errorf("%d processes are listed instead of %d", listed, b.scale.listed)
			}
			return nil
		}))
		if err != nil {
			return err
		}
		r := timesOf(fmt.Sprintf("List of %d processes", b.scale.listed), seconds, samples[0])
		results = append(results, r.judge(r.Value, atMost(5e-3)))
		return nil
	})
	return results, err
}
