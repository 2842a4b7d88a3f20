package spawn

import "time"

// A folder that is ready costs the kernel 7 KiB, and more with the memory controller; one
// that is not costs its start the time to make it. So as many are kept ready as bursts
// of starts have needed lately.
const (
	fewestReady = 16
	mostReady   = 128
	// demandTime is for how long a burst is remembered.
	demandTime = time.Minute
)

// demand is how many cgroup folders are to be ready. Its zero value is the least.
type demand struct {
	ready int
	since time.Time // when there were last too few
}

// rise notes that there were too few.
func (d *demand) rise(now time.Time) {
	d.ready = min(2*d.at(now), mostReady)
	d.since = now
}

// at is the demand at a time.
func (d *demand) at(now time.Time) int {
	if now.Sub(d.since) >= demandTime {
		d.ready = fewestReady
	}
	return d.ready
}
