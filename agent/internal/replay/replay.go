// Package replay makes a repeated call safe: it remembers, by the request id that
// the client made, what the first call came to, so that a second one with the
// same id gets the same outcome instead of doing the work again.
//
// An id is reserved before anything starts; a call that comes meanwhile waits for
// the first one's outcome. A start that failed is not remembered. What the outcome
// is, and for how long it is worth remembering, is the caller's business.
//
// The package starts no goroutine and keeps nothing on disk: a restart forgets.
package replay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"
)

// maxID is how many characters a request id may have.
const maxID = 128

// sweepAt is how many ids are kept before the first look for those to forget.
const sweepAt = 256

// ErrReused says that an id came before with another request.
var ErrReused = errors.New("the request id was used for a different request")

// ErrMalformed says that an id is not 1 to 128 printable ASCII characters.
var ErrMalformed = fmt.Errorf("is not 1 to %d printable ASCII characters", maxID)

// Table remembers the outcomes of one method's calls. The zero value with a Keep
// works.
type Table[T any] struct {
	// Keep says whether an outcome is still worth remembering.
	Keep func(T) bool
	// Max is how many outcomes are remembered, the newest; 0 is no limit.
	Max int

	// mu protects the following.
	mu      sync.Mutex
	entries map[string]*entry[T]
	order   []slot // entries with an outcome, oldest first, where there is a Max
	sweep   int    // look for entries to forget at this many
}

// slot is one of a table's entries, and keeps nothing of its outcome: an id may stand
// for a later entry by the time that it is looked at.
type slot struct {
	id   string
	done chan struct{} // the entry's
}

// entry is one id. digest is set at once, outcome before done is closed.
type entry[T any] struct {
	digest  [sha256.Size]byte
	done    chan struct{}
	failed  bool
	outcome T
}

// Do calls start, or returns what the first call with the same id has come to;
// then repeated is true. An empty id is nobody's: start is called. While the
// first call is under way Do waits for it, as long as ctx lasts; where that
// failed it tries itself.
func (t *Table[T]) Do(ctx context.Context, id string, request proto.Message, start func() (T, error)) (outcome T, repeated bool, err error) {
	if id == "" {
		outcome, err = start()
		return outcome, false, err
	}
	if !wellFormed(id) {
		return outcome, false, ErrMalformed
	}
	digest, err := digestOf(request)
	if err != nil {
		return outcome, false, err
	}
	for {
		e, first := t.reserve(id, digest)
		if first {
			outcome, err = t.run(id, e, start)
			return outcome, false, err
		}
		if e.digest != digest {
			return outcome, false, fmt.Errorf("%w: %q", ErrReused, id)
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return outcome, true, fmt.Errorf("waiting for the first call with this request id: %w", context.Cause(ctx))
		}
		if !e.failed {
			return e.outcome, true, nil
		}
	}
}

// reserve returns the id's entry, and whether this call is the first with it.
func (t *Table[T]) reserve(id string, digest [sha256.Size]byte) (e *entry[T], first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[id]; ok && t.live(e) {
		return e, false
	}
	t.forget()
	e = &entry[T]{digest: digest, done: make(chan struct{})}
	if t.entries == nil {
		t.entries = make(map[string]*entry[T])
	}
	t.entries[id] = e
	return e, true
}

// run does the first call's work. The id is free again when it fails, also by a
// panic.
func (t *Table[T]) run(id string, e *entry[T], start func() (T, error)) (outcome T, err error) {
	e.failed = true
	defer func() {
		if e.failed {
			t.mu.Lock()
			t.remove(slot{id, e.done})
			t.mu.Unlock()
		}
		close(e.done)
	}()
	if e.outcome, err = start(); err != nil {
		return e.outcome, err
	}
	e.failed = false
	t.remember(slot{id, e.done})
	return e.outcome, nil
}

// remember keeps to Max outcomes, with this one as the newest.
func (t *Table[T]) remember(newest slot) {
	if t.Max == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.order = append(t.order, newest)
	if len(t.order) > t.Max {
		t.remove(t.order[0])
		t.order = t.order[1:]
	}
}

// remove drops an entry, unless its id stands for a later one by now.
func (t *Table[T]) remove(s slot) {
	if e := t.entries[s.id]; e != nil && e.done == s.done {
		delete(t.entries, s.id)
	}
}

// live says whether an entry still counts; one under way does.
func (t *Table[T]) live(e *entry[T]) bool {
	select {
	case <-e.done:
		return t.Keep(e.outcome)
	default:
		return true
	}
}

// forget drops what is not worth remembering, now and then: each entry is looked
// at once for each time that the table has doubled.
func (t *Table[T]) forget() {
	if len(t.entries) < max(t.sweep, sweepAt) {
		return
	}
	for id, e := range t.entries {
		if !t.live(e) {
			delete(t.entries, id)
		}
	}
	t.sweep = 2 * len(t.entries)
}

// digestOf is the same for requests that say the same.
func digestOf(request proto.Message) ([sha256.Size]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encoding the request for comparison: %w", err)
	}
	return sha256.Sum256(b), nil
}

func wellFormed(id string) bool {
	if len(id) > maxID {
		return false
	}
	for i := range len(id) {
		if id[i] < 0x20 || id[i] > 0x7e {
			return false
		}
	}
	return true
}
