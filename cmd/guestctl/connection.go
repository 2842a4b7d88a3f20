package main

import (
	"context"
	"sync"
	"time"
)

// lossNoticeDelay is how long a connection may be lost before the user is told: most come back at
// once, as after a pause of the guest.
const lossNoticeDelay = time.Second

// connectionWatch knows whether what a verb follows in the guest is out of reach. Then guestctl says
// so, and the user's signals are for guestctl: nobody else could obey them.
type connectionWatch struct {
	notice func(format string, args ...any)
	cancel context.CancelCauseFunc // ends the verb

	mu    sync.Mutex // protects the following
	lost  int        // how many of those that are followed are out of reach
	told  bool
	timer *time.Timer // tells the user; nil before the first loss
}

// changed is for client.WithConnectionWatch.
func (w *connectionWatch) changed(loss error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if loss != nil {
		if w.lost++; w.lost == 1 {
			w.timer = time.AfterFunc(lossNoticeDelay, func() { w.tell(loss) })
		}
		return
	}
	if w.lost--; w.lost > 0 {
		return
	}
	w.timer.Stop()
	w.told = false
}

func (w *connectionWatch) tell(loss error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost > 0 && !w.told {
		w.told = true
		w.notice("the connection to the guest is lost; trying to come back for a minute (Ctrl-C gives up): %v", loss)
	}
}

// giveUp ends the verb for a signal that asks to end and comes after the user was told that the guest is
// out of reach, and tells whether it has. Others are for the guest, which gets them when it is back.
func (w *connectionWatch) giveUp(s signalError) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost == 0 || !w.told || !s.asksToEnd() {
		return false
	}
	w.cancel(s)
	return true
}

// isLost tells whether something that is followed is out of reach.
func (w *connectionWatch) isLost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost > 0
}
