package kernel

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// next takes one event that is there.
func next(t *testing.T, r *EventReader) Event {
	t.Helper()
	event, err := r.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return event
}

func isBlocked(l *eventLog) bool {
	blocked, _ := l.blocked()
	return blocked
}

// fill adds values of about n bytes each.
func fill(l *eventLog, count, n int) {
	for range count {
		l.append(Result{MetadataJSON: make([]byte, n)})
	}
}

func TestReaderIsSuperseded(t *testing.T) {
	l := newEventLog(1<<20, time.Hour)
	fill(l, 5, 10)
	old := attach(t, l, ReaderOptions{ID: "r"})
	for range 3 {
		next(t, old)
	}
	if err := l.acknowledge("r", 2); err != nil {
		t.Fatal(err)
	}
	again := attach(t, l, ReaderOptions{ID: "r"})
	if _, err := old.Next(t.Context()); !errors.Is(err, ErrSuperseded) {
		t.Errorf("the old one: %v", err)
	}
	old.Close()
	if event := next(t, again); event.Number != 3 || again.First() != 3 {
		t.Errorf("it goes on at %d, want 3: what was acknowledged last is 2", event.Number)
	}
	again.Close()
	if event := next(t, attach(t, l, ReaderOptions{ID: "r"})); event.Number != 3 {
		t.Errorf("after it was gone it goes on at %d, want 3", event.Number)
	}
	if event := next(t, attach(t, l, ReaderOptions{ID: "r", From: 5})); event.Number != 5 {
		t.Errorf("it begins at %d, and asked for 5", event.Number)
	}
	if event := next(t, attach(t, l, ReaderOptions{ID: "other"})); event.Number != 1 {
		t.Errorf("a new one begins at %d", event.Number)
	}
}

func TestReaderThatStallsLosesItsPlace(t *testing.T) {
	l := newEventLog(1000, time.Hour)
	r := attach(t, l, ReaderOptions{ID: "r", StallTimeout: 30 * time.Millisecond})
	fill(l, 1, 2000)
	blocked, until := l.blocked()
	if !blocked || until.IsZero() {
		t.Fatalf("blocked %v until %v, want a time", blocked, until)
	}
	waitFor(t, "the end of its patience", func() bool { return !isBlocked(l) })
	if _, err := r.Next(t.Context()); !errors.Is(err, ErrStalled) {
		t.Error(err)
	}
	// A reader that goes on in time keeps it.
	r = attach(t, l, ReaderOptions{ID: "r", StallTimeout: time.Hour})
	for range 20 {
		fill(l, 1, 2000)
		if !isBlocked(l) {
			t.Fatal("it holds nothing back")
		}
		next(t, r)
	}
}

func TestPlaceIsKeptForTheGrace(t *testing.T) {
	grace := 50 * time.Millisecond
	l := newEventLog(1000, time.Hour)
	attach(t, l, ReaderOptions{ID: "r", ReconnectGrace: &grace}).Close()
	fill(l, 1, 2000)
	if !isBlocked(l) {
		t.Error("it is not waited for")
	}
	waitFor(t, "the end of the grace", func() bool { return !isBlocked(l) })
	// Beside a reader that is there, one that is gone counts too.
	hour := time.Hour
	attach(t, l, ReaderOptions{ID: "gone", ReconnectGrace: &hour}).Close()
	r := attach(t, l, ReaderOptions{From: 2})
	defer r.Close()
	if !isBlocked(l) {
		t.Error("the one that is gone is not waited for")
	}
	if err := l.acknowledge("gone", 1); err != nil || isBlocked(l) {
		t.Errorf("after its acknowledgement: blocked %v, %v", isBlocked(l), err)
	}
}

