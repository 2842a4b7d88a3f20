package fsapi

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// craft makes a tar stream; a header's Size is set to its contents'.
func craft(t *testing.T, list ...tarEntry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, entry := range list {
		entry.Size = int64(len(entry.contents))
		must(t, w.WriteHeader(entry.Header))
		_, err := io.WriteString(w, entry.contents)
		must(t, err)
	}
	must(t, w.Close())
	return out.Bytes()
}

func tarFile(name, contents string) tarEntry {
	return tarEntry{&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, contents}
}

func tarDir(name string, mode int64) tarEntry {
	return tarEntry{&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}, ""}
}

func tarLink(kind byte, name, target string) tarEntry {
	return tarEntry{&tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o777}, ""}
}

// extract unpacks a stream in the user's folder "out".
func (f *fixture) extract(stream []byte, opts ExtractOptions) (TreeResult, error) {
	f.t.Helper()
	return f.Extract(f.ctx, f.user, "out", opts, bytes.NewReader(stream))
}

// wantFailures checks which entries of "out" could not be unpacked, and why.
func (f *fixture) wantFailures(result TreeResult, want map[string]error) {
	f.t.Helper()
	if int(result.FailureCount) != len(want) {
		f.t.Errorf("failures: %+v, want %d", result, len(want))
	}
	for _, failure := range result.Failures {
		reason, ok := want[strings.TrimPrefix(failure.Path, f.path("out")+"/")]
		if !ok {
			f.t.Errorf("a failure that is none: %s: %v", failure.Path, failure.Err)
			continue
		}
		wantErr(f.t, failure.Path, failure.Err, reason)
	}
}

// same compares two trees: names, kinds, contents, modes, times, links.
func same(t *testing.T, want, got string) {
	t.Helper()
	count := 0
	must(t, filepath.WalkDir(want, func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		count++
		below, err := filepath.Rel(want, path)
		must(t, err)
		other := filepath.Join(got, below)
		a, err := os.Lstat(path)
		must(t, err)
		b, err := os.Lstat(other)
		if err != nil {
			t.Error(err)
			return nil
		}
		if a.Mode() != b.Mode() || !a.ModTime().Equal(b.ModTime()) {
			t.Errorf("%q: %v %v became %v %v", below, a.Mode(), a.ModTime(), b.Mode(), b.ModTime())
		}
		switch a.Mode().Type() {
		case 0:
			x, err := os.ReadFile(path)
			must(t, err)
			y, err := os.ReadFile(other)
			must(t, err)
			if !bytes.Equal(x, y) {
				t.Errorf("%q has other contents", below)
			}
		case fs.ModeSymlink:
			x, err := os.Readlink(path)
			must(t, err)
			y, err := os.Readlink(other)
			must(t, err)
			if x != y {
				t.Errorf("%q leads to %q, not %q", below, y, x)
			}
		}
		return nil
	}))
	must(t, filepath.WalkDir(got, func(string, fs.DirEntry, error) error { count--; return nil }))
	if count != 0 {
		t.Errorf("%d entries too few", count)
	}
}

func TestExtractGivesBackWhatWasArchived(t *testing.T) {
	for _, named := range []bool{false, true} {
		for _, c := range []Compression{CompressionNone, CompressionGzip, CompressionZstd} {
			f := newFixture(t)
			f.namedTemp = named
			root := f.plantTree()
			attributes := unix.Setxattr(root+"/plain", "user.origin", []byte("a\x00b"), 0) == nil
			must(t, os.Chmod(root+"/sub", 0o555)) // no obstacle
			f.unclose(root + "/sub")
			stream, packed := f.archive(root, ArchiveOptions{Compression: c})
			result, err := f.extract(stream, ExtractOptions{})
			must(t, err)
			f.unclose(f.path("out/sub"))
			same(t, root, f.path("out"))
			if result.Entries != packed.Entries || result.Bytes != packed.Bytes || result.FailureCount != 0 {
				t.Errorf("packed %+v, unpacked %+v", packed, result)
			}
			if inode(t, f.path("out/plain")).Ino != inode(t, f.path("out/sub/again")).Ino {
				t.Error("the hard link is another file")
			}
			value := make([]byte, 10)
			if n, err := unix.Getxattr(f.path("out/plain"), "user.origin", value); attributes && string(value[:max(n, 0)]) != "a\x00b" {
				t.Errorf("the attribute is %q, %v", value[:max(n, 0)], err)
			}
			if uid := inode(t, f.path("out/plain")).Uid; os.Geteuid() == 0 && uid != testUID {
				t.Errorf("it belongs to %d", uid)
			}
		}
	}
}

