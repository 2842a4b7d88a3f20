package main

import (
	"bufio"
	"encoding/json"
	"time"
)

// results is stdout for a verb that prints lines as it finds them, many perhaps. Lines are gathered,
// but for no longer than until the first that comes resultsDelay after the last that was shown; on a
// terminal each is shown at once. Whoever makes it ends it with Flush.
type results struct {
	*bufio.Writer
	delay time.Duration
	shown time.Time
}

// resultsDelay is how long lines are gathered while more of them come.
const resultsDelay = 100 * time.Millisecond

func (a *app) newResults() *results {
	r := &results{Writer: bufio.NewWriterSize(a.stdout, 32<<10), delay: resultsDelay}
	if isTerminal(a.stdout) {
		r.delay = 0
	}
	return r
}

// endLine is for after each line.
func (r *results) endLine() error {
	if now := time.Now(); now.Sub(r.shown) >= r.delay {
		r.shown = now
		return r.Flush()
	}
	return nil
}

// printJSON prints one object on a line of its own.
func (r *results) printJSON(object any) error {
	encoder := json.NewEncoder(r)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(object); err != nil {
		return err
	}
	return r.endLine()
}
