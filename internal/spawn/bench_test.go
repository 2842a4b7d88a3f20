package spawn

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// BenchmarkTrue compares starting /bin/true and learning its end with os/exec
// Run, interleaved so that both see the same machine. It reports the median in
// µs and its ratio to os/exec's, for each way of keeping a tree together.
func BenchmarkTrue(b *testing.B) {
	niceness := 1
	for _, mode := range []struct {
		name   string
		cfg    Config
		change func(*Command)
	}{
		{"cgroup", Config{}, nil},
		{"cgroup and reaper", Config{Reaper: true}, nil},
		{"audit", Config{CgroupRoot: "none"}, nil},
		{"cgroup and score", Config{}, score},
		{"cgroup and thread", Config{}, func(c *Command) { c.Nice = &niceness }},
	} {
		b.Run(mode.name, func(b *testing.B) {
			s := newSpawner(b, mode.cfg)
			template := command(b, "/bin/true")
			if mode.change != nil {
				mode.change(&template)
			}
			var ours, theirs []time.Duration
			for i := 0; b.Loop(); i++ {
				cmd := template
				cmd.ID = fmt.Sprintf("p-%d", i)
				begin := time.Now()
				c, err := s.Start(cmd)
				if err != nil {
					b.Fatal(err)
				}
				<-c.Done()
				ours = append(ours, time.Since(begin))
				c.Release()

				begin = time.Now()
				if err := exec.Command("/bin/true").Run(); err != nil {
					b.Fatal(err)
				}
				theirs = append(theirs, time.Since(begin))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(median(ours).Microseconds()), "µs")
			b.ReportMetric(float64(median(ours))/float64(median(theirs)), "×os/exec")
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