// unclose lets the test remove what is in a folder, whoever runs it.
func (f *fixture) unclose(path string) {
	f.t.Cleanup(func() { must(f.t, os.Chmod(path, 0o755)) })
}

// TestExtractStaysInside feeds the ways out that are known, and looks whether
// anything around the folder has changed.
func TestExtractStaysInside(t *testing.T) {
	evil := "evil"
	large := strings.Repeat("evil", smallFile)
	for name, c := range map[string]struct {
		list []tarEntry
		want map[string]error
	}{
		"dots":                {[]tarEntry{tarFile("../victim/file", evil)}, map[string]error{"../victim/file": ErrOutside}},
		"dots inside":         {[]tarEntry{tarFile("a/../../victim/file", evil)}, map[string]error{"a/../../victim/file": ErrOutside}},
		"dots that stay":      {[]tarEntry{tarFile("a/../b", evil)}, map[string]error{"a/../b": ErrOutside}},
		"a folder of dots":    {[]tarEntry{tarDir("..", 0o777)}, map[string]error{"..": ErrOutside}},
		"large with dots":     {[]tarEntry{tarFile("../victim/file", large)}, map[string]error{"../victim/file": ErrOutside}},
		"through a link":      {[]tarEntry{tarLink(tar.TypeSymlink, "a", "../victim"), tarFile("a/file", evil)}, map[string]error{"a/file": fs.ErrInvalid}},
		"large through one":   {[]tarEntry{tarLink(tar.TypeSymlink, "a", "../victim"), tarFile("a/file", large)}, map[string]error{"a/file": fs.ErrInvalid}},
		"a folder through it": {[]tarEntry{tarLink(tar.TypeSymlink, "a", "../victim"), tarDir("a/new", 0o777)}, map[string]error{"a/new": fs.ErrInvalid}},
		"through a chain": {[]tarEntry{
			tarLink(tar.TypeSymlink, "a", "b"), tarLink(tar.TypeSymlink, "b", "../victim"), tarFile("a/file", evil),
		}, map[string]error{"a/file": fs.ErrInvalid}},
		"a link, then a folder": {[]tarEntry{
			tarLink(tar.TypeSymlink, "a", "../victim"), tarDir("a", 0o777), tarFile("a/file", evil),
		}, map[string]error{"a": fs.ErrInvalid, "a/file": fs.ErrInvalid}},
		"a folder, then a link": {[]tarEntry{
			tarDir("a", 0o755), tarLink(tar.TypeSymlink, "a", "../victim"), tarFile("a/file", evil),
		}, map[string]error{"a": ErrIsDirectory}},
		"a link, then a file": {[]tarEntry{tarLink(tar.TypeSymlink, "a", "../victim/file"), tarFile("a", evil)}, nil},
		"a hard link out":     {[]tarEntry{tarLink(tar.TypeLink, "a", "../victim/file"), tarFile("a", evil)}, map[string]error{"a": ErrOutside}},
		"a hard link by a link": {[]tarEntry{
			tarLink(tar.TypeSymlink, "d", "../victim"), tarLink(tar.TypeLink, "a", "d/file"),
		}, map[string]error{"a": fs.ErrInvalid}},
		"a hard link to a link": {[]tarEntry{
			tarLink(tar.TypeSymlink, "s", "../victim/file"), tarLink(tar.TypeLink, "h", "s"), tarFile("h", evil),
		}, nil},
		"attributes by a link": {[]tarEntry{
			tarDir("a", 0o755), tarFile("a/x", evil), tarLink(tar.TypeSymlink, "b", "../victim"), tarDir("b/", 0o700),
		}, map[string]error{"b": fs.ErrInvalid}},
		"the folder as a link": {[]tarEntry{tarLink(tar.TypeSymlink, ".", "../victim")}, map[string]error{".": ErrIsDirectory}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.mkdir("victim")
			f.put("victim/file", "old")
			before := inode(t, f.path("victim/file"))
			result, err := f.extract(craft(t, c.list...), ExtractOptions{})
			must(t, err)
			f.wantOutcome(result, c.want)
			f.wantContent(f.path("victim/file"), "old")
			f.wantNames(f.path("victim"), "file")
			f.wantNames(f.home, "out", "victim")
			if after := inode(t, f.path("victim/file")); after.Mode != before.Mode || after.Nlink != before.Nlink || after.Ctim != before.Ctim {
				t.Errorf("the file outside was %+v, is %+v", before, after)
			}
		})
	}
}

