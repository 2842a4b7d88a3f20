package inotify

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watched is an instance that watches a new folder.
func watched(t *testing.T) (i *Instance, p *Pending, dir string, wd int32) {
	t.Helper()
	dir = t.TempDir()
	i, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if wd, err = i.Add(fd, Structural|unix.IN_MODIFY); err != nil {
		t.Fatal(err)
	}
	if again, err := i.Add(fd, unix.IN_ATTRIB); err != nil || again != wd {
		t.Fatalf("watched again: %d, %v, want %d", again, err, wd)
	}
	return i, NewPending(i), dir, wd
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestPendingKnowsWhatIsToCome(t *testing.T) {
	_, p, dir, wd := watched(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	before := time.Now()
	check(t, os.WriteFile(at("a"), nil, 0o600), os.Rename(at("a"), at("b")), os.Mkdir(at("a"), 0o700), os.Remove(at("b")), p.Fill())
	if p.First(wd, "a") != unix.IN_CREATE || p.First(wd, "b") != unix.IN_MOVED_TO || p.First(wd, "c") != 0 || p.First(wd+1, "a") != 0 || !p.Busy(wd) {
		t.Errorf("first are %x and %x", p.First(wd, "a"), p.First(wd, "b"))
	}
	firsts := map[string]uint32{}
	for name, mask := range p.Firsts(wd) {
		firsts[name] = mask
	}
	if len(firsts) != 2 || firsts["a"] != unix.IN_CREATE {
		t.Errorf("%v", firsts)
	}
	want := []struct {
		mask uint32
		name string
	}{{unix.IN_CREATE, "a"}, {unix.IN_MOVED_FROM, "a"}, {unix.IN_CREATE | unix.IN_ISDIR, "a"}, {unix.IN_DELETE, "b"}}
	total := p.Read()
	for _, w := range want {
		event, ok := p.Take()
		if !ok || event.Mask != w.mask || event.Name != w.name || event.Watch != wd || event.Read.Before(before) {
			t.Errorf("%+v, %v, want %x %s", event, ok, w.mask, w.name)
		}
		if event.Mask&unix.IN_MOVED_FROM == 0 {
			continue
		}
		second, ok := p.TakeMovedTo(event.Cookie)
		if !ok || second.Name != "b" {
			t.Errorf("the second half: %+v, %v", second, ok)
		}
		if _, ok := p.TakeMovedTo(event.Cookie); ok {
			t.Error("the second half came twice")
		}
	}
	if _, ok := p.Take(); ok || p.Busy(wd) || p.Taken() != total || total != 5 {
		t.Errorf("%d of %d events were taken", p.Taken(), total)
	}
}

func TestPendingIsBounded(t *testing.T) {
	_, p, _, _ := watched(t)
	one := encode(1, unix.IN_MODIFY, 0, "x")
	var err error
	for i := 0; err == nil; i++ {
		if i > MaxPending {
			t.Fatal("there is no bound")
		}
		err = p.add(one, time.Now())
	}
	if !errors.Is(err, ErrOverflow) {
		t.Error(err)
	}
	p = NewPending(nil)
	if err := p.add(encode(-1, unix.IN_Q_OVERFLOW, 0, ""), time.Now()); !errors.Is(err, ErrOverflow) {
		t.Errorf("the kernel's overflow: %v", err)
	}
}

func TestRemovedWatchTellsNoMore(t *testing.T) {
	i, p, dir, wd := watched(t)
	i.Remove(wd)
	i.Remove(wd)
	check(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o600), p.Fill())
	if event, ok := p.Take(); !ok || event.Mask != unix.IN_IGNORED {
		t.Errorf("%+v, %v", event, ok)
	}
	if event, ok := p.Take(); ok {
		t.Errorf("%+v", event)
	}
}

// encode is an event as the kernel writes it.
func encode(wd int32, mask, cookie uint32, name string) []byte {
	padded := 0
	if name != "" {
		padded = (len(name)/16 + 1) * 16
	}
	buf := make([]byte, unix.SizeofInotifyEvent+padded)
	binary.NativeEndian.PutUint32(buf[0:], uint32(wd))
	binary.NativeEndian.PutUint32(buf[4:], mask)
	binary.NativeEndian.PutUint32(buf[8:], cookie)
	binary.NativeEndian.PutUint32(buf[12:], uint32(padded))
	copy(buf[unix.SizeofInotifyEvent:], name)
	return buf
}

// FuzzPending feeds buffers that no kernel should give.
func FuzzPending(f *testing.F) {
	f.Add(encode(1, unix.IN_CREATE, 0, "name"))
	f.Add(append(encode(1, unix.IN_MOVED_FROM, 7, "a"), encode(2, unix.IN_MOVED_TO, 7, "b")...))
	f.Add(append(encode(2, unix.IN_MOVED_TO, 7, "b"), encode(2, unix.IN_MOVED_TO, 7, "b")...))
	f.Add(encode(-1, unix.IN_Q_OVERFLOW, 0, ""))
	f.Add(encode(1, unix.IN_DELETE, 0, "a/b"))
	f.Add(encode(1, unix.IN_CREATE, 0, "cut")[:20])
	f.Fuzz(func(t *testing.T, buf []byte) {
		p := NewPending(nil)
		err := p.add(buf, time.Time{})
		if err != nil && !errors.Is(err, ErrOverflow) && !errors.Is(err, ErrMalformed) {
			t.Fatal(err)
		}
		read := p.Read()
		for event, ok := p.Take(); ok; event, ok = p.Take() {
			if strings.ContainsAny(event.Name, "/\x00") {
				t.Fatalf("the name %q", event.Name)
			}
			if event.Mask&unix.IN_MOVED_FROM != 0 {
				p.TakeMovedTo(event.Cookie)
			}
		}
		if p.Taken() != read || p.held != 0 || len(p.names) != 0 || len(p.moves) != 0 {
			t.Fatalf("%d of %d taken, %d held, %d and %d indexed", p.Taken(), read, p.held, len(p.names), len(p.moves))
		}
	})
}
