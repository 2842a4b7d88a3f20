package client

import (
	"testing"
	"testing/synctest"
)

// oddReader never ends, and returns pieces of a size that divides nothing.
type oddReader struct{ taken uint64 }

func (r *oddReader) Read(p []byte) (int, error) {
	n := min(len(p), 100_001)
	r.taken += uint64(n)
	return n, nil
}

// What is under way is never more than guestd holds without waiting, or what is sent behind it,
// a signal above all, would wait, too; also where a new link tells that guestd has it all.
func TestInputUnderWayIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox()
		o.input = newInputWindow(&o.mu)
		r := &oddReader{}
		go o.pumpInput(r)
		check := func(when string, given uint64) {
			t.Helper()
			synctest.Wait()
			if ahead := r.taken - given; ahead > inputWindowBytes || ahead <= inputWindowBytes-minInputRead {
				t.Errorf("%s: %d bytes are under way, want %d", when, ahead, inputWindowBytes)
			}
		}
		give := func(offset uint64) {
			o.mu.Lock()
			defer o.mu.Unlock()
			if err := o.input.give(offset); err != nil {
				t.Error(err)
			}
		}
		check("at first", 0)
		give(65_537)
		check("when the program has read", 65_537)
		o.mu.Lock()
		if err := o.input.rewind(r.taken); err != nil {
			t.Error(err)
		}
		o.input.room.Broadcast()
		o.mu.Unlock()
		check("on a new link", 65_537)
		give(65_537) // which a new link tells at once
		check("on a new link to a program that does not read", 65_537)
		all := r.taken
		give(all)
		check("when the program has read everything", all)
		o.closeInput()
	})
}
