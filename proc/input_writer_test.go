package proc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"guestd.internal/internal/outlog"
)

// Each of several clients has positions of its own, which are those of nobody else.
func TestWritersHavePositionsOfTheirOwn(t *testing.T) {
	table := newTable(t)
	p, first, err := table.Exec(t.Context(), withStdin(Spec{Args: []string{"cat"}}), AttachOptions{ReaderID: "first"})
	if err != nil {
		t.Fatal(err)
	}
	write := func(a *Attachment, offset uint64, text string, want uint64) {
		t.Helper()
		if got, err := a.WriteInput(within(t), offset, []byte(text)); err != nil || got != want {
			t.Errorf("writing %q at %d: %d, %v; want %d", text, offset, got, err, want)
		}
	}
	write(first, 0, "one ", 4)
	second, err := p.Attach(AttachOptions{ReaderID: "second"})
	if err != nil {
		t.Fatal(err)
	}
	if at := second.InputOffset(); at != 4 {
		t.Errorf("the second begins at %d", at)
	}
	write(second, 4, "two ", 8)
	write(first, 4, "three ", 10)
	write(second, 4, "two four ", 13) // part of which was taken
	if _, err := p.AppendInput(within(t), []byte("five ")); err != nil {
		t.Fatal(err)
	}
	first.Detach()
	again, err := p.Attach(AttachOptions{ReaderID: "first"})
	if err != nil {
		t.Fatal(err)
	}
	if at := again.InputOffset(); at != 10 {
		t.Errorf("the first comes back at %d", at)
	}
	write(again, 0, "one three six", 13)
	var hole *outlog.OffsetError
	if _, err := again.WriteInput(within(t), 14, []byte("x")); !errors.As(err, &hole) || hole.End != 13 {
		t.Errorf("behind a hole: %v", err)
	}
	var early *InvalidError
	if err := second.CloseInput(12); !errors.As(err, &early) {
		t.Errorf("closing before what was accepted: %v", err)
	}
	if err := second.CloseInput(13); err != nil {
		t.Error(err)
	}
	if got := listen(t, again).text(Stdout); got != "one two three four five six" {
		t.Errorf("got %q", got)
	}
}

// Of clients that have gone without a word not all are remembered, but those that have written are.
func TestWritersThatAreAway(t *testing.T) {
	table := newTable(t)
	p, first, err := table.Exec(t.Context(), withStdin(Spec{Args: []string{"cat"}}), AttachOptions{ReaderID: "first"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.WriteInput(within(t), 0, []byte("mine ")); err != nil {
		t.Fatal(err)
	}
	first.Detach()
	if _, err := p.AppendInput(within(t), []byte("others ")); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxIdleWriters {
		a, err := p.Attach(AttachOptions{ReaderID: "viewer " + strconv.Itoa(i), Mode: outlog.Following})
		if err != nil {
			t.Fatal(err)
		}
		a.Detach()
	}
	p.input.mu.Lock()
	if n := len(p.input.writers); n > maxIdleWriters {
		t.Errorf("%d writers are remembered", n)
	}
	p.input.mu.Unlock()
	again, err := p.Attach(AttachOptions{ReaderID: "first"})
	if err != nil {
		t.Fatal(err)
	}
	if at := again.InputOffset(); at != 5 {
		t.Errorf("it comes back at %d", at)
	}
	if err := again.CloseInput(5); err != nil {
		t.Error(err)
	}
	if got := listen(t, again).text(Stdout); got != "mine others " {
		t.Errorf("got %q", got)
	}
}

// Clients that write side by side, lose their connections and send again what may have been lost bring
// in each of their lines once and in order.
func TestWritersSideBySide(t *testing.T) {
	const writers, lines = 4, 3000
	table := newTable(t)
	p, a, err := table.Exec(t.Context(), withStdin(Spec{Args: []string{"cat"}}), AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() { writeLines(t, p, strconv.Itoa(w), lines) })
	}
	go func() {
		all.Wait()
		if err := p.EndInput(); err != nil {
			t.Error(err)
		}
	}()
	next := make(map[string]int)
	for line := range strings.Lines(listen(t, a).text(Stdout)) {
		writer, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if number != strconv.Itoa(next[writer]) {
			t.Fatalf("writer %q: line %s instead of %d", writer, number, next[writer])
		}
		next[writer]++
	}
	for w := range writers {
		if next[strconv.Itoa(w)] != lines {
			t.Errorf("writer %d: %d lines of %d", w, next[strconv.Itoa(w)], lines)
		}
	}
}

// writeLines is a client that attaches again and again, and sends each time from an earlier position on.
func writeLines(t *testing.T, p *Process, name string, lines int) {
	var text strings.Builder
	for n := range lines {
		fmt.Fprintln(&text, name, n)
	}
	rest := text.String()
	var base uint64
	for begun, done := false, uint64(0); done < uint64(len(rest)); begun = true {
		a, err := p.Attach(AttachOptions{ReaderID: name, FromNow: true, Mode: outlog.Following})
		if err != nil {
			t.Error(err)
			return
		}
		if at := a.InputOffset(); !begun {
			base = at
		} else if at != base+done {
			t.Errorf("writer %s comes back at %d, and had %d", name, at, base+done)
		}
		from := done - min(done, rand.Uint64N(500))
		to := min(uint64(len(rest)), done+1+rand.Uint64N(2000))
		to += uint64(strings.IndexByte(rest[to-1:], '\n')) // whole lines, so that they stay together
		if _, err := a.WriteInput(within(t), base+from, []byte(rest[from:to])); err != nil {
			t.Error(err)
			return
		}
		done = to
		a.Detach()
	}
}
