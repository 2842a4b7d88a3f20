package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"guestd.internal/client"
)

// extraMemory is what a transfer of any size may cost guestd, in bytes.
const extraMemory = 32 << 20

// measureStdout is how fast a command's output arrives, from its start to its exit.
// The floor is a process that runs the same command and copies its pipe into a
// socket. A socket into which the command itself writes is far faster than any
// pipe, and shown for information.
func measureStdout(ctx context.Context, b *bench) ([]result, error) {
	// One command on a fresh guestd: it keeps the end of each one's output for ten
	// minutes, which is no cost of a transfer.
	extra, err := b.costInMemory(ctx, func(c *client.Client) error { return b.pourFrom(ctx, c) })
	if err != nil {
		return nil, err
	}
	memory := absolute("stdout: memory beyond idle", sizeInBytes, extra, atMost(extraMemory))
	var samples []sample
	size := strconv.FormatInt(b.size, 10)
	err = b.withDaemon(ctx, func(_ *daemon, c *client.Client) (err error) {
		samples, err = interleave(1, b.scale.streams,
			timed(func() error { return b.pourFrom(ctx, c) }),
			b.with(b.drain, partRelay, size),
			b.with(b.drain, partSend, size),
		)
		return err
	})
	if err != nil {
		return []result{memory}, err
	}
	return []result{
		throughput("stdout", b.size, samples[0], "pipe and Unix socket", samples[1], atLeast(0.5)),
		throughput("stdout", b.size, samples[0], "Unix socket alone", samples[2], nil),
		memory,
	}, nil
}

// pourFrom runs a command that writes b.size bytes, and counts them.
func (b *bench) pourFrom(ctx context.Context, c *client.Client) error {
	var got countingWriter
	command := c.Command(b.self, strconv.FormatInt(b.size, 10))
	command.Env = []string{partVariable + "=" + partPour}
	command.Stdout = &got
	if err := command.Run(ctx); err != nil {
		return err
	}
	return got.expect(b.size)
}

// drain counts what a peer sends, until it has ended.
func (b *bench) drain(p *peer) error {
	var got countingWriter
	err := copyPlainly(&got, p.conn)
	if err = errors.Join(err, p.wait()); err != nil {
		return err
	}
	return got.expect(b.size)
}

// costInMemory tells by how much a job raises guestd's resident memory at its peak,
// over what guestd needs when it has just started.
func (b *bench) costInMemory(ctx context.Context, job func(*client.Client) error) (extra float64, err error) {
	err = b.withDaemon(ctx, func(d *daemon, c *client.Client) error {
		time.Sleep(settleTime)
		idle, _, err := d.memory()
		if err != nil {
			return err
		}
		if err := job(c); err != nil {
			return err
		}
		_, peak, err := d.memory()
		extra = float64(peak - idle)
		return err
	})
	return extra, err
}