func TestWhatWasSentLastMayBeOnItsWay(t *testing.T) {
	const limit = 8 << 20
	l := newEventLog(limit, time.Hour)
	r := attach(t, l, ReaderOptions{ID: "r"})
	text := strings.Repeat("x", maxText)
	l.append(Stdout{Text: text})
	next(t, r)
	r.firstSent = r.firstSent.Add(-silence)
	for i := range 399 { // 25 MiB through a log of 8
		l.append(Stdout{Text: text})
		next(t, r)
		if i%100 == 0 {
			_, _, _ = r.take() // confirms, and hands out nothing
		}
		if isBlocked(l) {
			t.Fatalf("blocked after %d events that were all sent", i)
		}
	}
	// The last of it has gone nowhere: the client never got it.
	r.Close()
	l.append(Stdout{Text: text})
	again := attach(t, l, ReaderOptions{ID: "r"})
	if lost := 401 - again.First(); lost < 15 || lost > 18 {
		t.Errorf("it goes on %d events before the last, want about 16, which are 1 MiB", lost)
	}
	for n := again.First(); n <= 401; n++ {
		if event := next(t, again); event.Number != n || event.Body != (Stdout{Text: text}) {
			t.Fatalf("event %d is %d, %T", n, event.Number, event.Body)
		}
	}
}

func TestReaderThatMayStillAcknowledgeLosesNothing(t *testing.T) {
	l := newEventLog(1000, time.Hour)
	r := attach(t, l, ReaderOptions{ID: "r"})
	fill(l, 5, 400)
	for range 5 {
		next(t, r)
	}
	_, _, _ = r.take() // confirms, and hands out nothing
	if blocked, until := l.blocked(); !blocked || !until.Equal(r.firstSent.Add(silence)) {
		t.Errorf("blocked %v until %v, want until it counts as silent", blocked, until)
	}
	r.Close() // nothing of it has arrived
	again := attach(t, l, ReaderOptions{ID: "r"})
	for number := range uint64(5) {
		if event := next(t, again); event.Number != number+1 {
			t.Fatalf("event %d came, want %d", event.Number, number+1)
		}
	}
	_, _, _ = again.take()
	again.firstSent = again.firstSent.Add(-silence)
	if isBlocked(l) {
		t.Error("a reader that never acknowledges holds back what it was sent")
	}
}

func TestReaderThatAcknowledgesHoldsTheRest(t *testing.T) {
	l := newEventLog(1000, time.Hour)
	r := attach(t, l, ReaderOptions{ID: "r"})
	fill(l, 1, 400)
	next(t, r)
	if err := l.acknowledge("r", 1); err != nil {
		t.Fatal(err)
	}
	fill(l, 2, 400)
	next(t, r)
	next(t, r)
	_, _, _ = r.take()
	if !isBlocked(l) {
		t.Error("what was sent counts, though it acknowledges")
	}
	if err := l.acknowledge("r", 4); !errors.As(err, new(*NumberError)) {
		t.Errorf("of what was not sent: %v", err)
	}
	if err := l.acknowledge("nobody", 1); !errors.As(err, new(*InvalidError)) {
		t.Errorf("by nobody: %v", err)
	}
	for _, number := range []uint64{3, 1, 3} {
		if err := l.acknowledge("r", number); err != nil {
			t.Error(err)
		}
	}
	if isBlocked(l) {
		t.Error("blocked after everything was acknowledged")
	}
	l.append(Finished{})
	next(t, r)
	if _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	r.Close()
	if err := l.acknowledge("r", 4); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func TestReaderOptionsAreChecked(t *testing.T) {
	l := newEventLog(1000, 0)
	day := 25 * time.Hour
	for field, o := range map[string]ReaderOptions{
		"reader.reader_id":       {ID: "é"},
		"reader.stall_timeout":   {StallTimeout: -1},
		"reader.reconnect_grace": {ReconnectGrace: &day},
	} {
		_, err := l.attach(o)
		var invalid *InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := l.attach(ReaderOptions{From: 2}); !errors.As(err, new(*NumberError)) {
		t.Errorf("past the end: %v", err)
	}
}
