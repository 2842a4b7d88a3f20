package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// When a transfer's progress is shown: not before so long, and so often.
const (
	progressDelay    = 500 * time.Millisecond
	progressInterval = 200 * time.Millisecond
)

// progress shows how far a transfer has got, in one line of a terminal that is drawn anew. Its one
// goroutine ends with end.
type progress struct {
	name  string
	total uint64 // 0 is not known
	out   *os.File
	start time.Time
	stop  chan struct{}
	done  chan struct{}

	mu      sync.Mutex // protects the following
	count   uint64
	entries uint64 // of a tree
}

// newProgress begins to show a transfer on stderr; where that is no terminal, or quiet is set,
// nothing is shown.
func (a *app) newProgress(name string, total uint64, quiet bool) *progress {
	p := &progress{name: quoteUnprintable(name), total: total, out: a.stderr, start: time.Now()}
	if quiet || !isTerminal(a.stderr) {
		return p
	}
	p.stop, p.done = make(chan struct{}), make(chan struct{})
	go p.draw()
	return p
}

// reader counts what is read through it.
func (p *progress) reader(r io.Reader) io.Reader { return &countingReader{r, p} }

// bytes is how much was read so far.
func (p *progress) bytes() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

type countingReader struct {
	io.Reader
	progress *progress
}

// Read implements io.Reader.
func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.progress.mu.Lock()
	c.progress.count += uint64(n)
	c.progress.mu.Unlock()
	return n, err
}

// set says how far the transfer of a tree has got.
func (p *progress) set(entries, bytes uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries, p.count = entries, bytes
}

func (p *progress) draw() {
	defer close(p.done)
	timer := time.NewTimer(progressDelay)
	defer timer.Stop()
	shown := false
	for {
		select {
		case <-timer.C:
			shown = true
			p.show("")
			timer.Reset(progressInterval)
		case <-p.stop:
			if shown {
				p.show("\n")
			}
			return
		}
	}
}

func (p *progress) show(end string) {
	p.mu.Lock()
	count, name := p.count, p.name
	if p.entries > 0 {
		name = fmt.Sprintf("%s of %s", counted(p.entries), p.name)
	}
	p.mu.Unlock()
	width := 80
	if size, ok := terminalSize(p.out); ok {
		width = size.Columns
	}
	// A terminal that is gone shows nothing.
	_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s%s", progressLine(name, count, p.total, time.Since(p.start), width-1), end)
}

// end draws the last state and ends the line.
func (p *progress) end() {
	if p.stop == nil {
		return
	}
	close(p.stop)
	<-p.done
}

// progressLine is "name  45%  12.3 MiB  5.6 MiB/s  00:12 ETA", with the name cut to what width
// leaves for it. Without a total, and once the end is reached, the time is the one that passed.
func progressLine(name string, count, total uint64, elapsed time.Duration, width int) string {
	rate := float64(count) / max(elapsed.Seconds(), 1e-3)
	percent, clock := "", clockTime(elapsed)
	if total > 0 {
		percent = fmt.Sprintf("%3d%%  ", min(100, count*100/total))
		if count < total {
			clock = "--:-- ETA"
			if rate > 0 {
				clock = clockTime(time.Duration(float64(total-count)/rate*float64(time.Second))) + " ETA"
			}
		}
	}
	figures := fmt.Sprintf("  %s%s  %s/s  %s", percent, byteCount(float64(count)), byteCount(rate), clock)
	return cutName(name, width-utf8.RuneCountInString(figures)) + figures
}

// cutName fits a name into a width, with blanks or an ellipsis.
func cutName(name string, width int) string {
	const least = 8
	width = max(width, least)
	runes := []rune(name)
	if len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return name + strings.Repeat(" ", width-len(runes))
}

// byteCount is a number of bytes with the unit that suits it.
func byteCount(n float64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d B", int(n))
	}
	for _, unit := range []string{"KiB", "MiB", "GiB"} {
		if n /= step; n < step {
			return fmt.Sprintf("%.1f %s", n, unit)
		}
	}
	return fmt.Sprintf("%.1f TiB", n/step)
}

// clockTime is mm:ss, or h:mm:ss.
func clockTime(d time.Duration) string {
	const most = 99 * time.Hour
	if d > most || d < 0 {
		return "--:--"
	}
	seconds := int(d.Seconds() + 0.5)
	if seconds >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
	}
	return fmt.Sprintf("%02d:%02d", seconds/60, seconds%60)
}
