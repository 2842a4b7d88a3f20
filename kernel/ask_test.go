package kernel

import (
	"context"
	"errors"
	"testing"
)

// A question that its asker has given up waits in the kernel's socket all the
// same. The fake kernel answers no inspect_request.
func TestQuestionsGivenUpAreBounded(t *testing.T) {
	cs := newContexts(t, withFake(t, "kernel"))
	id := create(t, cs, ContextRequest{}).ID
	e, err := cs.context(id)
	if err != nil {
		t.Fatal(err)
	}
	c := e.(*codeContext)
	asked := func() (n int) {
		if err := c.call(func() { n = len(c.asked) }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	gaveUp := errors.New("gave up")
	for n := range maxAsked {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := cs.Inspect(ctx, id, Cursor{}, false)
			done <- err
		}()
		waitFor(t, "the question to be asked", func() bool { return asked() > n })
		cancel(gaveUp)
		if err := <-done; !errors.Is(err, gaveUp) {
			t.Fatalf("question %d: %v", n+1, err)
		}
	}
	if _, err := cs.Inspect(t.Context(), id, Cursor{}, false); !errors.Is(err, ErrQueueFull) {
		t.Errorf("one more than %d: %v, want %v", maxAsked, err, ErrQueueFull)
	}
}
