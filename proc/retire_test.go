package proc

import (
	"testing"
	"time"
)

// While many commands run, what those that have ended had is not given back, unless that
// becomes too much; and all of it is afterwards.
func TestEndedCommandsAreGivenBackAfterTheCrowd(t *testing.T) {
	table := newTable(t)
	crowded := func(by int) {
		table.mu.Lock()
		table.watched += by
		table.mu.Unlock()
	}
	gathered := func() int {
		table.mu.Lock()
		defer table.mu.Unlock()
		return len(table.gathered)
	}
	crowded(crowd)
	const few = 20
	for range few {
		exec(t, table, shell("true"))
	}
	eventually(t, "the commands to gather", func() bool { return gathered() == few })
	time.Sleep(3 * gatherTime)
	if n := gathered(); n != few {
		t.Errorf("%d commands are left of %d while others run", n, few)
	}
	for range mostGathered {
		exec(t, table, shell("true"))
	}
	eventually(t, "what is too much to be given back", func() bool { return gathered() <= mostGathered })
	crowded(-crowd)
	eventually(t, "all to be given back", func() bool { return gathered() == 0 && len(table.alive()) == 0 })
}
