package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"
)

// settleTime is how long a guestd that serves is left alone before its memory is
// looked at.
const settleTime = 100 * time.Millisecond

// measureStart is the time from guestd's exec to its first SERVING over the socket,
// connection included, and the memory that it then holds.
func measureStart(ctx context.Context, b *bench) ([]result, error) {
	var idle []int64
	samples, err := interleave(1, b.scale.starts, func() (time.Duration, error) {
		took, memory, err := b.startOnce(ctx)
		idle = append(idle, memory)
		return took, err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(idle)
	r := timesOf("guestd, exec to SERVING", seconds, samples[0])
	return []result{
		r.judge(r.Value, atMost(20e-3)),
		absolute("guestd, idle memory", sizeInBytes, float64(idle[len(idle)/2]), atMost(20<<20)),
	}, nil
}

func (b *bench) startOnce(ctx context.Context) (took time.Duration, idle int64, err error) {
	begun := time.Now()
	d, err := b.startDaemon()
	if err != nil {
		return 0, 0, err
	}
	c, err := d.ready(ctx)
	took = time.Since(begun)
	if err == nil {
		time.Sleep(settleTime)
		idle, _, err = d.memory()
		err = errors.Join(err, c.Close())
	}
	return took, idle, errors.Join(err, d.stop())
}

// measureSize is how big the static binaries are.
func measureSize(_ context.Context, b *bench) ([]result, error) {
	var results []result
	for _, program := range []struct {
		name, path string
		limit      *limit
	}{
		{"guestd, binary", b.guestd, atMost(20 << 20)},
		{"guestctl, binary", b.guestctl, nil},
	} {
		info, err := os.Stat(program.path)
		if err != nil {
			return results, err
		}
		results = append(results, absolute(program.name, sizeInBytes, float64(info.Size()), program.limit))
	}
	return results, nil
}
