package main

import (
	"context"
	"errors"
	"time"

	"guestd.internal/client"
)

const (
	// refillTime is how long guestd is given to have a kernel ready again.
	refillTime = 1500 * time.Millisecond
	// prewarmPatience is how long the server of forked kernels may take to start.
	prewarmPatience = 60 * time.Second
)

// measureContext is the time until a new Python context is ready to run code, with
// a kernel that is there already and with one that is forked then, against a cold
// start; and the memory that a forked kernel adds, against a cold one's.
func measureContext(ctx context.Context, b *bench) (results []result, err error) {
	if _, err := findPython(); err != nil {
		return nil, err
	}
	err = b.withDaemon(ctx, func(d *daemon, warm *client.Client) error {
		if err := awaitForks(ctx, d, warm); err != nil {
			return err
		}
		return b.withDaemon(ctx, func(_ *daemon, cold *client.Client) (err error) {
			var memory []result
			if results, err = b.newContexts(ctx, warm, cold); err == nil {
				memory, err = b.kernelMemory(ctx, warm, cold)
				results = append(results, memory...)
			}
			return err
		}, coldStart)
	}, "--prewarm", "python")
	return results, err
}

// awaitForks returns when new contexts get forked kernels.
func awaitForks(ctx context.Context, d *daemon, c *client.Client) error {
	for deadline := time.Now().Add(prewarmPatience); time.Now().Before(deadline); time.Sleep(settleTime) {
		made, err := c.CreateContext(ctx, client.ContextRequest{})
		if err != nil {
			return err
		}
		parent, err := parentOf(made.PID)
		if err = errors.Join(err, c.DeleteContext(ctx, made.ID)); err != nil {
			return err
		}
		if parent != d.pid() {
			return nil
		}
	}
	return errors.New("guestd forks no kernels")
}

func (b *bench) newContexts(ctx context.Context, warm, cold *client.Client) ([]result, error) {
	samples, err := interleave(1, b.scale.contexts,
		func() (time.Duration, error) {
			time.Sleep(refillTime)
			return newContext(ctx, warm)
		},
		func() (time.Duration, error) {
			// The kernel that is ready goes to somebody else.
			other, err := warm.CreateContext(ctx, client.ContextRequest{})
			if err != nil {
				return 0, err
			}
			took, err := newContext(ctx, warm)
			return took, errors.Join(err, warm.DeleteContext(ctx, other.ID))
		},
		func() (time.Duration, error) { return newContext(ctx, cold) },
		b.coldStockKernel,
	)
	if err != nil {
		return nil, err
	}
	const own = "cold start"
	return []result{
		latency("new context, kernel ready", samples[0], own, samples[2], atMost(0.1)),
		latency("new context, kernel ready", samples[0], "stock kernel, cold start", samples[3], atMost(0.1)),
		latency("new context, kernel forked", samples[1], own, samples[2], nil),
	}, nil
}

func newContext(ctx context.Context, c *client.Client) (time.Duration, error) {
	begun := time.Now()
	made, err := c.CreateContext(ctx, client.ContextRequest{})
	took := time.Since(begun)
	if err != nil {
		return 0, err
	}
	return took, c.DeleteContext(ctx, made.ID)
}

// coldStockKernel is an arm: a stock kernel, from its exec until it answers.
func (b *bench) coldStockKernel() (time.Duration, error) {
	begun := time.Now()
	k, err := b.startStockKernel()
	took := time.Since(begun)
	if err != nil {
		return 0, err
	}
	return took, k.stop()
}

// kernelMemory compares what a kernel takes of the machine's memory when there are
// some, each with its share of the pages that they have in common. A forked kernel
// has libraries in it that the cold one has to import to be its equal.
func (b *bench) kernelMemory(ctx context.Context, warm, cold *client.Client) ([]result, error) {
	const libraries = "import numpy, pandas, matplotlib.pyplot\n1+1"
	var shares [3]float64
	for i, one := range []struct {
		c    *client.Client
		code string
	}{{warm, libraries}, {cold, libraries}, {cold, "1+1"}} {
		var err error
		if shares[i], err = b.shareOfMemory(ctx, one.c, one.code); err != nil {
			return nil, err
		}
	}
	forked := result{Name: "memory of a forked kernel", Unit: sizeInBytes, Value: shares[0]}
	return []result{
		forked.against("cold start, same libraries", shares[1], atMost(0.5)),
		forked.against("cold start, no libraries", shares[2], nil),
	}, nil
}

// shareOfMemory is the mean proportional set size of some new contexts' kernels that
// have run code.
func (b *bench) shareOfMemory(ctx context.Context, c *client.Client, code string) (mean float64, err error) {
	var alive []*client.CodeContext
	defer func() {
		for _, one := range alive {
			err = errors.Join(err, c.DeleteContext(ctx, one.ID))
		}
	}()
	for range b.scale.alive {
		made, err := c.CreateContext(ctx, client.ContextRequest{})
		if err != nil {
			return 0, err
		}
		alive = append(alive, made)
		if err := runIn(ctx, c, made.ID, code); err != nil {
			return 0, err
		}
	}
	for _, one := range alive {
		share, err := memoryField(one.PID, "smaps_rollup", "Pss")
		if err != nil {
			return 0, err
		}
		mean += float64(share) / float64(len(alive))
	}
	return mean, nil
}