// wantOutcome is wantFailures with fs.ErrInvalid for "a link stands in the way",
// which the kernel calls ELOOP or ENOTDIR.
func (f *fixture) wantOutcome(result TreeResult, want map[string]error) {
	f.t.Helper()
	for i, failure := range result.Failures {
		below, _ := strings.CutPrefix(failure.Path, f.path("out")+"/")
		if want[below] == fs.ErrInvalid && (errors.Is(failure.Err, ErrLoop) || errors.Is(failure.Err, ErrNotDirectory)) {
			result.Failures[i].Err = fs.ErrInvalid
		}
	}
	f.wantFailures(result, want)
}

func TestExtractAbsoluteName(t *testing.T) {
	f := newFixture(t)
	outside := f.path("absolute")
	result, err := f.extract(craft(t, tarFile(outside, "evil"), tarFile("good", "good")), ExtractOptions{})
	must(t, err)
	if result.FailureCount != 1 || !errors.Is(result.Failures[0].Err, ErrOutside) {
		t.Errorf("%+v", result)
	}
	f.wantNames(f.home, "out")
	f.wantContent(f.path("out/good"), "good")
}

// TestExtractSwappedFolder swaps a folder for a link out while entries go into it.
func TestExtractSwappedFolder(t *testing.T) {
	f := newFixture(t)
	f.mkdir("victim")
	var list []tarEntry
	for range 400 {
		list = append(list, tarDir("a", 0o755), tarFile("a/b/file", "x"))
	}
	stream := craft(t, list...)
	out := f.mkdir("out")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				os.Rename(out+"/a", out+"/away")
				os.Symlink("../victim", out+"/a")
				os.Remove(out + "/a")
				os.Rename(out+"/away", out+"/a")
			}
		}
	}()
	_, err := f.extract(stream, ExtractOptions{})
	close(stop)
	<-done
	must(t, err)
	f.wantNames(f.path("victim"))
}

func TestExtractOverWhatIsThere(t *testing.T) {
	f := newFixture(t)
	out := f.mkdir("out")
	f.put("elsewhere", "elsewhere")
	f.put("out/file", "old")
	must(t, os.Link(out+"/file", f.path("hard")))
	f.symlink("../elsewhere", "out/link")
	f.mkdir("out/dir")
	f.put("out/dir/stays", "stays")
	must(t, unix.Mkfifo(out+"/fifo", 0o644))
	f.give(out + "/fifo")
	stream := craft(t, tarFile("file", "new"), tarFile("link", "new"), tarFile("dir", "new"), tarDir("dir/", 0o700),
		tarFile("dir/more", "more"), tarFile("fifo", "new"), tarFile("twice", "first"), tarFile("twice", "second"),
		tarLink(tar.TypeSymlink, "file2", "x"), tarLink(tar.TypeSymlink, "file2", "y"), tarDir("file", 0o755),
		tarLink(tar.TypeLink, "linked", "twice"), tarLink(tar.TypeLink, "linked", "twice"), tarLink(tar.TypeLink, "file2", "twice"))
	result, err := f.extract(stream, ExtractOptions{})
	must(t, err)
	f.wantNames(out, "dir", "fifo", "file", "file2", "link", "linked", "twice")
	f.wantNames(out+"/dir", "more", "stays")
	for name, want := range map[string]string{"file": "new", "link": "new", "dir/stays": "stays", "twice": "second", "linked": "second", "file2": "second"} {
		f.wantContent(filepath.Join(out, name), want)
	}
	f.wantContent(f.path("hard"), "old")
	f.wantContent(f.path("elsewhere"), "elsewhere")
	if _, _, mode := f.owner(out + "/dir"); mode.Perm() != 0o700 {
		t.Errorf("the folder has mode %v", mode)
	}
	if result.FailureCount != 3 {
		t.Errorf("failures: %+v", result.Failures)
	}
}

