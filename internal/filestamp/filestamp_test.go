package filestamp

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func stamp(t *testing.T, path string) Stamp {
	t.Helper()
	s, err := Of(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStampTellsEachChange(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	write := func(path, text string) {
		t.Helper()
		time.Sleep(20 * time.Millisecond) // the kernel's clock for files ticks every few
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s := stamp(t, path); s != (Stamp{}) {
		t.Errorf("no file has stamp %+v", s)
	}
	write(path, "one")
	first := stamp(t, path)
	if first == (Stamp{}) || first != stamp(t, path) {
		t.Errorf("an unchanged file has stamps %+v, %+v", first, stamp(t, path))
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct {
		name string
		make func() error
	}{
		{"other contents of the same size and time", func() error {
			write(path, "two")
			return os.Chtimes(path, info.ModTime(), info.ModTime())
		}},
		{"more contents", func() error { write(path, "three"); return nil }},
		{"another file", func() error {
			write(other, "three")
			return os.Rename(other, path)
		}},
		{"no file", func() error { return os.Remove(path) }},
	} {
		before := stamp(t, path)
		if err := change.make(); err != nil {
			t.Fatal(err)
		}
		if stamp(t, path) == before {
			t.Errorf("%s: not noticed", change.name)
		}
	}
}

func TestErrorNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Of(filepath.Join(path, "below"))
	var named *fs.PathError
	if !errors.As(err, &named) || named.Path != filepath.Join(path, "below") {
		t.Errorf("below a file: %v", err)
	}
}
