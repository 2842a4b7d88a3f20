package proc

import (
	osexec "os/exec"
	"testing"
)

// BenchmarkTrue compares a process with an attached reader with os/exec.
func BenchmarkTrue(b *testing.B) {
	b.Run("os/exec", func(b *testing.B) {
		for b.Loop() {
			if err := osexec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("exec", func(b *testing.B) {
		table := newTable(b, func(c *Config) { c.MaxFinished = 10 })
		for b.Loop() {
			exec(b, table, Spec{Args: []string{"/bin/true"}})
		}
	})
	b.Run("capture", func(b *testing.B) {
		table := newTable(b, func(c *Config) { c.MaxFinished = 10 })
		for b.Loop() {
			if _, err := table.Capture(b.Context(), Spec{Args: []string{"/bin/true"}}, nil, 256<<10); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("spawn", func(b *testing.B) {
		table := newTable(b)
		for b.Loop() {
			l := &launch{process: table.newProcess(Spec{Args: []string{"/bin/true"}})}
			if err := l.prepare(); err != nil {
				b.Fatal(err)
			}
			child, err := spawner.Start(l.command)
			if err != nil {
				b.Fatal(err)
			}
			l.closeChildEnds()
			child.Await(func() {})
			child.Release()
			l.abort()
		}
	})
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
