package fsapi

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"
)

// benchFixture is a folder of root's in which root works.
func benchFixture(b *testing.B) (*FS, string) {
	return New(Config{DefaultUser: func() string { return "" }}), b.TempDir()
}

func BenchmarkStat(b *testing.B) {
	fsys, dir := benchFixture(b)
	for b.Loop() {
		if _, err := fsys.Stat(b.Context(), "", dir, true); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkList10000(b *testing.B) {
	fsys, dir := benchFixture(b)
	for i := range 10_000 {
		writeBench(b, fsys, fmt.Sprintf("%s/file-%d", dir, i), nil, 1)
	}
	for b.Loop() {
		count := 0
		err := fsys.List(b.Context(), "", dir, ListOptions{}, func(Entry) error { count++; return nil })
		if err != nil || count != 10_000 {
			b.Fatal(count, err)
		}
	}
}

func writeBench(b *testing.B, fsys *FS, path string, chunk []byte, chunks int) {
	b.Helper()
	h, err := fsys.OpenWrite(b.Context(), "", path, WriteOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Abort()
	for range chunks {
		if _, err := h.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := h.Commit(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkWriteSmall(b *testing.B) {
	fsys, dir := benchFixture(b)
	chunk := pattern(1 << 10)
	for b.Loop() {
		writeBench(b, fsys, dir+"/small", chunk, 1)
	}
}

func BenchmarkWriteAndRead64MiB(b *testing.B) {
	fsys, dir := benchFixture(b)
	chunk := pattern(256 << 10)
	b.SetBytes(2 * 64 << 20)
	for b.Loop() {
		writeBench(b, fsys, dir+"/big", chunk, 256)
		h, err := fsys.OpenRead(b.Context(), "", dir+"/big", 0, nil)
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = h.Read(chunk)
		}
		h.Close()
		if err != io.EOF {
			b.Fatal(err)
		}
	}
}

// BenchmarkSearch looks for a line in 1,000 files of 8 KiB.
func BenchmarkSearch(b *testing.B) {
	dir := b.TempDir()
	for i := range 1000 {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, i), bytes.Repeat([]byte("a line of forty bytes, as text often is.\n"), 200), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for name, opts := range map[string]SearchOptions{
		"literal": {Pattern: ptr("needle")}, "any-case": {Pattern: ptr("needle"), IgnoreCase: true}, "class": {Pattern: ptr(`\d+x`)}, "names": {Include: []string{"**/x*"}},
	} {
		b.Run(name, func(b *testing.B) {
			fsys := New(Config{})
			for b.Loop() {
				if _, err := fsys.Search(b.Context(), "", dir, opts, func(SearchMatch) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCopyTree copies 1,000 files of 1 KiB.
func BenchmarkCopyTree(b *testing.B) {
	dir := b.TempDir()
	if err := os.Mkdir(dir+"/src", 0o755); err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		if err := os.WriteFile(fmt.Sprintf("%s/src/%d", dir, i), make([]byte, 1024), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	fsys := New(Config{})
	for n := 0; b.Loop(); n++ {
		if _, err := fsys.Copy(b.Context(), "", dir+"/src", fmt.Sprintf("%s/dst%d", dir, n), CopyOptions{Recursive: true}); err != nil {
			b.Fatal(err)
		}
	}
}
