package fsapi

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stress is how often something random is done: the second number with
// GUESTD_STRESS=full in the environment.
func stress(few, full int) int {
	if os.Getenv("GUESTD_STRESS") == "full" {
		return full
	}
	return few
}

// mirror is an entry of a tree as events alone tell it, with what is below it; of
// what is no folder the map is nil.
type mirror struct{ entries map[string]*mirror }

func newMirror() *mirror { return &mirror{entries: map[string]*mirror{}} }

// find returns the folder that a path is in, nil if there is none, and its name.
func (m *mirror) find(path string) (folder *mirror, name string) {
	for {
		first, rest, deeper := strings.Cut(path, "/")
		if !deeper {
			return m, first
		}
		if m = m.entries[first]; m == nil || m.entries == nil {
			return nil, ""
		}
		path = rest
	}
}

// take removes a path with what is below it, and returns that, nil if there is
// nothing.
func (m *mirror) take(path string) *mirror {
	folder, name := m.find(path)
	if folder == nil {
		return nil
	}
	taken := folder.entries[name]
	delete(folder.entries, name)
	return taken
}

// paths lists all below the mirror; folders end in a slash.
func (m *mirror) paths(prefix string, list map[string]bool) map[string]bool {
	for name, entry := range m.entries {
		if entry.entries == nil {
			list[prefix+name] = true
			continue
		}
		list[prefix+name+"/"] = true
		entry.paths(prefix+name+"/", list)
	}
	return list
}

// apply brings the mirror up to an event, and says what is wrong with it. With
// strict nothing may appear over something else, or go that is not there.
func (m *mirror) apply(w *testWatch, e WatchEvent, strict bool) error {
	rel := func(path string) string { return strings.TrimPrefix(path, w.root+"/") }
	var entry *mirror
	switch e.Kind {
	case WatchCreated:
		if entry = (&mirror{}); e.Type == TypeDirectory {
			entry = newMirror()
		}
	case WatchRenamed:
		if entry = m.take(rel(e.OldPath)); entry == nil {
			return fmt.Errorf("%s: there is no old path", w.line(e))
		}
	case WatchRemoved:
		if m.take(rel(e.Path)) == nil && strict {
			return fmt.Errorf("%s: there is no such path", w.line(e))
		}
		return nil
	default:
		return nil
	}
	folder, name := m.find(rel(e.Path))
	if folder == nil {
		return fmt.Errorf("%s: there is no folder for it", w.line(e))
	}
	if folder.entries[name] != nil && strict && e.Kind == WatchCreated {
		return fmt.Errorf("%s: it is there", w.line(e))
	}
	folder.entries[name] = entry
	return nil
}

// look is the tree as it is.
func look(t *testing.T, root string) *mirror {
	t.Helper()
	m := newMirror()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		folder, name := m.find(path[len(root)+1:])
		folder.entries[name] = &mirror{}
		if entry.IsDir() {
			folder.entries[name] = newMirror()
		}
		return nil
	})
	must(t, err)
	return m
}

func (m *mirror) wantSame(t *testing.T, real *mirror) {
	t.Helper()
	has, want := m.paths("", map[string]bool{}), real.paths("", map[string]bool{})
	var wrong []string
	for path := range has {
		if !want[path] {
			wrong = append(wrong, "too much: "+path)
		}
	}
	for path := range want {
		if !has[path] {
			wrong = append(wrong, "missing: "+path)
		}
	}
	slices.Sort(wrong)
	if len(wrong) > 0 {
		t.Errorf("the mirror differs in %d of %d paths:\n%s", len(wrong), len(want), strings.Join(wrong[:min(20, len(wrong))], "\n"))
	}
}

// meddler does random things to a tree.
type meddler struct {
	*rand.Rand
	root, outside string
	exchange      bool // also does what tells of an arrival over something else
	made          *atomic.Int64
	frozen        *sync.RWMutex // locked while nothing may change
}

// pick is a random path of the tree that is there, or was a moment ago.
func (m *meddler) pick() string {
	path := m.root
	for range 1 + m.IntN(4) {
		dir, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			break
		}
		names, _ := dir.Readdirnames(40)
		dir.Close()
		if len(names) == 0 {
			break
		}
		path = filepath.Join(path, names[m.IntN(len(names))])
	}
	return path
}

// fresh is a path in a random folder of the tree, with a name that never was.
func (m *meddler) fresh() string {
	path := m.pick()
	if info, err := os.Lstat(path); path != m.root && (err != nil || !info.IsDir()) {
		path = filepath.Dir(path)
	}
	return filepath.Join(path, m.name())
}

func (m *meddler) name() string { return fmt.Sprintf("%x", m.made.Add(1)) }