func TestExtractWithoutReplacing(t *testing.T) {
	for name, list := range map[string][]tarEntry{
		"file":      {tarFile("new", "new"), tarFile("sub/old", "new"), tarFile("later", "x")},
		"large":     {tarFile("new", "new"), tarFile("sub/old", strings.Repeat("x", smallFile+1)), tarFile("later", "x")},
		"link":      {tarFile("new", "new"), tarLink(tar.TypeSymlink, "sub/old", "x"), tarFile("later", "x")},
		"hard link": {tarFile("new", "new"), tarLink(tar.TypeLink, "sub/old", "new"), tarFile("later", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.mkdir("out")
			f.mkdir("out/sub")
			f.put("out/sub/old", "old")
			list = append([]tarEntry{tarDir("sub", 0o700)}, list...) // a folder is entered
			result, err := f.extract(craft(t, list...), ExtractOptions{NoReplace: true})
			wantErr(t, "extracting", err, fs.ErrExist)
			var where *PathError
			if !errors.As(err, &where) || where.Path != f.path("out/sub/old") {
				t.Errorf("the error is about %v", err)
			}
			f.wantContent(f.path("out/sub/old"), "old")
			f.wantContent(f.path("out/new"), "new") // stays
			f.wantNames(f.path("out"), "new", "sub")
			if _, _, mode := f.owner(f.path("out/sub")); mode.Perm() != 0o755 || result.Entries != 2 {
				t.Errorf("the folder has mode %v, %d entries", mode, result.Entries)
			}
		})
	}
}

func TestExtractLimits(t *testing.T) {
	small := craft(t, tarFile("a", "12345"), tarFile("b", "67890"), tarFile("c", "x"))
	hole := craft(t, tarFile("a", strings.Repeat("\x00", 10<<20)))
	var bomb bytes.Buffer
	z, err := zstd.NewWriter(&bomb)
	must(t, err)
	z.Write(hole)
	must(t, z.Close())
	sparse := craft(t, tarEntry{&tar.Header{Name: "s", Typeflag: tar.TypeReg, Mode: 0o644}, ""})
	copy(sparse[124:136], "77777777777\x00") // 8 GiB that do not come
	fixChecksum(sparse)
	for name, c := range map[string]struct {
		stream []byte
		opts   ExtractOptions
		want   string // what is there
	}{
		"bytes":         {small, ExtractOptions{MaxBytes: ptr(uint64(9))}, "a"},
		"entries":       {small, ExtractOptions{MaxEntries: ptr(uint64(2))}, "a b"},
		"a packed bomb": {bomb.Bytes(), ExtractOptions{MaxBytes: ptr(uint64(1 << 20))}, ""},
		"said size":     {sparse, ExtractOptions{MaxBytes: ptr(uint64(1 << 30))}, ""},
		"no entries":    {small, ExtractOptions{MaxEntries: ptr(uint64(0))}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.mkdir("out")
			_, err := f.extract(c.stream, c.opts)
			wantErr(t, name, err, ErrArchiveLimit)
			f.wantNames(f.path("out"), strings.Fields(c.want)...)
		})
	}
	f := newFixture(t)
	result, err := f.extract(small, ExtractOptions{MaxBytes: ptr(uint64(11)), MaxEntries: ptr(uint64(3))})
	if err != nil || result.Bytes != 11 || result.Entries != 3 {
		t.Errorf("what just fits: %+v, %v", result, err)
	}
	deep := strings.Repeat("d/", maxTreeDepth)
	result, err = f.extract(craft(t, tarFile(deep+"x", "x"), tarFile(deep[2:]+"x", "x")), ExtractOptions{})
	if err != nil || result.Entries != 1 || result.FailureCount != 1 || !errors.Is(result.Failures[0].Err, ErrTooDeep) {
		t.Errorf("depth: %+v, %v", result, err)
	}
}

func fixChecksum(header []byte) {
	copy(header[148:156], "        ")
	sum := 0
	for _, b := range header[:512] {
		sum += int(b)
	}
	for i := range 6 {
		header[153-i] = byte('0' + sum&7)
		sum >>= 3
	}
	header[154] = 0
}

