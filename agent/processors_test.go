package agent

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// counted starts processors whose changes are noted.
func counted() (p *processors, changes func() []bool) {
	var mu sync.Mutex
	var list []bool
	p = &processors{}
	p.start(func(all bool) {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, all)
	})
	return p, func() []bool {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
}

func expectChanges(t *testing.T, got []bool, want ...bool) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("processors changed %v, want %v", got, want)
	}
}

func TestOneCallHasOneProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, changes := counted()
		defer p.close()
		for range 3 {
			p.enter(1)
			time.Sleep(quietTime)
			p.leave(1)
		}
		p.enter(0) // one that only waits
		p.enter(1)
		expectChanges(t, changes(), false)
		p.leave(1)
		p.leave(0)
	})
}

func TestSeveralCallsHaveAllProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, changes := counted()
		defer p.close()
		p.enter(1)
		p.enter(1)
		expectChanges(t, changes(), false, true)
		time.Sleep(5 * quietTime) // both go on
		p.leave(1)
		time.Sleep(quietTime / 2)
		p.enter(1) // again
		p.leave(1)
		time.Sleep(quietTime * 3 / 4)
		expectChanges(t, changes(), false, true)
		time.Sleep(quietTime / 2)
		expectChanges(t, changes(), false, true, false)
		p.leave(1)
		p.enter(2)
		expectChanges(t, changes(), false, true, false, true)
		p.leave(2)
	})
}

func TestProcessorsStayAsTheyAreAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, changes := counted()
		p.enter(2)
		p.leave(2)
		p.close()
		p.enter(2)
		time.Sleep(2 * quietTime)
		p.leave(2)
		expectChanges(t, changes(), false, true)
	})
}

func TestWeightOfACall(t *testing.T) {
	for method, want := range map[string]int{
		guestdv1.ProcessService_Exec_FullMethodName:      1,
		guestdv1.CodeService_Execute_FullMethodName:      1,
		guestdv1.SystemService_GetInfo_FullMethodName:    1,
		guestdv1.FileService_Stat_FullMethodName:         2,
		guestdv1.SystemService_Tunnel_FullMethodName:     2,
		guestdv1.ProcessService_Attach_FullMethodName:    0,
		guestdv1.CodeService_WatchContext_FullMethodName: 0,
		"/grpc.health.v1.Health/Watch":                   0,
	} {
		if got := weightOf(method); got != want {
			t.Errorf("%s counts for %d, want %d", method, got, want)
		}
	}
}
