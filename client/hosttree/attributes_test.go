package hosttree

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"testing"
	"time"
)

// TestUnpackAttributes: whatever an entry is, and whatever was in its place, it gets the stream's time, and
// of the stream's mode the permissions that the umask leaves.
func TestUnpackAttributes(t *testing.T) {
	const longest = 3 * holeBytes
	when := time.Date(2001, 2, 3, 4, 5, 6, 123456789, time.UTC)
	kinds := []struct {
		name string
		kind byte
		size int64
	}{
		{"small", tar.TypeReg, 5}, {"empty", tar.TypeReg, 0}, {"large", tar.TypeReg, longest}, {"link", tar.TypeSymlink, 0}, {"new/", tar.TypeDir, 0},
		{"new/small", tar.TypeReg, 5}, {"new/large", tar.TypeReg, longest}, {"new/link", tar.TypeSymlink, 0}, {"new/dir/", tar.TypeDir, 0},
	}
	var stream bytes.Buffer
	w := tar.NewWriter(&stream)
	for _, k := range kinds {
		h := &tar.Header{Typeflag: k.kind, Name: k.name, Size: k.size, Mode: 0o7777, ModTime: when, Format: tar.FormatPAX}
		if k.kind == tar.TypeSymlink {
			h.Linkname = "no/where"
		}
		must(t, w.WriteHeader(h))
		_, err := w.Write(bytes.Repeat([]byte("x"), int(k.size)))
		must(t, err)
	}
	must(t, w.Close())
	for _, umask := range []fs.FileMode{0, 0o022, 0o077} {
		dir := t.TempDir()
		for _, old := range []string{"small", "link"} {
			must(t, os.Symlink("/somewhere", dir+"/"+old))
		}
		must(t, os.WriteFile(dir+"/large", []byte("old"), 0o600))
		summary, err := Unpack(t.Context(), bytes.NewReader(stream.Bytes()), dir, Options{Umask: umask})
		if err != nil || summary.FailureCount > 0 {
			t.Fatalf("%+v, %v", summary, err)
		}
		for _, k := range kinds {
			info, err := os.Lstat(dir + "/" + k.name)
			must(t, err)
			want := 0o777 &^ umask
			if k.kind == tar.TypeSymlink {
				want = fs.ModePerm // that of all links
			}
			if info.Mode()&^fs.ModeType != want || !info.ModTime().Equal(when) {
				t.Errorf("umask %03o: %s is %v from %v", umask, k.name, info.Mode(), info.ModTime())
			}
		}
	}
}
