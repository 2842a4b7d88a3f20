package outlog

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	if fuzz := flag.Lookup("test.fuzz"); fuzz != nil && fuzz.Value.String() != "" {
		os.Exit(code) // the fuzzer leaves goroutines of its own
	}
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			os.Stderr.Write(buf[:runtime.Stack(buf, true)])
			os.Stderr.WriteString("goroutines leaked\n")
			os.Exit(1)
		}
		time.Sleep(time.Millisecond)
	}
	os.Exit(code)
}

// pattern returns n bytes of a stream from an offset: each byte tells its place.
func pattern(offset uint64, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		at := offset + uint64(i)
		p[i] = byte(at ^ at>>8*7 ^ at>>16*13)
	}
	return p
}

// put writes n bytes of the pattern, which must not have to wait.
func put(t *testing.T, l *Log, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := l.Write(ctx, pattern(l.State().End, n)); err != nil {
		t.Fatalf("writing %d bytes: %v", n, err)
	}
}

// full reports whether the log takes no further byte.
func full(t *testing.T, l *Log) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		buf, err := l.Reserve(ctx)
		if errors.Is(err, context.Canceled) {
			return true
		}
		if err != nil {
			t.Fatal(err)
		}
		if l.State().End > 64<<20 {
			return false
		}
		l.Commit(copy(buf, pattern(l.State().End, len(buf))))
	}
}

