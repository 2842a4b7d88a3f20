package outlog

import (
	"bytes"
	"testing"
)

// FuzzLog takes bytes for a script of what writer and readers do, and checks
// that every reader gets each byte of the stream exactly once or is told of the
// gap, that a lossless reader gets none before the exit mark, that no chunk
// reaches across the mark, and that memory stays within its bound.
func FuzzLog(f *testing.F) {
	f.Add([]byte("\x00\xff\x01\x00\x02\xff\x03\x40\x00\xff\x04\x01\x05\x00"))
	f.Add([]byte("\x01\x01\x00\xff\x00\xff\x02\x10\x06\x00\x00\xff\x07\x00\x02\xff"))
	f.Add(bytes.Repeat([]byte("\x01\x00\x00\xff\x02\x80\x03\x10"), 20))
	f.Fuzz(func(t *testing.T, script []byte) {
		s := &scripted{t: t, log: New(Options{Limit: MinLimit})}
		for ; len(script) >= 2 && len(script) < 2000; script = script[2:] {
			s.step(script[0]%8, int(script[1]))
		}
	})
}

// scripted is a log that follows a script, with what each reader is to get.
type scripted struct {
	t       *testing.T
	log     *Log
	readers []*expectation
	drained int // bytes let in over the limit
}

type expectation struct {
	*Reader
	lossless bool
	pos      uint64
}

func (s *scripted) step(op byte, arg int) {
	switch op {
	case 0:
		s.write(arg * 257)
	case 1:
		s.attach(arg)
	case 2:
		s.each(arg, func(r *expectation) { s.read(r, 1+arg*300) })
	case 3:
		s.each(arg, func(r *expectation) { _ = r.Ack(r.pos * uint64(arg) / 255) })
	case 4:
		s.each(arg, func(r *expectation) { r.Close() })
	case 5:
		s.log.Mark()
	case 6:
		s.log.Drain()
	case 7:
		s.each(arg, func(r *expectation) { r.PassMark() })
	}
	if mem := s.log.State().Memory; mem > MinLimit+s.drained+2*minChunk {
		s.t.Fatalf("%d bytes of memory, %d drained", mem, s.drained)
	}
}

func (s *scripted) each(arg int, f func(*expectation)) {
	if len(s.readers) > 0 {
		f(s.readers[arg%len(s.readers)])
	}
}

// write writes what goes in without waiting.
func (s *scripted) write(n int) {
	for n > 0 {
		buf, _, err := s.log.tryReserve()
		if err != nil {
			s.t.Fatal(err)
		}
		if buf == nil {
			return
		}
		end := s.log.State().End
		size := copy(buf, pattern(end, min(n, len(buf))))
		s.log.Commit(size)
		if s.log.phase == phaseDraining {
			s.drained += size + minChunk
		}
		n -= size
	}
}

func (s *scripted) attach(arg int) {
	end := s.log.State().End
	r := &expectation{lossless: arg%2 == 0, pos: end * uint64(arg) / 255}
	mode := Following
	if r.lossless {
		mode = Lossless
	}
	var err error
	if r.Reader, err = s.log.Attach(ReaderOptions{From: r.pos, Mode: mode}); err != nil {
		s.t.Fatal(err)
	}
	if arg%3 == 0 {
		_ = r.Ack(0)
	}
	// What was dropped before it came is no loss of its own.
	if start := s.log.State().Start; r.pos < start {
		s.read(r, 1)
	}
	s.readers = append(s.readers, r)
}

func (s *scripted) read(r *expectation, limit int) {
	before := s.log.State()
	c, status := r.Next(limit)
	if status != Ready {
		return
	}
	defer c.Release()
	to := c.Offset + uint64(len(c.Data))
	switch {
	case c.Offset-c.Gap != r.pos:
		s.t.Fatalf("chunk at %d with gap %d, read up to %d", c.Offset, c.Gap, r.pos)
	case !bytes.Equal(c.Data, pattern(c.Offset, len(c.Data))):
		s.t.Fatalf("wrong bytes at %d", c.Offset)
	case before.Marked && r.pos < before.Mark && to > before.Mark:
		s.t.Fatalf("chunk from %d to %d across the mark at %d", r.pos, to, before.Mark)
	case r.lossless && c.Gap > 0 && r.pos >= before.Start && (!before.Marked || r.pos < before.Mark):
		s.t.Fatalf("a lossless reader lost %d bytes at %d", c.Gap, r.pos)
	}
	r.pos = to
}
