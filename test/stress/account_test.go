package stress

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What a guestd has of the system, as the system sees it.

// stock is what a guestd has.
type stock struct{ resident, threads, descriptors, zombies, cgroups int }

func (g *guestd) takeStock(t *testing.T) stock {
	return stock{cgroups: g.cgroups(t), resident: g.resident(t), threads: g.threads(t),
		descriptors: g.descriptors(t), zombies: g.zombies(t)}
}

// madeInAdvance is by how much the number of cgroups may differ: guestd makes some
// before they are needed, the more the larger the last bursts were.
const madeInAdvance = 128

// gaveBack fails the test if guestd has come to rest with more than it had before.
func (g *guestd) gaveBack(t *testing.T, before stock) stock {
	t.Helper()
	after := g.settle(t)
	if after.descriptors > before.descriptors || after.cgroups > before.cgroups+madeInAdvance {
		t.Errorf("before: %+v; after: %+v: %q", before, after, g.holds())
	}
	return after
}

// settle waits until guestd has given back, and made in advance, what it does by the way,
// and returns what it then has.
func (g *guestd) settle(t *testing.T) stock {
	t.Helper()
	var last stock
	eventually(t, "guestd comes to rest", func() bool {
		g.cgroups(t) // runs a command, whose remains are gone a moment later
		time.Sleep(200 * time.Millisecond)
		now := g.takeStock(t)
		same := now.descriptors == last.descriptors && now.zombies == 0
		last = now
		return same
	})
	return last
}

// resident is guestd's resident memory in bytes.
func (g *guestd) resident(t *testing.T) int { return g.status(t, "VmRSS:") << 10 }

// threads counts guestd's threads.
func (g *guestd) threads(t *testing.T) int { return g.status(t, "Threads:") }

// status is a number in /proc/PID/status.
func (g *guestd) status(t *testing.T, name string) int {
	t.Helper()
	data, err := os.ReadFile(g.proc("status"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			var n int
			fmt.Sscan(value, &n)
			return n
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// descriptors counts guestd's descriptors.
func (g *guestd) descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(g.proc("fd"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// holds lists guestd's descriptors, for people.
func (g *guestd) holds() (list []string) {
	links, _ := filepath.Glob(g.proc("fd/*"))
	for _, link := range links {
		target, _ := os.Readlink(link)
		list = append(list, filepath.Base(link)+" "+target)
	}
	return list
}

// zombies counts guestd's children that nobody has waited for.
func (g *guestd) zombies(t *testing.T) (n int) {
	t.Helper()
	lists, _ := filepath.Glob(g.proc("task/*/children"))
	for _, list := range lists {
		data, _ := os.ReadFile(list)
		for pid := range strings.FieldsSeq(string(data)) {
			stat, _ := os.ReadFile("/proc/" + pid + "/stat")
			if _, rest, ok := strings.Cut(string(stat), ") "); ok && strings.HasPrefix(rest, "Z") {
				n++
			}
		}
	}
	return n
}

func (g *guestd) proc(name string) string {
	return filepath.Join("/proc", strconv.Itoa(g.cmd.Process.Pid), name)
}

// cgroups counts the cgroup folders that guestd has, -1 where it has none at all.
func (g *guestd) cgroups(t *testing.T) int {
	t.Helper()
	out, err := g.client.Command("cat", "/proc/self/cgroup").Output(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok || !strings.Contains(path, "/guestd-") {
			continue
		}
		for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
			entries, err := os.ReadDir(filepath.Join(mount, filepath.Dir(path)))
			if err != nil {
				continue
			}
			folders := 0
			for _, entry := range entries {
				if entry.IsDir() {
					folders++
				}
			}
			return folders
		}
	}
	return -1
}

// goroutines ends guestd the way that makes it tell its goroutines, and counts them.
func (g *guestd) goroutines(t *testing.T) int {
	t.Helper()
	g.cmd.Process.Signal(syscall.SIGQUIT)
	g.cmd.Wait()
	g.ended = true
	n := strings.Count(g.log.String(), "\ngoroutine ")
	if n == 0 {
		t.Fatalf("guestd did not tell its goroutines:\n%s", g.log.String())
	}
	return n
}
