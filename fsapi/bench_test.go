package fsapi

import (
	"fmt"
	"io"
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
