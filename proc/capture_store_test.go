package proc

import (
	"sync"
	"testing"
)

// A process that somebody has yet to ask for is older than many that are forgotten.
func TestDroppedCapturesAreNotHeld(t *testing.T) {
	table := newTable(t)
	waiting, err := table.StartCaptured(within(t), shell("printf kept"), nil, 100)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := waiting.Captured(within(t)); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := table.Capture(within(t), shell("printf out; printf err >&2"), nil, 100); err != nil {
			t.Fatal(err)
		}
	}
	if store := &table.captures; len(store.order) != 1 || len(store.sizes) != 1 || store.total != len("kept") {
		t.Errorf("%d in order, %d sizes and %d bytes are held, want those of one process", len(store.order), len(store.sizes), store.total)
	}
}

func TestCaptureThatIsDroppedWhileItIsTakenIsNotCounted(t *testing.T) {
	var store captureStore
	for range 2000 {
		p := &Process{}
		var both sync.WaitGroup
		both.Go(func() { store.add(p, Captured{Head: []byte("x"), Total: 1}) })
		both.Go(func() { store.drop(p) })
		both.Wait()
		if len(p.captures) != 1 || p.captures[0].Gap != 1 {
			t.Fatalf("%+v, want a gap", p.captures)
		}
	}
	if len(store.order) != 0 || len(store.sizes) != 0 || store.total != 0 {
		t.Errorf("%d in order, %d sizes and %d bytes are held", len(store.order), len(store.sizes), store.total)
	}
}
