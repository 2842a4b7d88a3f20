package main

import (
	"runtime"
	"slices"
	"time"
)

// An arm is one of the things that a measure compares. It does the job once and
// tells how long that took: it times itself, since preparing does not count.
type arm func() (time.Duration, error)

// timed is an arm of which everything counts.
func timed(job func() error) arm {
	return func() (time.Duration, error) {
		begun := time.Now()
		err := job()
		return time.Since(begun), err
	}
}

// sample is what one arm took, round by round.
type sample []time.Duration

// interleave runs all arms in each round, another one first each time, and returns
// a sample for each. The warm-up rounds before do not count.
func interleave(warmUp, rounds int, arms ...arm) ([]sample, error) {
	samples := make([]sample, len(arms))
	for round := range warmUp + rounds {
		for i := range arms {
			which := (i + round) % len(arms)
			took, err := arms[which]()
			if err != nil {
				return nil, err
			}
			if round >= warmUp {
				samples[which] = append(samples[which], took)
			}
		}
	}
	return samples, nil
}

// oneAtATime is interleave for arms that make one call at a time. guestd serves such calls
// with one processor for its goroutines, and this process has one for them, too: the
// client is tuned like the server. All arms have it.
func oneAtATime(warmUp, rounds int, arms ...arm) ([]sample, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	return interleave(warmUp, rounds, arms...)
}

// quantile is the sample's value at q, 0 to 1; the median is at 0.5.
func (s sample) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	part := at - float64(low)
	return sorted[low] + time.Duration(part*float64(sorted[high]-sorted[low]))
}

func (s sample) median() time.Duration { return s.quantile(0.5) }
