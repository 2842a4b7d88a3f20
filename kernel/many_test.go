package kernel

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// cpuTicks is how many clock ticks of processor time a process has used; see proc(5).
func cpuTicks(t *testing.T, pid int) (ticks int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return ticks
}

// Twenty contexts of Python run side by side, and cost nothing when they do nothing.
func TestTwentyContexts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts twenty kernels")
	}
	cs := newContexts(t)
	const count = 20
	infos := make([]Info, count)
	var created sync.WaitGroup
	for i := range infos {
		created.Go(func() {
			info, err := cs.Create(t.Context(), ContextRequest{Name: fmt.Sprint(i)})
			if err != nil {
				t.Error(err)
			}
			infos[i] = info
		})
	}
	created.Wait()
	if t.Failed() {
		return
	}
	// They all wait for one another, so they all have to run at once.
	dir := t.TempDir()
	var running []*Execution
	for i, info := range infos {
		running = append(running, start(t, cs, Request{ContextID: info.ID, Code: fmt.Sprintf(`
import os, time
open("%[1]s/%[2]d", "w").close()
while len(os.listdir(%[1]q)) < %[3]d: time.sleep(0.05)
mine = %[2]d`, dir, i, count)}))
	}
	for i, x := range running {
		if out := collect(t, x); out.finished.Status != OK {
			t.Errorf("%d: %+v, error %+v", i, out.finished, out.err)
		}
	}
	for i, info := range infos {
		if got := valueOf(t, cs, info.ID, "mine"); got != fmt.Sprint(i) {
			t.Errorf("context %d has %s", i, got)
		}
	}
	time.Sleep(2 * time.Second) // what follows an execution is done
	before := make([]int, count)
	for i, info := range infos {
		before[i] = cpuTicks(t, info.PID)
	}
	ours := cpuTicks(t, os.Getpid())
	time.Sleep(3 * time.Second)
	used := 0
	for i, info := range infos {
		used += cpuTicks(t, info.PID) - before[i]
	}
	// A tick is 10 ms: kernels poll for their parent, once a second each.
	if used > 3*count {
		t.Errorf("%d idle kernels used %d ticks in 3 s", count, used)
	}
	if ours := cpuTicks(t, os.Getpid()) - ours; ours > 5 {
		t.Errorf("we used %d ticks for them", ours)
	}
	t.Logf("%d ticks in 3 s", used)
}