func TestExtractHeadersWithoutEnd(t *testing.T) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "x", PAXRecords: map[string]string{"a.b": strings.Repeat("x", 1<<19)}}))
	must(t, w.Flush())
	header := out.Bytes()
	header[156] = tar.TypeXHeader // one for the next entry, which never comes
	fixChecksum(header)
	f := newFixture(t)
	_, err := f.Extract(f.ctx, f.user, "out", ExtractOptions{}, &repeated{header, nil})
	wantErr(t, "headers only", err, ErrArchiveLimit)
	must(t, w.Close())
	_, err = f.Extract(f.ctx, f.user, "out", ExtractOptions{}, io.MultiReader(bytes.NewReader(craft(t)), &repeated{make([]byte, 4096), nil}))
	wantErr(t, "zeros only", err, ErrArchiveLimit)
	f.wantNames(f.home)
}

// repeated gives the same bytes for ever.
type repeated struct{ of, rest []byte }

func (r *repeated) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		r.rest = r.of
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func TestExtractDamagedStreams(t *testing.T) {
	whole := craft(t, tarFile("a", "first"), tarFile("b", strings.Repeat("second", 1000)))
	var packed bytes.Buffer
	g := gzip.NewWriter(&packed)
	g.Write(whole)
	must(t, g.Close())
	wrongSum := bytes.Clone(packed.Bytes())
	wrongSum[len(wrongSum)-6] ^= 1
	wrongHeader := bytes.Clone(whole)
	wrongHeader[1024+5] ^= 1
	for name, stream := range map[string][]byte{
		"empty":                {},
		"no archive":           []byte("hello, this is no archive"),
		"in a header":          whole[:100],
		"in contents":          whole[:3000],
		"between entries":      whole[:1024],
		"without an end mark":  whole[:len(whole)-1024],
		"wrong header":         wrongHeader,
		"half of gzip":         packed.Bytes()[:packed.Len()/2],
		"gzip without its sum": packed.Bytes()[:packed.Len()-3],
		"gzip's wrong sum":     wrongSum,
		"only gzip's magic":    packed.Bytes()[:4],
		"only zstd's magic":    zstdMagic,
		"bzip2":                []byte("BZh91AY&SY"),
		"xz":                   xzMagic,
		"followed by more":     append(bytes.Clone(whole), "more"...),
		"two archives":         append(bytes.Clone(whole), whole...),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.mkdir("out")
			result, err := f.extract(stream, ExtractOptions{})
			wantErr(t, name, err, ErrBadArchive)
			var where *PathError
			if !errors.As(err, &where) || where.Path != "out" {
				t.Errorf("the error is %v", err)
			}
			// Whatever is there is whole, and no litter.
			for _, entry := range must2(os.ReadDir(f.path("out"))) {
				f.wantContent(f.path("out", entry.Name()), map[string]string{"a": "first", "b": strings.Repeat("second", 1000)}[entry.Name()])
				result.Entries--
			}
			if result.Entries != 0 {
				t.Errorf("%d entries are counted that are not there", result.Entries)
			}
		})
	}
	f := newFixture(t)
	_, err := f.extract(append(bytes.Clone(whole), make([]byte, 10<<10)...), ExtractOptions{})
	must(t, err) // padding
	_, err = f.extract(packed.Bytes(), ExtractOptions{Compression: CompressionZstd})
	wantErr(t, "the wrong compression", err, ErrBadArchive)
	_, err = f.Extract(f.ctx, f.user, "nothing", ExtractOptions{}, strings.NewReader("x"))
	wantErr(t, "no archive", err, ErrBadArchive)
	f.wantNames(f.home, "out") // what was made for nothing is gone
}

