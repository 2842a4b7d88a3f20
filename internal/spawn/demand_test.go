package spawn

import (
	"testing"
	"time"
)

func TestDemandFollowsBursts(t *testing.T) {
	var d demand
	now := time.Unix(1_000_000, 0)
	expect := func(what string, want int) {
		t.Helper()
		if got := d.at(now); got != want {
			t.Errorf("%s: %d are to be ready, want %d", what, got, want)
		}
	}
	expect("at first", fewestReady)
	d.rise(now)
	expect("after one shortage", 2*fewestReady)
	for range 20 {
		d.rise(now)
	}
	expect("after many", mostReady)
	now = now.Add(demandTime - 1)
	expect("a little less than a minute later", mostReady)
	now = now.Add(1)
	expect("a minute later", fewestReady)
	d.rise(now)
	expect("after the next", 2*fewestReady)
}
