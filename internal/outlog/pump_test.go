package outlog

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pumped is a pump that runs, with the write end of its pipe.
type pumped struct {
	*Pump
	log    *Log
	write  *os.File
	marked chan struct{}
	done   chan error
}

func startPump(t *testing.T, o Options) *pumped {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &pumped{log: New(o), write: write, marked: make(chan struct{}), done: make(chan error, 1)}
	p.Pump = NewPump(read, Pipe, p.log, func() { close(p.marked) })
	go func() { p.done <- p.Run() }()
	t.Cleanup(func() {
		write.Close()
		p.Close()
	})
	return p
}

func (p *pumped) wait(t *testing.T) {
	t.Helper()
	if err := <-p.done; err != nil {
		t.Fatal(err)
	}
}

// TestTailIsNotLostAtExit runs commands that end right after their output, with
// nobody, a busy or an idle background child holding the pipe.
func TestTailIsNotLostAtExit(t *testing.T) {
	holders := map[string]string{
		"none": "",
		"busy": "(while :; do echo x; done) & ",
		"idle": "sleep 1000 & ",
	}
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for name, holder := range holders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range rounds {
				size := 1 + i*i*83%300_000
				p := startPump(t, Options{})
				cmd := exec.Command("/bin/sh", "-c", holder+fmt.Sprintf("head -c %d /dev/zero; printf END", size))
				cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
				cmd.Stdout = p.write
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				p.write.Close()
				_ = cmd.Wait()
				p.LeaderEnded()
				<-p.marked
				if holder != "" {
					_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
				}
				if zeros, tail := zerosAndTail(t, p.log); zeros != size || !tail {
					t.Fatalf("%d of %d bytes, tail %v", zeros, size, tail)
				}
				p.wait(t)
			}
		})
	}
}

// zerosAndTail reads to the mark, and counts the zeros and looks for END.
func zerosAndTail(t *testing.T, l *Log) (zeros int, tail bool) {
	t.Helper()
	r := attach(t, l, ReaderOptions{Mode: Following})
	defer r.Close()
	var end int
	for {
		c, status := r.Next(maxChunk)
		if status != Ready {
			return zeros, end == 3
		}
		for _, b := range c.Data {
			switch b {
			case 0:
				zeros++
			case 'E', 'N', 'D':
				end++
			}
		}
		c.Release()
	}
}

func TestLeaderEndedFreesAPumpThatIsHeldBack(t *testing.T) {
	p := startPump(t, Options{Limit: MinLimit})
	r := attach(t, p.log, ReaderOptions{})
	_ = r.Ack(0)
	data := pattern(0, MinLimit+60<<10)
	if _, err := p.write.Write(data); err != nil {
		t.Fatal(err)
	}
	p.LeaderEnded()
	<-p.marked
	pos, gap, status := take(t, r, 0)
	if pos != uint64(len(data)) || gap != 0 || status != AtMark {
		t.Fatalf("at %d, gap %d, %v", pos, gap, status)
	}
}

func TestOutputAfterTheMarkIsDrained(t *testing.T) {
	p := startPump(t, Options{Limit: MinLimit})
	r := attach(t, p.log, ReaderOptions{})
	_ = r.Ack(0)
	p.LeaderEnded()
	<-p.marked
	if _, err := p.write.Write(pattern(0, 4<<20)); err != nil { // neither blocks nor fails
		t.Fatal(err)
	}
	p.write.Close()
	p.wait(t)
	r.PassMark()
	if pos, gap, status := take(t, r, 0); pos != 4<<20 || gap == 0 || status != Ended {
		t.Fatalf("at %d, gap %d, %v", pos, gap, status)
	}
}

func TestCloseEndsAPumpWhereverItIs(t *testing.T) {
	idle := startPump(t, Options{})
	idle.Close()
	idle.wait(t)

	held := startPump(t, Options{Limit: MinLimit})
	r := attach(t, held.log, ReaderOptions{})
	_ = r.Ack(0)
	go func() { _, _ = held.write.Write(make([]byte, 1<<20)) }()
	for held.log.State().End < MinLimit/2 {
		time.Sleep(time.Millisecond)
	}
	held.Close()
	held.wait(t)
	<-held.marked
}

func TestNoDescriptorIsLeaked(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := count()
	for range 20 {
		p := startPump(t, Options{})
		p.write.Close()
		p.wait(t)
	}
	if after := count(); after > before {
		t.Fatalf("%d descriptors before, %d after", before, after)
	}
}

func TestMemoryStaysBoundedOverAGigabyte(t *testing.T) {
	size := int64(1 << 30)
	if testing.Short() {
		size = 64 << 20
	}
	p := startPump(t, Options{})
	wake := make(chan struct{}, 1)
	r := attach(t, p.log, ReaderOptions{Wake: wake})
	var writer sync.WaitGroup
	writer.Go(func() {
		zeros, _ := os.Open("/dev/zero")
		defer zeros.Close()
		if _, err := io.CopyBuffer(struct{ io.Writer }{p.write}, io.LimitReader(zeros, size), make([]byte, 1<<20)); err != nil {
			t.Error(err)
		}
		p.write.Close()
	})
	var received int64
	for status := Ready; status != AtMark; {
		var c Chunk
		c, status = r.Next(maxChunk)
		if status == Waiting {
			<-wake
		}
		received += int64(len(c.Data))
		c.Release()
		if mem := p.log.State().Memory; mem > DefaultLimit {
			t.Fatalf("%d bytes of memory", mem)
		}
	}
	writer.Wait()
	p.wait(t)
	if received != size {
		t.Fatalf("%d of %d bytes", received, size)
	}
}

func BenchmarkPump(b *testing.B) {
	const size = 64 << 20
	b.SetBytes(size)
	block := make([]byte, 1<<20)
	for b.Loop() {
		read, write, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		l := New(Options{})
		wake := make(chan struct{}, 1)
		r, _ := l.Attach(ReaderOptions{Wake: wake})
		go func() {
			for range size / len(block) {
				_, _ = write.Write(block)
			}
			write.Close()
		}()
		p := NewPump(read, Pipe, l, nil)
		done := make(chan error, 1)
		go func() { done <- p.Run() }()
		for {
			c, status := r.Next(maxChunk)
			if status == Waiting {
				<-wake
				continue
			}
			if status != Ready {
				break
			}
			_ = r.Ack(c.Offset + uint64(len(c.Data)))
			c.Release()
		}
		<-done
	}
}
