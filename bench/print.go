package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"guestd.internal/client"
)

const (
	// printed is how many bytes of lines code prints, at most.
	printed = 100_000_000
	// kernelMemory is what that may cost the kernel, in bytes.
	kernelMemory = 100_000_000
)

// measurePrint is how fast the output of print, a line at a time, arrives, from the
// request to the last event, against a stock kernel whose output nobody looks at;
// and what it costs in memory.
func measurePrint(ctx context.Context, b *bench) (results []result, err error) {
	stock, err := b.startStockKernel()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stock.stop()) }()
	size := min(b.size, printed)
	line := strings.Repeat("0123456789", 10)[:99] + "\n"
	code := fmt.Sprintf("for _ in range(%d): print(%q)", size/int64(len(line)), line[:len(line)-1])
	size = size / int64(len(line)) * int64(len(line))
	err = b.withDaemon(ctx, func(d *daemon, c *client.Client) error {
		ours := func() error { return printLines(ctx, c, code, line, size) }
		memory, err := memoryOfPrinting(ctx, d, c, ours) // the warm-up of our arm
		if err != nil {
			return err
		}
		samples, err := interleave(0, b.scale.prints, timed(ours), timed(func() error { return stock.print(code, size) }))
		if err == nil {
			results = append(results, throughput("print, line by line", size, samples[0],
				"stock kernel, null reader", samples[1], atLeast(1)))
		}
		results = append(results, memory...)
		return err
	}, coldStart)
	return results, err
}

// memoryOfPrinting is what the first run of a job costs at its peak, over what
// there was before.
func memoryOfPrinting(ctx context.Context, d *daemon, c *client.Client, job func() error) ([]result, error) {
	if err := onePlusOne(ctx, c); err != nil {
		return nil, err
	}
	kernel := 0
	for one, err := range c.Contexts(ctx, client.ContextFilter{}) {
		if err != nil {
			return nil, err
		}
		kernel = one.PID
	}
	time.Sleep(settleTime)
	guestd, _, err := d.memory()
	if err != nil {
		return nil, err
	}
	before, _, err := residentMemory(kernel)
	if err != nil {
		return nil, err
	}
	if err := job(); err != nil {
		return nil, err
	}
	_, guestdPeak, err := d.memory()
	if err != nil {
		return nil, err
	}
	_, peak, err := residentMemory(kernel)
	return []result{
		absolute("print: guestd's memory beyond idle", sizeInBytes, float64(guestdPeak-guestd), atMost(extraMemory)),
		absolute("print: the kernel's memory beyond idle", sizeInBytes, float64(peak-before), atMost(kernelMemory)),
	}, err
}

// printLines runs code that prints a line again and again, and wants exactly that.
func printLines(ctx context.Context, c *client.Client, code, line string, size int64) error {
	x, err := c.Execute(ctx, client.CodeRequest{Code: code, Timeout: -1})
	if err != nil {
		return err
	}
	var got int64
	for event, err := range x.Events() {
		if err != nil {
			return err
		}
		switch d := event.Detail.(type) {
		case client.Text:
			if !isRepeated(d.Text, line, int(got%int64(len(line)))) {
				return fmt.Errorf("what came at %d is not what was printed", got)
			}
			got += int64(len(d.Text))
		case client.Finished:
			if d.Status != client.ExecutionOK {
				return fmt.Errorf("printing ended %v", d.Status)
			}
		}
	}
	if got != size {
		return fmt.Errorf("%d bytes came instead of %d", got, size)
	}
	return nil
}

// isRepeated tells whether text is a piece of a line's repetition, from its offset on.
func isRepeated(text, line string, offset int) bool {
	for text != "" {
		want := line[offset:]
		n := min(len(want), len(text))
		if text[:n] != want[:n] {
			return false
		}
		text, offset = text[n:], 0
	}
	return true
}

// print runs code that prints, and does nothing with what comes but to see that it
// is not too little.
func (k *stockKernel) print(code string, size int64) error {
	before := k.client.received
	if err := k.client.run(code); err != nil {
		return err
	}
	if got := k.client.received - before; got < size {
		return fmt.Errorf("the stock kernel sent %d bytes, less than the %d that were printed", got, size)
	}
	return nil
}
