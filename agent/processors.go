package agent

import (
	"runtime"
	"strings"
	"sync"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// quietTime is for how long there has been one call at most before one processor
// runs all goroutines again.
const quietTime = time.Second

// processors fits the number of processors that run goroutines (GOMAXPROCS) to the
// calls in progress: one call is served by one of them, several by all.
//
// A short command alone is over sooner that way, by a twentieth in a guest with two
// processors. With more than one, Go wakes an idle thread up for each goroutine that
// becomes ready; that finds nothing to do, and meanwhile keeps a processor from the
// command. Many commands need all of them: the one that starts a process is blocked
// until the process's program is loaded.
//
// It has no goroutine but for the moment of a change, which stops all others.
type processors struct {
	set func(all bool) // nil: nothing is ever changed

	changes  sync.WaitGroup
	changing sync.Mutex // held while set runs

	// mu protects the following.
	mu     sync.Mutex
	calls  int       // in progress, by their weight
	all    bool      // what was asked of set last
	busy   time.Time // when there was last more than one call
	timer  *time.Timer
	closed bool
}

// setProcessors is processors' set in guestd.
func setProcessors(all bool) {
	if all {
		runtime.SetDefaultGOMAXPROCS()
	} else {
		runtime.GOMAXPROCS(1)
	}
}

// start lets one processor run guestd, as long as there are no calls.
func (p *processors) start(set func(all bool)) {
	p.set = set
	set(false)
}

// enter counts a call in, with its weight.
func (p *processors) enter(weight int) {
	if p.set == nil || weight == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls += weight
	if p.calls > 1 && !p.all && !p.closed {
		p.changeTo(true)
		p.timer = time.AfterFunc(quietTime, p.relax)
	}
}

// leave counts it out.
func (p *processors) leave(weight int) {
	if p.set == nil || weight == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls > 1 {
		p.busy = time.Now()
	}
	p.calls -= weight
}

// relax goes back to one processor when that has been enough for quietTime.
func (p *processors) relax() {
	p.mu.Lock()
	defer p.mu.Unlock()
	quiet := time.Since(p.busy)
	switch {
	case p.closed:
	case p.calls > 1:
		p.timer.Reset(quietTime)
	case quiet < quietTime:
		p.timer.Reset(quietTime - quiet)
	default:
		p.changeTo(false)
	}
}

// changeTo has the number changed; mu is held. It is done beside the call that needs it,
// since it may have to wait for the garbage collector.
func (p *processors) changeTo(all bool) {
	p.all = all
	p.changes.Go(func() {
		p.changing.Lock()
		defer p.changing.Unlock()
		p.mu.Lock()
		all := p.all // the latest of several changes
		p.mu.Unlock()
		p.set(all)
	})
}

// close leaves the number as it is from now on.
func (p *processors) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.changes.Wait()
}

// weightOf is what a call counts for: nothing where it only waits for others, and two
// where several goroutines have work at the same time because of it alone.
func weightOf(fullMethod string) int {
	service, _, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	switch {
	case attending[fullMethod], service == healthv1.Health_ServiceDesc.ServiceName:
		return 0
	case service == guestdv1.FileService_ServiceDesc.ServiceName,
		fullMethod == guestdv1.SystemService_Tunnel_FullMethodName:
		return 2
	default:
		return 1
	}
}