// step does one thing. Most may fail, since others meddle too.
func (m *meddler) step() {
	m.frozen.RLock()
	defer m.frozen.RUnlock()
	victim := m.pick()
	if victim == m.root {
		victim = filepath.Join(m.root, "none")
	}
	switch m.IntN(20) {
	case 0, 1, 2:
		os.WriteFile(m.fresh(), []byte("x"), 0o644)
	case 3, 4:
		os.Mkdir(m.fresh(), 0o755)
	case 5: // a tree at once, filled from below
		path := m.fresh()
		os.MkdirAll(filepath.Join(path, m.name(), m.name()), 0o755)
		os.WriteFile(filepath.Join(path, m.name()), nil, 0o644)
	case 6:
		os.Symlink("..", m.fresh())
	case 7:
		os.Link(victim, m.fresh())
	case 8, 9:
		os.Remove(victim)
	case 10:
		if m.IntN(3) == 0 {
			os.RemoveAll(victim)
		}
	case 11, 12, 13:
		os.Rename(victim, m.fresh())
	case 14:
		if other := m.pick(); m.exchange && other != m.root { // over it
			os.Rename(victim, other)
		}
	case 15:
		if other := m.pick(); m.exchange && other != m.root {
			unix.Renameat2(unix.AT_FDCWD, victim, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
		}
	case 16: // out, and perhaps in again
		away := filepath.Join(m.outside, m.name())
		if os.Rename(victim, away) == nil && m.IntN(2) == 0 {
			os.Rename(away, m.fresh())
		}
	case 17: // made, filled, and moved on
		path := m.fresh()
		os.Mkdir(path, 0o755)
		os.WriteFile(filepath.Join(path, m.name()), nil, 0o644)
		os.Rename(path, m.fresh())
	case 18:
		os.Chmod(victim, 0o755)
	case 19:
		os.WriteFile(victim, []byte("y"), 0o644)
	}
}

// TestWatchMirror compares a tree with a mirror of it that was built from events
// alone, after several goroutines have changed it at random. Only after an
// overflow the mirror looks at the tree, as a client must.
func TestWatchMirror(t *testing.T) {
	t.Run("each once", func(t *testing.T) { testMirror(t, newFixture(t), false, false) })
	t.Run("with exchanges", func(t *testing.T) { testMirror(t, newFixture(t), true, true) })
	t.Run("with a short queue", func(t *testing.T) {
		f := newFixture(t)
		f.watchQueue = 4 << 10
		testMirror(t, f, false, true)
	})
}

func testMirror(t *testing.T, f *fixture, exchange, overflow bool) {
	root, outside := f.mkdir("root"), f.mkdir("outside")
	f.shell(root, `mkdir a b c`)
	w := f.watch(root, WatchOptions{Recursive: true})
	m := look(t, root)
	began := time.Now()
	const meddlers = 4
	total := stress(5_000, 100_000)
	var group sync.WaitGroup
	var made atomic.Int64
	var frozen sync.RWMutex
	for seed := range meddlers {
		group.Go(func() {
			meddle := &meddler{rand.New(rand.NewPCG(uint64(seed), 1)), root, outside, exchange, &made, &frozen}
			for range total / meddlers {
				meddle.step()
			}
		})
	}
	defer group.Wait()
	finished := make(chan error, 1)
	go func() {
		group.Wait()
		finished <- os.WriteFile(filepath.Join(root, "end"), nil, 0o644)
	}()
	counts := map[WatchKind]int{}
	var recent []string
	mark := "" // until it is told, what is told is known
	for ended := false; !ended; {
		event, err := w.Next(w.ctx)
		must(t, err)
		counts[event.Kind]++
		recent = append(recent[max(0, len(recent)-30):], w.line(event))
		switch {
		case event.Kind == WatchOverflow && overflow:
			frozen.Lock()
			mark = filepath.Join(root, fmt.Sprintf("mark-%d", counts[WatchOverflow]))
			must(t, os.WriteFile(mark, nil, 0o644))
			m = look(t, root)
			ended = m.entries["end"] != nil
			frozen.Unlock()
		case event.Kind == WatchOverflow || event.Kind == WatchEnded:
			t.Fatalf("the watch says: %s", w.line(event))
		case mark != "":
			if event.Path == mark && event.Kind == WatchCreated {
				mark = ""
			}
		case event.Path == root+"/end":
			ended = true
			m.entries["end"] = &mirror{}
		default:
			if err := m.apply(w, event, !exchange); err != nil {
				t.Errorf("%v, after\n\t%s", err, strings.Join(recent, "\n\t"))
			}
		}
	}
	must(t, <-finished)
	m.wantSame(t, look(t, root))
	t.Logf("%d steps in %v, %d entries at the end, told: %v", total, time.Since(began).Round(time.Millisecond), len(m.paths("", map[string]bool{})), counts)
}
