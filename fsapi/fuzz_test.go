package fsapi

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// FuzzPath checks what is made of a request's path before the kernel sees it.
func FuzzPath(f *testing.F) {
	for _, path := range []string{"", "/", "//", "a", "a/b/", "../x", "/a//b///", "/.", "..", "\xff/\x00", "~/x", "./\n"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		full, err := absolute("path", path, "/home/user")
		if err != nil {
			var invalid *InvalidError
			if !errors.As(err, &invalid) || path != "" && !strings.Contains(path, "\x00") {
				t.Fatalf("%q: %v", path, err)
			}
			return
		}
		if full[0] != '/' || !strings.HasSuffix(full, path) || strings.Contains(full, "\x00") {
			t.Fatalf("%q became %q", path, full)
		}
		folder, base, slash := split(full)
		if strings.Contains(base, "/") || !strings.HasPrefix(folder, "/") || !strings.HasPrefix(full, folder+base) {
			t.Fatalf("%q split into %q and %q", full, folder, base)
		}
		if rest := full[min(len(full), len(folder+base)):]; strings.Trim(rest, "/") != "" || base != "" && slash != (rest != "") {
			t.Fatalf("%q: %q is left, slash %v", full, rest, slash)
		}
		_, name, _, err := entryName("path", full)
		if err == nil && (name == "" || name == "." || name == "..") {
			t.Fatalf("%q names the entry %q", full, name)
		}
	})
}

// FuzzParseDirent feeds what a hostile FUSE server could make of a folder.
func FuzzParseDirent(f *testing.F) {
	record := make([]byte, 24)
	binary.NativeEndian.PutUint16(record[direntReclen:], 24)
	record[direntType] = 8
	copy(record[direntName:], "name")
	f.Add(append(append([]byte{}, record...), record...))
	f.Add(record[:20])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, buf []byte) {
		for len(buf) > 0 {
			entry, rest, ok := parseDirent(buf)
			if len(rest) >= len(buf) {
				t.Fatal("no progress")
			}
			if ok && (entry.name == "" || entry.name == "." || entry.name == ".." || strings.ContainsAny(entry.name, "/\x00")) {
				t.Fatalf("entry %q", entry.name)
			}
			buf = rest
		}
	})
}
