package outlog

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// polledPump returns a polled pump, the write end of its pipe, and how often it has
// told its mark.
func polledPump(t *testing.T, o Options) (p *Pump, write *os.File, marks *int) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		t.Fatal(err)
	}
	write, marks = os.NewFile(uintptr(fds[1]), "write"), new(int)
	t.Cleanup(func() { write.Close() })
	return NewPolledPump(fds[0], New(o), func() { *marks++ }), write, marks
}

func fill(t *testing.T, write *os.File, data []byte) {
	t.Helper()
	if _, err := write.Write(data); err != nil {
		t.Fatal(err)
	}
}

// contents is what a log has, and whether it has ended.
func contents(t *testing.T, l *Log) (data []byte, ended bool) {
	t.Helper()
	r, err := l.Attach(ReaderOptions{Mode: Following})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.PassMark()
	for {
		chunk, status := r.Next(maxChunk)
		if status != Ready {
			return data, status == Ended
		}
		data = append(data, chunk.Data...)
		chunk.Release()
	}
}

// hold attaches a reader that acknowledges nothing.
func hold(t *testing.T, l *Log) {
	t.Helper()
	r, err := l.Attach(ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	if err := r.Ack(0); err != nil {
		t.Fatal(err)
	}
}

func TestPolledPumpEndsWithItsLeader(t *testing.T) {
	p, write, marks := polledPump(t, Options{})
	if _, err := p.ReadNow(); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("an empty pipe: %v", err)
	}
	fill(t, write, []byte("one "))
	if n, err := p.ReadNow(); n != 4 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	tail := bytes.Repeat([]byte("x"), 60_000)
	fill(t, write, tail)
	write.Close()
	if !p.EndNow() {
		t.Fatal("not ended, though nobody holds the pipe")
	}
	data, ended := contents(t, p.log)
	if want := append([]byte("one "), tail...); !ended || !bytes.Equal(data, want) {
		t.Errorf("%d bytes, ended %v, want %d and the end", len(data), ended, len(want))
	}
	if *marks != 1 || p.log.State().Mark != 60_004 {
		t.Errorf("told %d marks, at %d", *marks, p.log.State().Mark)
	}
	p.Close() // does no harm
	if unix.Close(p.fd) == nil {
		t.Error("the descriptor was left open")
	}
}

func TestPolledPumpWhosePipeIsEmptyAtTheEnd(t *testing.T) {
	p, write, _ := polledPump(t, Options{})
	write.Close()
	if _, err := p.ReadNow(); !errors.Is(err, io.EOF) {
		t.Errorf("a closed pipe: %v", err)
	}
	if !p.EndNow() {
		t.Error("not ended")
	}
}

func TestPolledPumpGoesOnWhileThePipeIsHeld(t *testing.T) {
	p, write, marks := polledPump(t, Options{Limit: MinLimit})
	before := bytes.Repeat([]byte("a"), 50_000) // more than the log's limit
	hold(t, p.log)
	fill(t, write, before)
	if p.EndNow() {
		t.Fatal("ended, though the pipe is held")
	}
	if *marks != 1 || p.log.State().Mark != 50_000 {
		t.Errorf("told %d marks, at %d", *marks, p.log.State().Mark)
	}
	done := make(chan error)
	go func() { done <- p.Run() }()
	fill(t, write, []byte("later"))
	write.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	data, ended := contents(t, p.log)
	if want := slices.Concat(before, []byte("later")); !ended || !bytes.Equal(data, want) {
		t.Errorf("%d bytes, ended %v, want %d and the end", len(data), ended, len(want))
	}
	if *marks != 1 {
		t.Errorf("told %d marks", *marks)
	}
}

// What was written and left behind while the log was full is not lost.
func TestPolledPumpAtAFullLog(t *testing.T) {
	p, write, _ := polledPump(t, Options{Limit: MinLimit})
	hold(t, p.log)
	written := 0
	for {
		fill(t, write, make([]byte, 4096))
		written += 4096
		if _, err := p.ReadNow(); errors.Is(err, ErrNoRoom) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	write.Close()
	if !p.EndNow() || p.log.State().Mark != uint64(written) {
		t.Errorf("the mark is at %d of %d", p.log.State().Mark, written)
	}
}

func TestPolledPumpBecomesAnyOther(t *testing.T) {
	p, write, marks := polledPump(t, Options{})
	fill(t, write, []byte("polled, "))
	if _, err := p.ReadNow(); err != nil {
		t.Fatal(err)
	}
	p.Register()
	done := make(chan error)
	go func() { done <- p.Run() }()
	fill(t, write, []byte("pumped"))
	p.LeaderEnded()
	write.Close()
	if err := <-done; err != nil || *marks != 1 {
		t.Fatalf("%v, %d marks", err, *marks)
	}
	if data, ended := contents(t, p.log); !ended || string(data) != "polled, pumped" {
		t.Errorf("%q, ended %v", data, ended)
	}
}
