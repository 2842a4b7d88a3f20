package kernel

import (
	"testing"
	"time"
)

const (
	// toldLate is code of which the fake kernel tells late that it runs, as a kernel
	// does whose messages wait for a busy machine.
	toldLate = "told late"
	// pastEvents is how long the fake kernel takes for what it is slow in.
	pastEvents = 100 * time.Millisecond
)

func TestDurationHoldsAllThatTheCodeTook(t *testing.T) {
	out := execute(t, newContexts(t, withFake(t, "kernel")), toldLate)
	if out.finished.Status != OK || out.finished.Duration < pastEvents {
		t.Errorf("%+v, want %v at least", out.finished, pastEvents)
	}
}

func TestExecutionStartsAfterTheQuestionBeforeIt(t *testing.T) {
	cs := newContexts(t, withFake(t, "kernel"))
	id := create(t, cs, ContextRequest{}).ID
	e, err := cs.context(id)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan time.Time, 1)
	go func() {
		completion, err := cs.Complete(t.Context(), id, Cursor{})
		at, parseErr := time.Parse(time.RFC3339Nano, append(completion.Matches, "")[0])
		if err != nil || parseErr != nil {
			t.Errorf("the question: %v, %v", err, parseErr)
		}
		answered <- at
	}()
	waitFor(t, "the question to be asked", func() bool {
		asked := 0
		c := e.(*codeContext)
		if err := c.call(func() { asked = len(c.asked) }); err != nil {
			t.Fatal(err)
		}
		return asked == 1
	})
	out := collect(t, start(t, cs, Request{ContextID: id, Code: "nothing"}))
	if at := <-answered; out.finished.Status != OK || out.startedAt.Before(at) {
		t.Errorf("started at %v, the question before it was answered at %v: %+v", out.startedAt, at, out.finished)
	}
}
