package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

func keepAll(int) bool { return true }

func TestTheSameIDDoesTheWorkOnce(t *testing.T) {
	table := Table[int]{Keep: keepAll}
	var starts atomic.Int32
	release := make(chan struct{})
	var calls sync.WaitGroup
	var repeats atomic.Int32
	for range 20 {
		calls.Go(func() {
			got, repeated, err := table.Do(t.Context(), "id", wrapperspb.String("same"), func() (int, error) {
				starts.Add(1)
				<-release
				return 42, nil
			})
			if repeated {
				repeats.Add(1)
			}
			if got != 42 || err != nil {
				t.Errorf("got %d, %v; want 42", got, err)
			}
		})
	}
	close(release)
	calls.Wait()
	if starts.Load() != 1 || repeats.Load() != 19 {
		t.Errorf("%d starts and %d repeats, want 1 and 19", starts.Load(), repeats.Load())
	}
}

func TestAnotherRequestUnderTheSameIDIsRefused(t *testing.T) {
	table := Table[int]{Keep: keepAll}
	do := func(request string) error {
		_, _, err := table.Do(t.Context(), "id", wrapperspb.String(request), func() (int, error) { return 1, nil })
		return err
	}
	if err := do("one"); err != nil {
		t.Fatal(err)
	}
	if err := do("other"); !errors.Is(err, ErrReused) {
		t.Errorf("got %v, want ErrReused", err)
	}
}

func TestAFailureIsNotRemembered(t *testing.T) {
	table := Table[int]{Keep: keepAll}
	failure := errors.New("failed")
	_, _, err := table.Do(t.Context(), "id", wrapperspb.String(""), func() (int, error) { return 0, failure })
	if !errors.Is(err, failure) {
		t.Fatalf("got %v", err)
	}
	got, repeated, err := table.Do(t.Context(), "id", wrapperspb.String("even another"), func() (int, error) { return 7, nil })
	if got != 7 || repeated || err != nil {
		t.Errorf("got %d, %v, %v; want the work done", got, repeated, err)
	}
}

func TestAPanicFreesTheID(t *testing.T) {
	table := Table[int]{Keep: keepAll}
	func() {
		defer func() { _ = recover() }()
		_, _, _ = table.Do(t.Context(), "id", wrapperspb.String(""), func() (int, error) { panic("bad") })
	}()
	if _, repeated, err := table.Do(t.Context(), "id", wrapperspb.String(""), func() (int, error) { return 1, nil }); repeated || err != nil {
		t.Errorf("got repeated %v, %v; want the work done", repeated, err)
	}
}

func TestWaitingForTheFirstCallEndsWithTheContext(t *testing.T) {
	table := Table[int]{Keep: keepAll}
	begun, release := make(chan struct{}), make(chan struct{})
	var first sync.WaitGroup
	first.Go(func() {
		_, _, _ = table.Do(t.Context(), "id", wrapperspb.String(""), func() (int, error) {
			close(begun)
			<-release
			return 1, nil
		})
	})
	<-begun
	cause := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, _, err := table.Do(ctx, "id", wrapperspb.String(""), nil); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
	close(release)
	first.Wait()
}

func TestWhatIsNotWorthKeepingIsForgotten(t *testing.T) {
	newest := 0
	table := Table[int]{Keep: func(outcome int) bool { return outcome > newest-10 }}
	for i := range 10 * sweepAt {
		newest = i
		if _, _, err := table.Do(t.Context(), fmt.Sprint(i), wrapperspb.String(""), func() (int, error) { return i, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(table.entries); n > 2*sweepAt {
		t.Errorf("%d ids are remembered, want no more than %d", n, 2*sweepAt)
	}
}

func TestOnlyTheNewestOutcomesAreRemembered(t *testing.T) {
	table := Table[int]{Keep: keepAll, Max: 10}
	do := func(i int) (repeated bool) {
		_, repeated, err := table.Do(t.Context(), fmt.Sprint(i), wrapperspb.String(""), func() (int, error) { return i, nil })
		if err != nil {
			t.Fatal(err)
		}
		return repeated
	}
	for i := range 100 {
		do(i)
	}
	if n := len(table.entries); n != 10 {
		t.Errorf("%d outcomes are remembered, want 10", n)
	}
	if !do(90) || do(89) {
		t.Error("want the last ten remembered, and no other")
	}
}

// An id that is used again after its first outcome's time has an outcome of its own,
// which does not go when the first one would.
func TestAnIDUsedAgainCountsFromThen(t *testing.T) {
	keep := true
	table := Table[int]{Keep: func(int) bool { return keep }, Max: 2}
	do := func(id string) (repeated bool) {
		_, repeated, err := table.Do(t.Context(), id, wrapperspb.String(""), func() (int, error) { return 0, nil })
		if err != nil {
			t.Fatal(err)
		}
		return repeated
	}
	do("again")
	keep = false
	if do("again") {
		t.Fatal("an outcome that is not kept was repeated")
	}
	keep = true
	do("another") // the first outcome is the third newest now
	if !do("again") {
		t.Error("the second outcome went with the first one")
	}
}

func TestMalformedIDsAreRefused(t *testing.T) {
	table := Table[int]{Keep: keepAll}
	for _, id := range []string{strings.Repeat("x", maxID+1), "new\nline", "ümlaut", "\x7f"} {
		if _, _, err := table.Do(t.Context(), id, wrapperspb.String(""), nil); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: got %v, want ErrMalformed", id, err)
		}
	}
}
