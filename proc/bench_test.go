package proc

import (
	osexec "os/exec"
	"slices"
	"testing"
	"time"
)

// BenchmarkTrue compares a short command, run in several ways, with os/exec,
// interleaved so that all see the same machine. It reports the median of each in µs, and
// its ratio to os/exec's.
func BenchmarkTrue(b *testing.B) {
	table := newTable(b, func(c *Config) { c.MaxFinished = 10 })
	spec := Spec{Args: []string{"/bin/true"}}
	ways := []struct {
		name string
		run  func() error
	}{
		{"os/exec", func() error { return osexec.Command("/bin/true").Run() }},
		{"spawn", func() error { return spawnAlone(table, spec) }},
		{"exec", func() error { exec(b, table, spec); return nil }},
		{"capture", func() error {
			_, err := table.Capture(b.Context(), spec, nil, 256<<10)
			return err
		}},
	}
	times := make([][]time.Duration, len(ways))
	for b.Loop() {
		for i, way := range ways {
			begin := time.Now()
			if err := way.run(); err != nil {
				b.Fatal(err)
			}
			times[i] = append(times[i], time.Since(begin))
		}
	}
	b.ReportMetric(0, "ns/op")
	median := func(d []time.Duration) time.Duration {
		slices.Sort(d)
		return d[len(d)/2]
	}
	for i, way := range ways {
		b.ReportMetric(float64(median(times[i]).Microseconds()), way.name+"-µs")
		b.ReportMetric(float64(median(times[i]))/float64(median(times[0])), way.name+"-ratio")
	}
}

// spawnAlone starts a process with its pipes and waits for its end, and no more.
func spawnAlone(table *Table, spec Spec) error {
	l := &launch{process: table.newProcess(spec)}
	if err := l.prepare(); err != nil {
		return err
	}
	child, err := spawner.Start(l.command)
	l.closeChildEnds()
	if err == nil {
		child.Await()
		child.Reap()
		child.Release()
	}
	l.abort()
	return err
}

// BenchmarkOutput streams a gigabyte through a pipe, a log and a reader.
func BenchmarkOutput(b *testing.B) {
	const size = 1 << 30
	table := newTable(b)
	b.SetBytes(size)
	for b.Loop() {
		_, a, err := table.Exec(b.Context(), shell("exec dd if=/dev/zero bs=256k count=4096 status=none"), AttachOptions{})
		if err != nil {
			b.Fatal(err)
		}
		var total uint64
		for {
			event, err := a.Next(b.Context())
			if err != nil {
				break
			}
			if out, ok := event.(Output); ok {
				total = out.Offset + uint64(len(out.Data))
				out.Release()
				_ = a.Ack(Stdout, total)
			}
		}
		a.Close()
		if total != size {
			b.Fatalf("%d bytes", total)
		}
	}
}
