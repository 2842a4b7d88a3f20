package kernel

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func attach(t *testing.T, l *eventLog, o ReaderOptions) *EventReader {
	t.Helper()
	r, err := l.attach(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// read takes what is there for a reader from the given event on, without waiting.
func read(t *testing.T, l *eventLog, from uint64) []Event {
	t.Helper()
	r := attach(t, l, ReaderOptions{From: from})
	defer r.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrNoProgress)
	var events []Event
	for {
		event, err := r.Next(ctx)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrNoProgress) {
			return events
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, event)
	}
}

func TestLogMergesWhatNobodyHasSeen(t *testing.T) {
	l := newEventLog(1<<20, 0)
	l.append(Stdout{Text: "a"})
	l.append(Stdout{Text: "b"})
	l.append(Stderr{Text: "c"})
	l.append(Stdout{Text: "d"})
	events := read(t, l, 0)
	if len(events) != 3 || events[0].Body != (Stdout{Text: "ab"}) || events[1].Body != (Stderr{Text: "c"}) || events[2].Body != (Stdout{Text: "d"}) {
		t.Fatalf("%+v", events)
	}
	l.append(Stdout{Text: "e"})
	if again := read(t, l, 3); len(again) != 2 || again[0].Body != (Stdout{Text: "d"}) || again[1].Body != (Stdout{Text: "e"}) {
		t.Errorf("an event that was seen has changed: %+v", again)
	}
	l.append(Stdout{})
	if n := len(read(t, l, 0)); n != 4 {
		t.Errorf("empty text became an event: %d", n)
	}
}

func TestLogSplitsTextBetweenCharacters(t *testing.T) {
	l := newEventLog(8<<20, 0)
	text := "x" + strings.Repeat("é😀", 50_000)
	l.append(Stdout{Text: text})
	var got string
	for _, event := range read(t, l, 0) {
		s := event.Body.(Stdout).Text
		if !utf8.ValidString(s) || len(s) > maxText {
			t.Errorf("an event of %d bytes, valid %v", len(s), utf8.ValidString(s))
		}
		got += s
	}
	if got != text {
		t.Error("text changed")
	}
}

func TestLogTellsWhatItDropped(t *testing.T) {
	const limit = 10_000
	l := newEventLog(limit, -1)
	random := rand.New(rand.NewPCG(1, 2))
	written := map[Stream]uint64{}
	l.append(Accepted{})
	for i := range 2000 {
		s := strings.Repeat("y", 1+random.IntN(300))
		switch random.IntN(3) {
		case 0:
			l.append(Stdout{Text: s})
			written[StreamStdout] += uint64(len(s))
		case 1:
			l.append(Stderr{Text: s})
			written[StreamStderr] += uint64(len(s))
		case 2:
			l.append(ClearOutput{Wait: i%2 == 0})
		}
		if i%500 == 0 {
			l.append(Result{})
		}
	}
	l.append(Finished{})
	got := map[Stream]uint64{}
	var last uint64
	results, gaps := 0, 0
	for _, event := range read(t, l, 0) {
		if event.Number <= last {
			t.Errorf("number %d after %d", event.Number, last)
		}
		last = event.Number
		switch body := event.Body.(type) {
		case Stdout:
			got[StreamStdout] += uint64(len(body.Text))
		case Stderr:
			got[StreamStderr] += uint64(len(body.Text))
		case Gap:
			got[body.Stream] += body.Bytes
			gaps++
		case Result:
			results++
		}
	}
	for stream, n := range written {
		if got[stream] != n {
			t.Errorf("%s: %d bytes and gaps, %d written", stream, got[stream], n)
		}
	}
	if results != 4 || gaps == 0 || gaps > 10 || l.retained() > 2*limit {
		t.Errorf("%d results, %d gaps, %d bytes kept", results, gaps, l.retained())
	}
}

func TestLogBlocksForItsHolders(t *testing.T) {
	l := newEventLog(1000, time.Hour)
	fill := func() { l.append(Result{MetadataJSON: make([]byte, 2000)}) }
	if blocked, _ := l.blocked(); blocked {
		t.Error("an empty log blocks")
	}
	fill()
	if blocked, until := l.blocked(); !blocked || until.IsZero() {
		t.Error("does not wait for its first reader")
	}
	slow, fast := attach(t, l, ReaderOptions{}), attach(t, l, ReaderOptions{})
	if blocked, until := l.blocked(); !blocked || !until.IsZero() {
		t.Error("does not wait for its readers")
	}
	next := func(r *EventReader) {
		if _, err := r.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	next(fast)
	next(slow)
	if blocked, _ := l.blocked(); !blocked {
		t.Error("what was handed out counts as dealt with")
	}
	fill()
	next(fast)
	if blocked, _ := l.blocked(); !blocked {
		t.Error("does not wait for the slow reader")
	}
	slow.Close()
	fast.Close()
	if blocked, _ := l.blocked(); !blocked {
		t.Error("does not keep the last reader's place")
	}
	l.unbind()
	if blocked, _ := l.blocked(); blocked {
		t.Error("blocks though it must not")
	}
}

func TestLogKeepsTheNewestResult(t *testing.T) {
	l := newEventLog(1000, -1)
	const large = maxOutput // as the largest message
	l.append(Result{Parts: []MIMEPart{{Data: make([]byte, large)}}})
	l.append(Result{Parts: []MIMEPart{{Data: make([]byte, large)}}})
	l.append(Stdout{Text: "after"})
	events := read(t, l, 0)
	if gap, ok := events[0].Body.(Gap); !ok || gap.Stream != StreamResult || gap.Bytes != large {
		t.Errorf("%+v", events[0].Number)
	}
	if newest, ok := events[1].Body.(Result); !ok || len(newest.Parts[0].Data) != large {
		t.Errorf("%+v", events[1].Number)
	}
}

func TestClosedReaderWakes(t *testing.T) {
	l := newEventLog(1000, 0)
	r := attach(t, l, ReaderOptions{From: 0})
	go r.Close()
	if _, err := r.Next(t.Context()); !errors.Is(err, ErrReaderClosed) {
		t.Error(err)
	}
	r.Close()
}

func TestShrunkLogStillTellsTheEnd(t *testing.T) {
	l := newEventLog(1<<20, 0)
	l.append(Accepted{})
	l.append(Stdout{Text: "text"})
	l.append(Result{MetadataJSON: []byte("{}")})
	l.append(Finished{Status: Failed})
	l.append(Stdout{Text: "after the end"})
	l.shrink()
	events := read(t, l, 0)
	if len(events) != 4 || events[1].Body != (Gap{StreamStdout, 4}) || events[2].Body != (Gap{StreamResult, 2}) || events[3].Body != (Finished{Status: Failed}) {
		t.Errorf("%+v", events)
	}
}
