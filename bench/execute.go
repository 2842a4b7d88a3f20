package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"guestd.internal/client"
)

// measureExecute is the time of 1+1 in a Python kernel that is warm, until its last
// event, against the least that can drive such a kernel, and against what most
// programs use; against each in rounds of its own, in which each follows the other.
func measureExecute(ctx context.Context, b *bench) (results []result, err error) {
	jupyter, err := startJupyterClient()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, jupyter.stop()) }()
	lean, err := b.startLeanKernel(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lean.stop()) }()
	err = b.withDaemon(ctx, func(_ *daemon, c *client.Client) error {
		for _, other := range []struct {
			name  string
			run   arm
			limit *limit
		}{
			{"lean client, same kernel", lean.run, atMost(1.3)},
			{"jupyter_client, stock kernel", jupyter.run, atMost(0.5)},
		} {
			samples, err := oneAtATime(max(1, b.scale.executions/10), b.scale.executions,
				timed(func() error { return onePlusOne(ctx, c) }), other.run)
			if err != nil {
				return err
			}
			results = append(results, latency("Execute 1+1", samples[0], other.name, samples[1], other.limit))
		}
		return nil
	}, coldStart)
	return results, err
}

func onePlusOne(ctx context.Context, c *client.Client) error { return runIn(ctx, c, "", "1+1") }

// runIn runs code that has a value in a context.
func runIn(ctx context.Context, c *client.Client, id, code string) error {
	x, err := c.Execute(ctx, client.CodeRequest{Code: code, ContextID: id})
	if err != nil {
		return err
	}
	outcome, err := x.Outcome()
	if err != nil {
		return err
	}
	if _, ok := outcome.Main(); !ok {
		return fmt.Errorf("%q has no result: %+v", code, outcome)
	}
	return nil
}

// leanKernel is a kernel that a guestd of its own has started, in the way that
// guestd does, and that only a lean client drives: that guestd is stopped
// (SIGSTOP), lest it take part.
type leanKernel struct {
	daemon *daemon
	client *leanClient
	runs   int
}

func (b *bench) startLeanKernel(ctx context.Context) (_ *leanKernel, err error) {
	d, err := b.startDaemon(coldStart)
	if err != nil {
		return nil, err
	}
	k := &leanKernel{daemon: d}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.stop())
		}
	}()
	c, err := d.ready(ctx)
	if err != nil {
		return nil, err
	}
	if err = errors.Join(onePlusOne(ctx, c), c.Close()); err != nil {
		return nil, err
	}
	connection, err := findConnection(d.state())
	if err != nil {
		return nil, err
	}
	if k.client, err = dialLean(connection); err != nil {
		return nil, err
	}
	return k, d.command.Process.Signal(syscall.SIGSTOP)
}

// run is an arm. The stopped guestd gets to read what has come for it every now and
// then, so that its socket never fills up, which would hold the kernel back.
func (k *leanKernel) run() (time.Duration, error) {
	const often, reading = 40, 100 * time.Millisecond
	if k.runs++; k.runs%often == 0 {
		process := k.daemon.command.Process
		err := process.Signal(syscall.SIGCONT)
		time.Sleep(reading)
		if err = errors.Join(err, process.Signal(syscall.SIGSTOP)); err != nil {
			return 0, err
		}
	}
	return timed(func() error { return k.client.run("1+1") })()
}

func (k *leanKernel) stop() error {
	var err error
	if k.client != nil {
		err = k.client.close()
	}
	return errors.Join(err, k.daemon.command.Process.Signal(syscall.SIGCONT), k.daemon.stop())
}
