package fasttar

import (
	"archive/tar"
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

// compare writes a file between two others with both writers, and demands the same
// bytes and the same outcome.
func compare(t *testing.T, h tar.Header, contents []byte) {
	t.Helper()
	other := tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: "other", Size: 3}
	var want bytes.Buffer
	reference := tar.NewWriter(&want)
	write := func(h tar.Header, contents []byte) error {
		if err := reference.WriteHeader(&h); err != nil {
			return err
		}
		_, err := reference.Write(contents)
		return err
	}
	var got bytes.Buffer
	w := NewWriter(&got)
	for _, file := range []struct {
		header   tar.Header
		contents []byte
	}{{other, []byte("one")}, {h, contents}, {other, []byte("two")}} {
		wantErr := write(file.header, file.contents)
		gotErr := w.WriteFile(&file.header, file.contents)
		if (gotErr == nil) != (wantErr == nil) {
			t.Fatalf("%+v: %v, want %v", file.header, gotErr, wantErr)
		}
		if wantErr != nil {
			return
		}
	}
	if gotErr, wantErr := w.Close(), reference.Close(); (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("%+v: Close: %v, want %v", h, gotErr, wantErr)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%+v: another stream than archive/tar's:\n%q\n%q", h, got.Bytes(), want.Bytes())
	}
}

func ordinaryHeader() tar.Header {
	return tar.Header{
		Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: "folder/file", Mode: 0o644, Size: 5, Uid: 1000, Gid: 100,
		Uname: "user", Gname: "users", ModTime: time.Unix(1_700_000_000, 123_456_789),
	}
}

func TestTheSameStreamAsArchiveTar(t *testing.T) {
	for name, change := range map[string]func(*tar.Header){
		"ordinary":              func(*tar.Header) {},
		"whole seconds":         func(h *tar.Header) { h.ModTime = time.Unix(1_700_000_000, 0) },
		"tenths":                func(h *tar.Header) { h.ModTime = time.Unix(1, 100_000_000) },
		"one nanosecond":        func(h *tar.Header) { h.ModTime = time.Unix(0, 1) },
		"no time":               func(h *tar.Header) { h.ModTime = time.Time{} },
		"the zero of Unix":      func(h *tar.Header) { h.ModTime = time.Unix(0, 0) },
		"before Unix":           func(h *tar.Header) { h.ModTime = time.Unix(-1, 5) },
		"the last second":       func(h *tar.Header) { h.ModTime = time.Unix(1<<33-1, 999_999_999) },
		"behind the last":       func(h *tar.Header) { h.ModTime = time.Unix(1<<33, 1) },
		"another time":          func(h *tar.Header) { h.AccessTime = time.Unix(1, 1) },
		"no owner":              func(h *tar.Header) { h.Uname, h.Gname, h.Uid, h.Gid = "", "", 0, 0 },
		"high ids":              func(h *tar.Header) { h.Uid, h.Gid = 1<<21-1, 1<<21 },
		"a long owner":          func(h *tar.Header) { h.Uname = strings.Repeat("u", 33) },
		"no ASCII owner":        func(h *tar.Header) { h.Gname = "größe" },
		"100 bytes":             func(h *tar.Header) { h.Name = strings.Repeat("d/", 49) + "12" },
		"101 bytes":             func(h *tar.Header) { h.Name = strings.Repeat("d/", 49) + "123" },
		"its extension too":     func(h *tar.Header) { h.Name = strings.Repeat("d", 90) + "/12345" },
		"cut behind the slash":  func(h *tar.Header) { h.Name = strings.Repeat("d", 87) + "/12345" },
		"in the root":           func(h *tar.Header) { h.Name = "file" },
		"an absolute name":      func(h *tar.Header) { h.Name = "/etc/file" },
		"a name of dots":        func(h *tar.Header) { h.Name = "./../file" },
		"upwards":               func(h *tar.Header) { h.Name = "../../file" },
		"a dot":                 func(h *tar.Header) { h.Name = "." },
		"a dot behind":          func(h *tar.Header) { h.Name = "folder/." },
		"two dots behind":       func(h *tar.Header) { h.Name = "folder/.." },
		"no name":               func(h *tar.Header) { h.Name = "" },
		"a slash behind":        func(h *tar.Header) { h.Name = "file/" },
		"no ASCII name":         func(h *tar.Header) { h.Name = "gr\xc3\xb6\xc3\x9fe\xff" },
		"a NUL":                 func(h *tar.Header) { h.Name = "a\x00b" },
		"all bits of mode":      func(h *tar.Header) { h.Mode = 0o7777 },
		"a negative mode":       func(h *tar.Header) { h.Mode = -1 },
		"more size than bytes":  func(h *tar.Header) { h.Size = 6 },
		"less size than bytes":  func(h *tar.Header) { h.Size = 4 },
		"attributes":            func(h *tar.Header) { h.PAXRecords = map[string]string{"SCHILY.xattr.user.a": "b"} },
		"a link":                func(h *tar.Header) { h.Typeflag, h.Linkname, h.Size = tar.TypeLink, "other", 0 },
		"a link without a type": func(h *tar.Header) { h.Linkname = "other" },
		"a device":              func(h *tar.Header) { h.Devmajor = 1 },
		"another format":        func(h *tar.Header) { h.Format = tar.FormatGNU },
	} {
		t.Run(name, func(t *testing.T) {
			h := ordinaryHeader()
			change(&h)
			compare(t, h, []byte("12345"))
		})
	}
	for _, size := range []int{0, 1, 511, 512, 513, 100_000} {
		h := ordinaryHeader()
		h.Size = int64(size)
		compare(t, h, bytes.Repeat([]byte{'x'}, size))
	}
}

// TestOrdinaryFilesTakeTheShortWay keeps the comparisons above from comparing
// archive/tar with itself.
func TestOrdinaryFilesTakeTheShortWay(t *testing.T) {
	h := ordinaryHeader()
	if !ordinary(&h) {
		t.Error("an ordinary file is none")
	}
	w := NewWriter(io.Discard)
	contents := []byte("12345")
	if err := w.WriteFile(&h, contents); err != nil {
		t.Fatal(err)
	}
	// One is for the name of the extension.
	if n := testing.AllocsPerRun(100, func() { _ = w.WriteFile(&h, contents) }); n > 1 {
		t.Errorf("%v allocations for a file", n)
	}
}

func FuzzTheSameStreamAsArchiveTar(f *testing.F) {
	f.Add("folder/file", "user", "group", int64(0o644), 1000, 100, int64(1_700_000_000), 123_456_789, []byte("contents"))
	f.Add("", "", "", int64(-1), -1, 1<<21, int64(math.MaxInt64), 1, []byte{})
	f.Fuzz(func(t *testing.T, name, user, group string, mode int64, uid, gid int, seconds int64, nano int, contents []byte) {
		compare(t, tar.Header{
			Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: name, Uname: user, Gname: group, Mode: mode,
			Uid: uid, Gid: gid, ModTime: time.Unix(seconds, int64(nano)), Size: int64(len(contents)),
		}, contents)
	})
}
