package fsapi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
)

// FuzzPath checks what is made of a request's path before the kernel sees it.
func FuzzPath(f *testing.F) {
	for _, path := range []string{"", "/", "//", "a", "a/b/", "../x", "/a//b///", "/.", "..", "\xff/\x00", "~/x", "./\n"} {
		f.Add(path)
	}
	f.Add("/" + strings.Repeat("x", maxPath-1))
	f.Add("/" + strings.Repeat("x", maxPath))
	f.Add(strings.Repeat("x/", maxPath/2))
	f.Fuzz(func(t *testing.T, path string) {
		full, err := absolute("path", path, "/home/user")
		if err != nil {
			var invalid *InvalidError
			refusable := path == "" || strings.Contains(path, "\x00") || len("/home/user/")+len(path) > maxPath
			if !errors.As(err, &invalid) || !refusable {
				t.Fatalf("%q: %v", path, err)
			}
			return
		}
		if full[0] != '/' || len(full) > maxPath || !strings.HasSuffix(full, path) || strings.Contains(full, "\x00") {
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

// FuzzLineReader compares with splitting everything at once, whatever the pieces
// that a file is read in.
func FuzzLineReader(f *testing.F) {
	f.Add([]byte("one\ntwo\r\n\nlast"), uint8(3), uint8(5))
	f.Add([]byte("\n\n\r\n"), uint8(1), uint8(1))
	f.Add(bytes.Repeat([]byte("long "), 100), uint8(7), uint8(20))
	f.Fuzz(func(t *testing.T, data []byte, piece, limit uint8) {
		size, most := int(piece)+1, int(limit)+1
		rest := data
		var r lineReader
		r.reset(most, func(p []byte) (int, error) {
			if len(rest) == 0 {
				return 0, io.EOF
			}
			n := copy(p[:min(size, len(p))], rest)
			rest = rest[n:]
			return n, nil
		})
		binary, err := r.binary()
		if err != nil || binary != (bytes.IndexByte(data[:min(len(data), binaryProbe)], 0) >= 0) {
			t.Fatalf("binary: %v, %v", binary, err)
		}
		want := bytes.Split(data, []byte("\n"))
		if len(want[len(want)-1]) == 0 {
			want = want[:len(want)-1]
		}
		for i, line := range want {
			cut := len(line) > most
			if line = line[:min(len(line), most)]; !cut {
				line = bytes.TrimSuffix(line, []byte("\r"))
			}
			got, truncated, err := r.next()
			if err != nil || !bytes.Equal(got, line) || truncated != cut || r.number != uint64(i+1) {
				t.Fatalf("line %d: %q, %v, %v; want %q, %v", r.number, got, truncated, err, line, cut)
			}
		}
		if _, _, err := r.next(); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
	})
}

// FuzzPattern checks that looking for the required literal first loses nothing.
func FuzzPattern(f *testing.F) {
	for _, pattern := range []string{"a.*b", "(foo)+|x", "(?i)k", "\\xff", "a{2}b?", "\uFFFDx"} {
		f.Add(pattern, []byte("aab foo \xffx K"), false)
		f.Add(pattern, []byte("AAB FOO \xffx k"), true)
	}
	f.Fuzz(func(t *testing.T, pattern string, line []byte, ignoreCase bool) {
		p, err := compilePattern(pattern, ignoreCase)
		if err != nil {
			return
		}
		if got, want := p.match(line), p.re.Match(line); got != want {
			t.Errorf("%q matches %q: %v, without the literal %q %v", pattern, line, got, p.literal.text, want)
		}
		end := 0
		for _, r := range p.ranges(line, len(line)) {
			if r.Start < end || r.End <= r.Start || r.End > len(line) {
				t.Errorf("range %v after %d in %d bytes", r, end, len(line))
			}
			end = r.End
		}
	})
}
