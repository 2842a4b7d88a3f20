package fsapi

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestExtractOfNothingSaysNothingOfWhatStays fills the disk at the first file, so
// that the folder goes again.
func TestExtractOfNothingSaysNothingOfWhatStays(t *testing.T) {
	f := newFixture(t)
	dir := f.tmpfs("1m")
	big := tarFile("big", strings.Repeat("x", 3<<20))
	root := tarDir("./", 0o755)
	small := tarFile("a", "b")
	for _, c := range []struct {
		entries []tarEntry
		count   uint64
		says    string
	}{
		{[]tarEntry{big}, 0, ""},
		{[]tarEntry{root, big}, 0, ""},
		{[]tarEntry{small, big}, 1, "stays: 1 entry with 1 byte)"},
		{[]tarEntry{root, small, big}, 2, "stays: 2 entries with 1 byte)"},
	} {
		result, err := f.Extract(f.ctx, f.user, dir+"/out", ExtractOptions{}, bytes.NewReader(craft(t, c.entries...)))
		wantErr(t, "a full disk", err, ErrNoSpace)
		if result.Entries != c.count || c.says == "" && strings.Contains(err.Error(), "stay") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d entries, %v", result.Entries, err)
		}
		_, statErr := os.Lstat(dir + "/out")
		if there := statErr == nil; there != (c.count > 0) {
			t.Errorf("the folder is there: %v", there)
		}
		must(t, os.RemoveAll(dir+"/out"))
	}
}