func attach(t *testing.T, l *Log, o ReaderOptions) *Reader {
	t.Helper()
	r, err := l.Attach(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// take reads what there is and checks it against the pattern.
func take(t *testing.T, r *Reader, pos uint64) (next, gap uint64, last Status) {
	t.Helper()
	for {
		c, status := r.Next(maxChunk)
		if status != Ready {
			return pos, gap, status
		}
		if c.Offset != pos+c.Gap {
			t.Fatalf("chunk at %d with gap %d after %d", c.Offset, c.Gap, pos)
		}
		if !bytes.Equal(c.Data, pattern(c.Offset, len(c.Data))) {
			t.Fatalf("wrong bytes at %d", c.Offset)
		}
		gap += c.Gap
		pos = c.Offset + uint64(len(c.Data))
		c.Release()
	}
}

func TestReadsBackWhatWasWritten(t *testing.T) {
	l := New(Options{})
	r := attach(t, l, ReaderOptions{})
	put(t, l, 1<<20)
	if pos, gap, status := take(t, r, 0); pos != 1<<20 || gap != 0 || status != Waiting {
		t.Fatalf("got %d, gap %d, %v", pos, gap, status)
	}
	l.Finish()
	if _, _, status := take(t, r, 1<<20); status != AtMark {
		t.Fatalf("got %v, want the mark", status)
	}
	r.PassMark()
	if _, _, status := take(t, r, 1<<20); status != Ended {
		t.Fatalf("got %v, want the end", status)
	}
	if _, err := l.Reserve(t.Context()); !errors.Is(err, ErrFinished) {
		t.Fatalf("got %v", err)
	}
}

func TestLosslessReaderHoldsTheWriterUntilItAcknowledges(t *testing.T) {
	l := New(Options{Limit: 1 << 20})
	r := attach(t, l, ReaderOptions{})
	if err := r.Ack(0); err != nil {
		t.Fatal(err)
	}
	if !full(t, l) {
		t.Fatal("the log never filled")
	}
	end := l.State().End
	if end > 1<<20 || end < 1<<19 {
		t.Fatalf("full at %d bytes", end)
	}
	take(t, r, 0)
	if before := l.State().End; !full(t, l) || l.State().End != before {
		t.Fatal("sending counted as acknowledging")
	}
	if err := r.Ack(end / 2); err != nil {
		t.Fatal(err)
	}
	if !full(t, l) || l.State().End <= end {
		t.Fatal("acknowledging made no room")
	}
	again := attach(t, l, ReaderOptions{From: end / 2, Mode: Following})
	if _, gap, _ := take(t, again, end/2); gap != 0 {
		t.Fatalf("%d bytes lost that were not acknowledged", gap)
	}
}

func TestAckWakesAWriterThatWaits(t *testing.T) {
	l := New(Options{Limit: MinLimit})
	r := attach(t, l, ReaderOptions{})
	_ = r.Ack(0)
	full(t, l)
	done := make(chan error, 1)
	go func() {
		_, err := l.Reserve(context.Background())
		done <- err
	}()
	take(t, r, 0)
	select {
	case err := <-done:
		t.Fatalf("the writer went on: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	_ = r.Ack(l.State().End)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestReaderThatNeverAcknowledgesHoldsTheLastMegabyteSent(t *testing.T) {
	l := New(Options{})
	r := attach(t, l, ReaderOptions{ID: "a"})
	var pos uint64
	for pos < 20<<20 {
		if !full(t, l) {
			t.Fatal("the reader held nobody back")
		}
		var gap uint64
		pos, gap, _ = take(t, r, pos)
		if gap != 0 {
			t.Fatalf("a lossless reader got a gap of %d", gap)
		}
	}
	full(t, l)
	back := attach(t, l, ReaderOptions{ID: "a", From: pos - 1<<20})
	if _, gap, _ := take(t, back, pos-1<<20); gap != 0 {
		t.Fatalf("coming back within 1 MiB lost %d bytes", gap)
	}
}

func TestNeverAcknowledgingReaderDoesNotBlockASmallLog(t *testing.T) {
	l := New(Options{Limit: MinLimit})
	r := attach(t, l, ReaderOptions{})
	full(t, l)
	pos, _, _ := take(t, r, 0)
	fallSilent(r)
	for pos < 1<<20 {
		before := l.State().End
		if full(t, l); l.State().End == before {
			t.Fatalf("stuck at %d although all was sent", pos)
		}
		pos, _, _ = take(t, r, pos)
	}
}

// fallSilent lets the time pass after which a reader counts as one that never
// acknowledges.
func fallSilent(r *Reader) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.firstSent = r.firstSent.Add(-silence)
}

// Nobody can have acknowledged what was sent a moment ago: all of it may be on its way,
// and be lost with the connection.
func TestNothingIsLetGoOfBeforeItCanBeAcknowledged(t *testing.T) {
	l := New(Options{})
	r := attach(t, l, ReaderOptions{ID: "a"})
	full(t, l)
	sent, _, _ := take(t, r, 0)
	before := l.State().End
	if full(t, l); l.State().End != before {
		t.Fatalf("%d bytes have made room for others right after they were sent", l.State().End-before)
	}
	r.Detach(time.Minute)
	fallSilent(r) // is no reason once it is away
	if full(t, l); l.State().End != before {
		t.Fatalf("%d bytes have made room for others while their reader was away", l.State().End-before)
	}
	back := attach(t, l, ReaderOptions{ID: "a", From: 0})
	if pos, gap, _ := take(t, back, 0); gap != 0 || pos != sent {
		t.Fatalf("coming back lost %d bytes, and ends at %d of %d", gap, pos, sent)
	}
}

// A writer that waits goes on by itself once the reader counts as silent.
func TestWriterWaitsForASilentReaderNoLongerThanThat(t *testing.T) {
	l := New(Options{Limit: MinLimit})
	r := attach(t, l, ReaderOptions{})
	full(t, l)
	take(t, r, 0)
	if _, err := l.Write(t.Context(), make([]byte, MinLimit/4)); err != nil {
		t.Fatal(err)
	}
}

func TestFollowingReaderIsToldTheGap(t *testing.T) {
	l := New(Options{Limit: 256 << 10})
	r := attach(t, l, ReaderOptions{Mode: Following})
	put(t, l, 1<<20)
	pos, gap, _ := take(t, r, 0)
	if pos != 1<<20 || gap == 0 || gap > 1<<20-128<<10 {
		t.Fatalf("at %d with a gap of %d", pos, gap)
	}
}

func TestSupersedingInheritsThePlace(t *testing.T) {
	l := New(Options{Limit: 256 << 10})
	wake := make(chan struct{}, 1)
	old := attach(t, l, ReaderOptions{ID: "a", Wake: wake})
	put(t, l, 100<<10)
	take(t, old, 0)
	_ = old.Ack(50 << 10)
	young := attach(t, l, ReaderOptions{ID: "a", From: 50 << 10})
	<-wake
	if _, status := old.Next(1); status != Superseded {
		t.Fatalf("the old reader got %v", status)
	}
	_ = old.Ack(100 << 10) // late: changes nothing
	full(t, l)
	if _, gap, _ := take(t, young, 50<<10); gap != 0 {
		t.Fatalf("lost %d bytes", gap)
	}
}

func TestDetachedReaderKeepsItsPlaceForItsGrace(t *testing.T) {
	l := New(Options{Limit: MinLimit})
	r := attach(t, l, ReaderOptions{ID: "a"})
	_ = r.Ack(0)
	r.Detach(time.Hour)
	if !full(t, l) {
		t.Fatal("a detached reader lost its place at once")
	}
	back := attach(t, l, ReaderOptions{ID: "a", From: 0})
	back.Detach(time.Millisecond)
	if _, err := l.Reserve(t.Context()); err != nil { // goes on once the grace is over
		t.Fatal(err)
	}
	if _, status := back.Next(1); status != Closed {
		t.Fatalf("got %v", status)
	}
}

func TestStallTimeoutLetsTheWriterGo(t *testing.T) {
	l := New(Options{Limit: MinLimit})
	r := attach(t, l, ReaderOptions{Stall: 10 * time.Millisecond})
	_ = r.Ack(0)
	put(t, l, 1<<20)
	if _, status := r.Next(1); status != Stalled {
		t.Fatalf("got %v", status)
	}
}

func TestComingBackWithoutAnOffsetStartsAtThePlace(t *testing.T) {
	l := New(Options{})
	put(t, l, 1000)
	r := attach(t, l, ReaderOptions{ID: "a", From: Place})
	if r.Offset() != 0 {
		t.Fatalf("a new reader starts at %d", r.Offset())
	}
	take(t, r, 0)
	_ = r.Ack(600)
	if back := attach(t, l, ReaderOptions{ID: "a", From: Place}); back.Offset() != 600 {
		t.Fatalf("came back at %d", back.Offset())
	}
}

func TestBytesBeforeTheMarkEnterOverTheLimit(t *testing.T) {
	l := New(Options{Limit: MinLimit})
	r := attach(t, l, ReaderOptions{})
	_ = r.Ack(0)
	full(t, l)
	l.Drain()
	put(t, l, 64<<10)
	mark := l.State().End
	l.Mark()
	put(t, l, 1<<20) // holds nobody back
	pos, gap, status := take(t, r, 0)
	if pos != mark || gap != 0 || status != AtMark {
		t.Fatalf("at %d of %d, gap %d, %v", pos, mark, gap, status)
	}
	if mem := l.State().Memory; mem > MinLimit+64<<10+maxChunk {
		t.Fatalf("%d bytes of memory", mem)
	}
	r.PassMark()
	pos, gap, _ = take(t, r, mark)
	if pos != mark+1<<20 || gap == 0 {
		t.Fatalf("at %d, gap %d after the mark", pos, gap)
	}
}

func TestGapNeverStraddlesTheMark(t *testing.T) {
	l := New(Options{Limit: MinLimit})
	r := attach(t, l, ReaderOptions{Mode: Following})
	put(t, l, 100<<10)
	l.Mark()
	put(t, l, 100<<10)
	pos, gap, status := take(t, r, 0)
	if pos != 100<<10 || gap != 100<<10 || status != AtMark {
		t.Fatalf("at %d, gap %d, %v", pos, gap, status)
	}
}

func TestHeadIsNeverDropped(t *testing.T) {
	l := New(Options{Limit: 128 << 10, Head: 64 << 10})
	put(t, l, 4<<20)
	l.Finish()
	r := attach(t, l, ReaderOptions{Mode: Following})
	c, _ := r.Next(maxChunk)
	var head int
	for c.Gap == 0 {
		head += len(c.Data)
		c, _ = r.Next(maxChunk)
	}
	if head < 64<<10 {
		t.Fatalf("%d bytes of head", head)
	}
	if tail := uint64(4<<20) - c.Offset; tail < 96<<10 {
		t.Fatalf("%d bytes of tail", tail)
	}
}

func TestOffsetsPastTheEndAreRefused(t *testing.T) {
	l := New(Options{})
	put(t, l, 10)
	var past *OffsetError
	if _, err := l.Attach(ReaderOptions{From: 11}); !errors.As(err, &past) || past.End != 10 {
		t.Fatalf("got %v", err)
	}
	r := attach(t, l, ReaderOptions{From: Now})
	if err := r.Ack(11); !errors.As(err, &past) {
		t.Fatalf("got %v", err)
	}
}

func TestDiscardKeepsWhatIsHeldAndFreesTheRest(t *testing.T) {
	l := New(Options{})
	r := attach(t, l, ReaderOptions{})
	put(t, l, 1<<20)
	l.Discard()
	if _, gap, _ := take(t, r, 0); gap != 0 {
		t.Fatal("discarding took bytes from a lossless reader")
	}
	l.Mark()
	put(t, l, 1<<20)
	r.Close()
	if mem := l.State().Memory; mem > 2*MinLimit+maxChunk {
		t.Fatalf("%d bytes of memory", mem)
	}
}

func TestBudget(t *testing.T) {
	b := NewBudget(8 << 20) // 1 MiB live, 1 MiB ended
	a := New(Options{Budget: b})
	put(t, a, 2<<20)
	if live, _ := b.Used(); live > 1<<20+2*maxChunk {
		t.Fatalf("%d bytes live", live)
	}
	c := New(Options{Budget: b})
	put(t, c, 2<<20)
	if mem := c.State().Memory; mem > exhaustedLimit {
		t.Fatalf("%d bytes in a log over the budget", mem)
	}
	r := attach(t, a, ReaderOptions{Mode: Following})
	a.Finish()
	c.Finish()
	for range 8 {
		l := New(Options{Budget: b})
		put(t, l, 200<<10)
		l.Finish()
	}
	live, ended := b.Used()
	if live != 0 || ended > 1<<20 {
		t.Fatalf("%d live, %d ended", live, ended)
	}
	if pos, gap, status := take(t, r, 0); pos != 2<<20 || gap != 2<<20 || status != AtMark {
		t.Fatalf("at %d, gap %d, %v", pos, gap, status)
	}
}

func TestEndedLogStaysLiveWhileALosslessReaderHoldsIt(t *testing.T) {
	b := NewBudget(8 << 20)
	l := New(Options{Budget: b})
	r := attach(t, l, ReaderOptions{})
	put(t, l, 1<<19)
	l.Finish()
	if _, ended := b.Used(); ended != 0 {
		t.Fatal("counted as ended while held")
	}
	take(t, r, 0)
	_ = r.Ack(1 << 19)
	if live, ended := b.Used(); live != 0 || ended == 0 {
		t.Fatalf("%d live, %d ended", live, ended)
	}
	l.Discard()
	if live, ended := b.Used(); live != 0 || ended != 0 {
		t.Fatalf("%d live, %d ended after Discard", live, ended)
	}
}

// TestAnyCutLosesNothing drops the connection at random places while the
// writer goes on, comes back at the last byte received, and compares.
func TestAnyCutLosesNothing(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		l := New(Options{Limit: MinLimit + rnd.IntN(1<<18)})
		total := 1<<20 + rnd.IntN(1<<20)
		wake := make(chan struct{}, 1)
		r := attach(t, l, ReaderOptions{ID: "a", Wake: wake})
		_ = r.Ack(0)
		go func() {
			writer := rand.New(rand.NewPCG(seed, 2))
			for done := 0; done < total; {
				n := min(1+writer.IntN(40<<10), total-done)
				if _, err := l.Write(context.Background(), pattern(uint64(done), n)); err != nil {
					t.Error(err)
				}
				done += n
			}
			l.Finish()
		}()
		var received uint64
		for {
			c, status := r.Next(1 + rnd.IntN(100<<10))
			switch status {
			case Waiting:
				<-wake
				continue
			case AtMark:
				if received != uint64(total) {
					t.Fatalf("seed %d: %d of %d", seed, received, total)
				}
				r.Close()
			}
			if status != Ready {
				break
			}
			if c.Gap != 0 || !bytes.Equal(c.Data, pattern(received, len(c.Data))) {
				t.Fatalf("seed %d: gap %d or wrong bytes at %d", seed, c.Gap, received)
			}
			lost := rnd.IntN(4) == 0 // sent, and gone with the connection
			if !lost {
				received += uint64(len(c.Data))
				_ = r.Ack(received)
			}
			c.Release()
			if lost {
				r.Detach(time.Hour)
				r = attach(t, l, ReaderOptions{ID: "a", From: received, Wake: wake})
			}
		}
	}
}

func BenchmarkLog(b *testing.B) {
	l := New(Options{})
	r, _ := l.Attach(ReaderOptions{})
	_ = r.Ack(0)
	b.SetBytes(64 << 10)
	for b.Loop() {
		for n := 0; n < 64<<10; {
			buf, err := l.Reserve(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			size := min(len(buf), 64<<10-n)
			l.Commit(size)
			n += size
		}
		for {
			c, status := r.Next(maxChunk)
			if status != Ready {
				break
			}
			_ = r.Ack(c.Offset + uint64(len(c.Data)))
			c.Release()
		}
	}
}
