package fsapi

import (
	"context"

	"guestd.internal/internal/account"
)

// aside runs fn as [FS.as] does, beside its caller, who must call wait: that
// returns fn's error, and is where a panic of fn's comes out.
func (fsys *FS) aside(ctx context.Context, acc account.Account, fn func() error) (wait func() error) {
	type outcome struct {
		err      error
		panicked any
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			o.panicked = recover()
			done <- o
		}()
		o.err = fsys.as(ctx, acc, fn)
	}()
	return func() error {
		o := <-done
		if o.panicked != nil {
			panic(o.panicked)
		}
		return o.err
	}
}
