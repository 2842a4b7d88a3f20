package fsapi

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"guestd.internal/test/need"
)

// archive packs a tree.
func (f *fixture) archive(path string, opts ArchiveOptions) ([]byte, TreeResult) {
	f.t.Helper()
	h, err := f.OpenArchive(f.ctx, f.user, path, opts)
	must(f.t, err)
	defer h.Close()
	var out bytes.Buffer
	result, err := h.Stream(&out)
	must(f.t, err)
	return out.Bytes(), result
}

// tarEntry is an entry as archive/tar reads it.
type tarEntry struct {
	*tar.Header
	contents string
}

// entries reads a plain tar stream with the standard library alone.
func entries(t *testing.T, stream []byte) map[string]tarEntry {
	t.Helper()
	got := map[string]tarEntry{}
	for r := tar.NewReader(bytes.NewReader(stream)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		must(t, err)
		contents, err := io.ReadAll(r)
		must(t, err)
		if _, twice := got[header.Name]; twice {
			t.Errorf("%q is in the archive twice", header.Name)
		}
		got[header.Name] = tarEntry{header, string(contents)}
	}
}

func entryNames(got map[string]tarEntry) string {
	var list []string
	for name := range got {
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// plantTree makes a tree with one of each kind and returns its root.
func (f *fixture) plantTree() string {
	f.t.Helper()
	root := f.mkdir("tree")
	f.mkdir("tree/sub")
	f.mkdir("tree/sub/empty")
	f.put("tree/plain", "plain contents")
	f.put("tree/none", "")
	f.put("tree/sub/large", string(pattern(3*archiveBuffer+17)))
	f.put("tree/odd \xff\n", "odd")
	f.put("tree/"+strings.Repeat("n", 200), "long name")
	f.symlink("../outside", "tree/sub/link")
	f.symlink("no\xffwhere", "tree/broken")
	must(f.t, os.Link(root+"/plain", root+"/sub/again"))
	must(f.t, unix.Mkfifo(root+"/fifo", 0o640))
	f.give(root + "/fifo")
	must(f.t, os.Chmod(root+"/plain", 0o751))
	must(f.t, os.Chmod(root+"/sub/empty", 0o1777))
	must(f.t, os.Chmod(root, 0o750))
	when := time.Date(2001, 2, 3, 4, 5, 6, 123456789, time.UTC)
	for _, name := range []string{"plain", "sub/empty", "sub/link", "sub/large", "fifo", "sub", "."} {
		must(f.t, setTimes(unix.AT_FDCWD, filepath.Join(root, name), when, when))
	}
	return root
}

func TestArchiveKeepsAllOfATree(t *testing.T) {
	f := newFixture(t)
	root := f.plantTree()
	attributes := unix.Setxattr(root+"/plain", "user.origin", []byte("a\x00b"), 0) == nil
	stream, result := f.archive(root, ArchiveOptions{})
	got := entries(t, stream)
	want := "./ broken fifo " + strings.Repeat("n", 200) + " none odd \xff\n plain sub/ sub/again sub/empty/ sub/large sub/link"
	if names := entryNames(got); names != want {
		t.Errorf("it has %q,\nwant %q", names, want)
	}
	if result.Entries != uint64(len(got)) || result.FailureCount != 0 {
		t.Errorf("the result is %+v for %d entries", result, len(got))
	}
	// Which of the two names comes first is the file system's choice.
	first, second := got["plain"], got["sub/again"]
	if first.Typeflag == tar.TypeLink {
		first, second = second, first
	}
	if first.contents != "plain contents" || first.Mode != 0o751 || second.Typeflag != tar.TypeLink || second.Linkname != first.Name {
		t.Errorf("the two names are %+v and %+v", first, second)
	}
	if attributes && first.PAXRecords["SCHILY.xattr.user.origin"] != "a\x00b" {
		t.Errorf("attributes: %q", first.PAXRecords)
	}
	if got["sub/large"].contents != string(pattern(3*archiveBuffer+17)) || got["odd \xff\n"].contents != "odd" {
		t.Error("contents are not the files'")
	}
	if link := got["broken"]; link.Typeflag != tar.TypeSymlink || link.Linkname != "no\xffwhere" {
		t.Errorf("the link is %+v", link.Header)
	}
	if fifo := got["fifo"]; fifo.Typeflag != tar.TypeFifo || fifo.Mode != 0o640 {
		t.Errorf("the FIFO is %+v", fifo.Header)
	}
	for _, name := range []string{"./", "sub/", "sub/empty/", "sub/link", "sub/large"} {
		if ns := got[name].ModTime.Nanosecond(); ns != 123456789 {
			t.Errorf("%s has %d nanoseconds", name, ns)
		}
	}
	if os.Geteuid() == 0 && (got["none"].Uid != testUID || got["none"].Uname != testUser) {
		t.Errorf("the owner is %d %q", got["none"].Uid, got["none"].Uname)
	}
	if result.Bytes != uint64(len("plain contents")+3*archiveBuffer+17+len("oddlong name")) {
		t.Errorf("%d bytes", result.Bytes)
	}
}

func TestArchiveIsReadByTar(t *testing.T) {
	program, err := exec.LookPath("tar")
	if err != nil {
		need.Skip(t, "there is no tar: install it")
	}
	f := newFixture(t)
	root := f.plantTree()
	for _, c := range []Compression{CompressionNone, CompressionGzip} {
		stream, _ := f.archive(root, ArchiveOptions{Compression: c})
		cmd := exec.Command(program, "-d", "-f", "-", "-C", root)
		if c == CompressionGzip {
			cmd.Args = append(cmd.Args, "-z")
		}
		cmd.Stdin = bytes.NewReader(stream)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("tar finds a difference: %v\n%s", err, out)
		}
	}
}

func TestArchiveCompressed(t *testing.T) {
	f := newFixture(t)
	root := f.plantTree()
	plain, _ := f.archive(root, ArchiveOptions{})
	packed, _ := f.archive(root, ArchiveOptions{Compression: CompressionGzip})
	g, err := gzip.NewReader(bytes.NewReader(packed))
	must(t, err)
	unpacked, err := io.ReadAll(g)
	must(t, err)
	if !bytes.Equal(unpacked, plain) {
		t.Error("gzip gives another archive")
	}
	packed, _ = f.archive(root, ArchiveOptions{Compression: CompressionZstd})
	z, err := zstd.NewReader(bytes.NewReader(packed))
	must(t, err)
	defer z.Close()
	unpacked, err = io.ReadAll(z)
	must(t, err)
	if !bytes.Equal(unpacked, plain) || len(packed) >= len(plain) {
		t.Errorf("zstd gives another archive, or one of %d bytes out of %d", len(packed), len(plain))
	}
}

func TestArchiveOfOneFile(t *testing.T) {
	f := newFixture(t)
	f.symlink(f.put("file", "contents"), "link")
	stream, result := f.archive("link", ArchiveOptions{})
	got := entries(t, stream)
	if entryNames(got) != "link" || got["link"].contents != "contents" || got["link"].Typeflag != tar.TypeReg || result.Entries != 1 {
		t.Errorf("got %+v and %+v", got, result)
	}
	h, err := f.OpenArchive(f.ctx, f.user, "file", ArchiveOptions{})
	must(t, err)
	h.Close() // must not leave a descriptor
}

func TestArchiveFilters(t *testing.T) {
	f := newFixture(t)
	root := f.mkdir("tree")
	for _, dir := range []string{"a", "a/b", "skip", "bare"} {
		f.mkdir("tree/" + dir)
	}
	for _, file := range []string{"x.txt", "x.go", "a/b/y.txt", "a/y.go", "skip/z.txt"} {
		f.put("tree/"+file, "x")
	}
	stream, _ := f.archive(root, ArchiveOptions{Include: []string{"*.txt"}, Exclude: []string{"skip"}})
	// Folders are there only for what is in them.
	if got := entryNames(entries(t, stream)); got != "./ a/ a/b/ a/b/y.txt x.txt" {
		t.Errorf("it has %q", got)
	}
	_, err := f.OpenArchive(f.ctx, f.user, root, ArchiveOptions{Include: []string{"["}})
	wantInvalid(t, "a bad glob", err, "include")
}

func TestArchiveTellsWhatItLeavesOut(t *testing.T) {
	f := newFixture(t)
	root := f.mkdir("tree")
	f.put("tree/good", "good")
	socket, err := net.Listen("unix", root+"/socket")
	must(t, err)
	defer socket.Close()
	want := map[string]error{root + "/socket": ErrNotSupportedType}
	if os.Geteuid() == 0 { // nothing is hidden from root's own tests
		must(t, os.WriteFile(root+"/secret", []byte("secret"), 0o600))
		must(t, os.Mkdir(root+"/closed", 0o700))
		must(t, os.WriteFile(root+"/closed/in", []byte("secret"), 0o644))
		want[root+"/secret"], want[root+"/closed"] = fs.ErrPermission, fs.ErrPermission
	}
	stream, result := f.archive(root, ArchiveOptions{})
	got := entries(t, stream)
	if got["good"].contents != "good" || bytes.Contains(stream, []byte("secret contents")) {
		t.Errorf("it has %q", entryNames(got))
	}
	if int(result.FailureCount) != len(want) || len(result.Failures) != len(want) {
		t.Errorf("failures: %+v", result)
	}
	for _, failure := range result.Failures {
		wantErr(t, failure.Path, failure.Err, want[failure.Path])
	}
	for _, bad := range []string{root + "/socket", "/dev/null", "/proc/self/fd/0"} {
		if _, err := f.OpenArchive(f.ctx, f.user, bad, ArchiveOptions{}); err == nil {
			t.Errorf("%s can be archived", bad)
		}
	}
	_, err = f.OpenArchive(f.ctx, f.user, root+"/nothing", ArchiveOptions{})
	wantErr(t, "nothing", err, fs.ErrNotExist)
}

func TestArchiveFailuresAreCountedBeyondWhatIsTold(t *testing.T) {
	f := newFixture(t)
	needRoot(t)
	root := f.mkdir("tree")
	for i := range maxTreeFailures + 20 {
		must(t, os.WriteFile(fmt.Sprintf("%s/%d", root, i), nil, 0o600)) // root's
	}
	_, result := f.archive(root, ArchiveOptions{})
	if len(result.Failures) != maxTreeFailures || result.FailureCount != maxTreeFailures+20 || result.Entries != 1 {
		t.Errorf("%d failures of %d are told, %d entries", len(result.Failures), result.FailureCount, result.Entries)
	}
}

// TestArchiveOfFilesThatChange changes files between their header and their
// contents: the stream must stay whole.
func TestArchiveOfFilesThatChange(t *testing.T) {
	f := newFixture(t)
	root := f.mkdir("tree")
	size := 20 * archiveBuffer
	for _, name := range []string{"grows", "shrinks", "stays"} {
		f.put("tree/"+name, string(pattern(size)))
	}
	h, err := f.OpenArchive(f.ctx, f.user, root, ArchiveOptions{})
	must(t, err)
	defer h.Close()
	var out bytes.Buffer
	changed := false
	result, err := h.Stream(writerFunc(func(p []byte) (int, error) {
		if !changed {
			changed = true
			must(t, os.Truncate(root+"/shrinks", 10))
			must(t, os.Truncate(root+"/grows", int64(size+1)))
		}
		return out.Write(p)
	}))
	must(t, err)
	got := entries(t, out.Bytes())
	if len(got) != 4 || len(got["shrinks"].contents) != size || len(got["grows"].contents) != size || got["stays"].contents != string(pattern(size)) {
		t.Errorf("it has %q", entryNames(got))
	}
	var told []string
	for _, failure := range result.Failures {
		wantErr(t, failure.Path, failure.Err, ErrChanged)
		told = append(told, filepath.Base(failure.Path))
	}
	slices.Sort(told)
	if !slices.Contains(told, "grows") || slices.Contains(told, "stays") {
		t.Errorf("told are %q", told)
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

func TestArchiveTellsOfAFileThatVanishes(t *testing.T) {
	f := newFixture(t)
	root := f.mkdir("tree")
	for i := range 3 * archiveEntries {
		f.put(fmt.Sprintf("tree/%d", i), "x")
	}
	h, err := f.OpenArchive(f.ctx, f.user, root, ArchiveOptions{})
	must(t, err)
	defer h.Close()
	// The names of the whole folder were read at once by now, or will not have them.
	b := newArchiveBatch()
	must(t, f.as(f.ctx, h.acc, func() error { return h.archiver.fill(b) }))
	for i := range 3 * archiveEntries {
		must(t, os.Remove(fmt.Sprintf("%s/%d", root, i)))
	}
	result, err := h.Stream(io.Discard)
	must(t, err)
	if result.FailureCount == 0 {
		t.Error("nothing is told")
	}
	for _, failure := range result.Failures {
		wantErr(t, failure.Path, failure.Err, fs.ErrNotExist)
	}
}

func TestArchiveOfProc(t *testing.T) {
	f := newFixture(t)
	stream, _ := f.archive("/proc/sys/kernel/random", ArchiveOptions{})
	got := entries(t, stream)
	if uuid := got["uuid"]; len(uuid.contents) != 37 { // its size is said to be 0
		t.Errorf("uuid has %q", uuid.contents)
	}
}

func TestArchiveNeverFollowsLinks(t *testing.T) {
	f := newFixture(t)
	f.mkdir("elsewhere")
	f.put("elsewhere/file", "elsewhere")
	root := f.mkdir("tree")
	f.symlink("../elsewhere", "tree/dir")
	f.symlink("../elsewhere/file", "tree/file")
	f.symlink("/proc/self/root", "tree/magic")
	stream, result := f.archive(root, ArchiveOptions{})
	if got := entryNames(entries(t, stream)); got != "./ dir file magic" || result.FailureCount != 0 {
		t.Errorf("it has %q, %+v", got, result)
	}
}

func TestArchiveDepthIsBounded(t *testing.T) {
	f := newFixture(t)
	deep := f.mkdir("tree")
	for range maxTreeDepth + 10 {
		deep += "/d"
		must(t, os.Mkdir(deep, 0o755))
		f.give(deep)
	}
	_, result := f.archive("tree", ArchiveOptions{})
	if result.Entries != maxTreeDepth || len(result.Failures) != 1 {
		t.Fatalf("%d entries, %+v", result.Entries, result.Failures)
	}
	wantErr(t, "the deepest", result.Failures[0].Err, ErrTooDeep)
}

func TestArchiveEndsWithItsContext(t *testing.T) {
	f := newFixture(t)
	root := f.mkdir("tree")
	must(t, os.WriteFile(root+"/huge", nil, 0o644))
	must(t, os.Truncate(root+"/huge", 1<<40)) // a hole
	gone := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(f.ctx)
	h, err := f.OpenArchive(ctx, f.user, root, ArchiveOptions{})
	must(t, err)
	defer h.Close()
	_, err = h.Stream(writerFunc(func(p []byte) (int, error) {
		cancel(gone)
		return len(p), nil
	}))
	wantErr(t, "a cancelled archive", err, gone)

	h, err = f.OpenArchive(f.ctx, f.user, root, ArchiveOptions{})
	must(t, err)
	defer h.Close()
	full := errors.New("no more")
	_, err = h.Stream(writerFunc(func([]byte) (int, error) { return 0, full }))
	wantErr(t, "a writer's error", err, full)
}

func TestArchiveDevices(t *testing.T) {
	f := newFixture(t)
	needRoot(t)
	root := f.mkdir("tree")
	if err := unix.Mknod(root+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		need.Skip(t, "devices cannot be made here: run the tests in a machine of their own")
	}
	stream, _ := f.archive(root, ArchiveOptions{})
	if null := entries(t, stream)["null"]; null.Typeflag != tar.TypeChar || null.Devmajor != 1 || null.Devminor != 3 {
		t.Errorf("it is %+v", null.Header)
	}
}

func inode(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return info.Sys().(*syscall.Stat_t)
}