func must2[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestExtractSendersError(t *testing.T) {
	f := newFixture(t)
	broken := errors.New("the line is dead")
	whole := craft(t, tarFile("a", "first"), tarFile("b", strings.Repeat("x", 1<<20)))
	_, err := f.Extract(f.ctx, f.user, "out", ExtractOptions{}, io.MultiReader(bytes.NewReader(whole[:100_000]), iotest.ErrReader(broken)))
	wantErr(t, "a broken sender", err, broken)
	if errors.Is(err, ErrBadArchive) {
		t.Errorf("the archive is blamed: %v", err)
	}
	f.wantNames(f.path("out"), "a") // and nothing of b
	gone := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(f.ctx)
	cancel(gone)
	_, err = f.Extract(ctx, f.user, "out", ExtractOptions{}, bytes.NewReader(whole))
	wantErr(t, "a cancelled call", err, gone)
}

func TestExtractRefusals(t *testing.T) {
	f := newFixture(t)
	f.put("file", "x")
	empty := bytes.NewReader(craft(t))
	_, err := f.Extract(f.ctx, f.user, "file", ExtractOptions{}, empty)
	wantErr(t, "into a file", err, ErrNotDirectory)
	_, err = f.Extract(f.ctx, f.user, "", ExtractOptions{}, empty)
	wantInvalid(t, "no path", err, "path")
	_, err = f.Extract(f.ctx, f.user, "x", ExtractOptions{Compression: 9}, empty)
	wantInvalid(t, "a bad compression", err, "compression")
	if os.Geteuid() == 0 {
		_, err = f.Extract(f.ctx, f.user, "x", ExtractOptions{KeepOwners: true}, empty)
		wantInvalid(t, "another's owners", err, "keep_owners")
		_, err = f.Extract(f.ctx, f.user, "/root-only-in-a-test", ExtractOptions{}, empty)
		wantErr(t, "where the user may not", err, fs.ErrPermission)
	}
}

func TestExtractSpecialBitsAndOwners(t *testing.T) {
	f := newFixture(t)
	list := []tarEntry{tarFile("suid", "x"), tarDir("sgid", 0o2755), {&tar.Header{Typeflag: tar.TypeFifo, Name: "fifo", Mode: 0o604}, ""},
		{&tar.Header{Typeflag: tar.TypeChar, Name: "null", Mode: 0o666, Devmajor: 1, Devminor: 3}, ""}}
	list[0].Mode = 0o6755
	for i := range list {
		list[i].Uid, list[i].Gid, list[i].Uname, list[i].Gname = 4242, 4343, "no-such", "share"
	}
	list[1].Uname = otherUser
	result, err := f.extract(craft(t, list...), ExtractOptions{})
	must(t, err)
	f.wantFailures(result, map[string]error{"null": ErrNotSupportedType})
	for name, want := range map[string]uint32{"suid": 0o755, "sgid": 0o755, "fifo": 0o604} {
		if st := inode(t, f.path("out", name)); st.Mode&0o7777 != want || f.user != "" && st.Uid != testUID {
			t.Errorf("%s has mode %o and owner %d", name, st.Mode, st.Uid)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	result, err = f.Extract(f.ctx, "root", f.path("kept"), ExtractOptions{KeepOwners: true}, bytes.NewReader(craft(t, list...)))
	must(t, err)
	for name, want := range map[string][3]uint32{"suid": {0o6755, 4242, shareGID}, "sgid": {0o2755, otherUID, shareGID}, "fifo": {0o604, 4242, shareGID}} {
		if st := inode(t, f.path("kept", name)); st.Mode&0o7777 != want[0] || st.Uid != want[1] || st.Gid != want[2] {
			t.Errorf("%s has mode %o and owner %d:%d, want %o", name, st.Mode&0o7777, st.Uid, st.Gid, want)
		}
	}
	if result.FailureCount == 0 && inode(t, f.path("kept/null")).Rdev != unix.Mkdev(1, 3) {
		t.Error("the device is another one")
	}
}

func TestExtractMakesHoles(t *testing.T) {
	f := newFixture(t)
	file := f.put("sparse", "")
	must(t, os.Truncate(file, 64<<20))
	h, err := os.OpenFile(file, os.O_WRONLY, 0)
	must(t, err)
	_, err = h.WriteAt([]byte("middle"), 32<<20+5)
	must(t, err)
	must(t, h.Close())
	stream, _ := f.archive("sparse", ArchiveOptions{Compression: CompressionZstd})
	if len(stream) > 1<<20 {
		t.Errorf("packed it has %d bytes", len(stream))
	}
	_, err = f.extract(stream, ExtractOptions{})
	must(t, err)
	if st := inode(t, f.path("out/sparse")); st.Size != 64<<20 || st.Blocks > 64 {
		t.Errorf("%d bytes take %d blocks", st.Size, st.Blocks)
	}
	got, err := f.read(f.user, f.path("out/sparse"), 32<<20, 16)
	if err != nil || got != "\x00\x00\x00\x00\x00middle\x00\x00\x00\x00\x00" {
		t.Errorf("it has %q, %v", got, err)
	}
}

func TestExtractOnAFullDisk(t *testing.T) {
	f := newFixture(t)
	dir := f.tmpfs("1m")
	for _, size := range []int{smallFile / 2, 3 << 20} {
		list := []tarEntry{tarFile("first", "first")}
		for i := range 40 {
			list = append(list, tarFile("f"+string(rune('a'+i)), strings.Repeat("x", size)))
		}
		result, err := f.Extract(f.ctx, f.user, dir+"/out", ExtractOptions{}, bytes.NewReader(craft(t, list...)))
		wantErr(t, "a full disk", err, ErrNoSpace)
		if !strings.Contains(err.Error(), "stay") || result.Entries == 0 {
			t.Errorf("the error does not say what is there: %v", err)
		}
		for _, entry := range must2(os.ReadDir(dir + "/out"))[1:] {
			if got := must2(os.ReadFile(dir + "/out/" + entry.Name())); len(got) != size && len(got) != len("first") {
				t.Errorf("%s has %d bytes", entry.Name(), len(got))
			}
		}
		must(t, f.remove(f.user, dir+"/out", RemoveOptions{Recursive: true}))
	}
}

func TestExtractFolderTimesComeLast(t *testing.T) {
	f := newFixture(t)
	when := time.Date(1999, 1, 2, 3, 4, 5, 6, time.UTC)
	list := []tarEntry{tarDir("./", 0o711), tarDir("a", 0o500), tarDir("a/b", 0o500), tarFile("a/b/x", "x"), tarFile("a/y", "y"), tarFile("missing/z", "z")}
	for i := range list {
		list[i].ModTime, list[i].Format = when, tar.FormatPAX
	}
	_, err := f.extract(craft(t, list...), ExtractOptions{})
	must(t, err)
	f.unclose(f.path("out/a"))
	f.unclose(f.path("out/a/b"))
	for name, mode := range map[string]fs.FileMode{".": 0o711, "a": 0o500, "a/b": 0o500, "a/b/x": 0o644} {
		info, err := os.Stat(f.path("out", name))
		must(t, err)
		if !info.ModTime().Equal(when) || info.Mode().Perm() != mode {
			t.Errorf("%s is %v %v", name, info.Mode(), info.ModTime())
		}
	}
	// A folder that was there already keeps what it had, unless it is in the archive by name.
	must(t, os.Chmod(f.path("out"), 0o755))
	_, err = f.extract(craft(t, list...), ExtractOptions{})
	must(t, err)
	if _, _, mode := f.owner(f.path("out")); mode.Perm() != 0o755 {
		t.Errorf("the folder itself has mode %v", mode)
	}
}

func TestExtractAsAUserHasTheUsersRights(t *testing.T) {
	f := newFixture(t)
	needRoot(t)
	out := f.mkdir("out")
	must(t, os.Mkdir(out+"/roots", 0o755))
	result, err := f.extract(craft(t, tarFile("roots/x", "x"), tarDir("roots", 0o777), tarFile("mine", "x")), ExtractOptions{})
	must(t, err)
	if result.FailureCount != 2 {
		t.Errorf("%+v", result)
	}
	for _, failure := range result.Failures {
		wantErr(t, failure.Path, failure.Err, fs.ErrPermission)
	}
	f.wantNames(out + "/roots")
	if _, _, mode := f.owner(out + "/roots"); mode.Perm() != 0o755 {
		t.Errorf("its mode is %v", mode)
	}
}

func TestExtractManyFolders(t *testing.T) {
	// More than wait for their attributes: in the order of a walk all get them.
	f := newFixture(t)
	f.mkdir("out")
	x := &extractor{fsys: f.FS, ctx: f.ctx, full: f.path("out"), root: -1, parent: -1}
	must(t, x.open())
	defer unix.Close(x.root)
	must(t, os.MkdirAll(f.path("out/a/b"), 0o755))
	id := func(name string) fileID {
		st := inode(t, f.path("out", name))
		return fileID{st.Dev, st.Ino}
	}
	for _, name := range []string{"a", "a/b"} {
		x.folders.list = append(x.folders.list, pendingFolder{name: name, id: id(name), mode: 0o700, owner: nobodyElse})
	}
	x.settle("a/c")
	if len(x.folders.list) != 1 || x.folders.list[0].name != "a" || x.folders.bytes != 1 {
		t.Errorf("waiting are %+v", x.folders.list)
	}
	if _, _, mode := f.owner(f.path("out/a/b")); mode.Perm() != 0o700 {
		t.Errorf("the settled one has %v", mode)
	}
	x.folders.list[0].id = fileID{}
	x.settle("")
	if x.result.FailureCount != 1 || !errors.Is(x.result.Failures[0].Err, syscall.ESTALE) {
		t.Errorf("a swapped folder gives %+v", x.result)
	}
}

// FuzzExtract unpacks arbitrary bytes: nothing outside may change, whatever is
// in them.
func FuzzExtract(f *testing.F) {
	add := func(list ...tarEntry) {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, entry := range list {
			entry.Size = int64(len(entry.contents))
			if w.WriteHeader(entry.Header) == nil {
				io.WriteString(w, entry.contents)
			}
		}
		w.Close()
		f.Add(out.Bytes())
		var packed bytes.Buffer
		g := gzip.NewWriter(&packed)
		g.Write(out.Bytes())
		g.Close()
		f.Add(packed.Bytes())
	}
	add(tarFile("a", "x"), tarDir("d/", 0o700), tarFile("d/b", "y"))
	add(tarFile("../victim/file", "x"), tarFile("/tmp/x", "x"))
	add(tarLink(tar.TypeSymlink, "a", "../victim"), tarFile("a/file", "x"), tarDir("a", 0o777))
	add(tarLink(tar.TypeLink, "a", "../victim/file"), tarFile("a", "x"))
	f.Add([]byte("\x28\xb5\x2f\xfd\x00\x00"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		dir := t.TempDir()
		must(t, os.MkdirAll(dir+"/victim", 0o755))
		must(t, os.WriteFile(dir+"/victim/file", []byte("old"), 0o644))
		before := inode(t, dir+"/victim/file")
		limit := ptr(uint64(1 << 20))
		fsys := New(Config{DefaultUser: func() string { return "root" }})
		if os.Geteuid() != 0 {
			fsys = New(Config{})
		}
		_, err := fsys.Extract(t.Context(), "", dir+"/out", ExtractOptions{MaxBytes: limit, MaxEntries: ptr(uint64(1000))}, bytes.NewReader(stream))
		if err != nil && !errors.Is(err, ErrBadArchive) && !errors.Is(err, ErrArchiveLimit) {
			t.Errorf("a stream ends with %v", err)
		}
		after := inode(t, dir+"/victim/file")
		if after.Ctim != before.Ctim || after.Nlink != 1 || len(must2(os.ReadDir(dir+"/victim"))) != 1 {
			t.Error("something outside has changed")
		}
		for _, entry := range must2(os.ReadDir(dir)) {
			if entry.Name() != "out" && entry.Name() != "victim" {
				t.Errorf("%q was made outside", entry.Name())
			}
		}
		must(t, fsys.removeAll(t, dir+"/out"))
	})
}

// removeAll removes what was unpacked, folders without permissions included.
func (fsys *FS) removeAll(t *testing.T, path string) error {
	_, err := fsys.Remove(t.Context(), "", path, RemoveOptions{Recursive: true, IgnoreMissing: true})
	if errors.Is(err, fs.ErrPermission) {
		filepath.WalkDir(path, func(path string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return nil
		})
		return os.RemoveAll(path)
	}
	return err
}

func TestAsideHandsPanicsOver(t *testing.T) {
	f := newFixture(t)
	acc, err := f.account(f.user)
	must(t, err)
	broken := errors.New("broken")
	wantErr(t, "aside", f.aside(f.ctx, acc, func() error { return broken })(), broken)
	wait := f.aside(f.ctx, acc, func() error { panic("in the worker") })
	defer func() {
		if recover() == nil {
			t.Error("the panic was lost")
		}
	}()
	must(t, wait())
}
