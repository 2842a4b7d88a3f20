package fsapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// runHelper is a guestd of its own that begins an upload and is killed in the
// middle of it: mode is "named" or "unnamed", args the user database's root, the
// user and the path.
func runHelper(mode string, args []string) error {
	fsys := New(Config{Accounts: account.Open(args[0])})
	fsys.namedTemp = mode == "named"
	h, err := fsys.OpenWrite(context.Background(), args[1], args[2], WriteOptions{})
	if err != nil {
		return err
	}
	if _, err := h.Write(pattern(1 << 20)); err != nil {
		return err
	}
	fmt.Println("half way")
	_, err = io.Copy(io.Discard, os.Stdin) // until it is killed
	return err
}

// killMidUpload runs the helper and kills it.
func (f *fixture) killMidUpload(mode, path string) {
	f.t.Helper()
	cmd := exec.Command("/proc/self/exe", filepath.Join(filepath.Dir(f.home), "root"), f.user, path)
	cmd.Env = append(os.Environ(), helperMode+"="+mode)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must(f.t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	must(f.t, err)
	must(f.t, cmd.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		f.t.Errorf("the helper said %q, %v", line, err)
	}
	must(f.t, cmd.Process.Kill())
	cmd.Wait()
}

func TestKilledMidUpload(t *testing.T) {
	f := newFixture(t)
	path := f.put("file", "old and whole")
	f.killMidUpload("unnamed", path)
	f.wantContent(path, "old and whole")
	f.wantNames(f.home, "file")

	// Where the file system has no O_TMPFILE litter is left, until the next
	// write of the same path.
	f.killMidUpload("named", path)
	f.wantContent(path, "old and whole")
	f.wantNames(f.home, tempName("file", 0), "file")
	_, err := f.write(f.user, path, "new", WriteOptions{})
	must(t, err)
	f.wantContent(path, "new")
	f.wantNames(f.home, "file")
}

func TestLeftoversOfAMoveAreRemoved(t *testing.T) {
	f := newFixture(t)
	there := f.tmpfs("1m")
	left := filepath.Join(there, tempName("dst", 0))
	entry := filepath.Join(left, tempEntry)
	must(t, os.MkdirAll(entry+"/sub", 0o755))
	must(t, os.Chmod(left, tempFolderMode))
	must(t, os.WriteFile(entry+"/sub/x", nil, 0o644))
	f.give(left, entry, entry+"/sub", entry+"/sub/x")
	f.put("src", "content")
	must(t, f.move("src", there+"/dst", MoveOptions{}))
	f.wantNames(there, "dst")
}

func TestLeftoversOfCopiesAndLinksAreRemoved(t *testing.T) {
	f := newFixture(t)
	f.namedTemp = true
	f.put("src", "content")
	for _, dst := range []string{"dst", "link"} {
		f.put(tempName(dst, 0), "half")
	}
	must(t, f.copyErr("src", "dst", CopyOptions{}))
	f.put("link", "old")
	_, err := f.Link(f.ctx, f.user, "src", "link", true)
	must(t, err)
	f.wantContent(f.path("dst"), "content")
	f.wantNames(f.home, "dst", "link", "src")
}

func TestTemporaryNamesInUseOrForeignAreLeftAlone(t *testing.T) {
	f := newFixture(t)
	f.namedTemp = true
	path := f.put("file", "old")
	first, err := f.OpenWrite(f.ctx, f.user, path, WriteOptions{})
	must(t, err)
	defer first.Abort()
	_, err = first.Write([]byte("first"))
	must(t, err)
	must(t, os.Symlink("/etc/passwd", f.path(tempName("file", 1))))
	must(t, unix.Mkfifo(f.path(tempName("file", 2)), 0o666))
	_, err = f.write(f.user, path, "second", WriteOptions{})
	must(t, err)
	f.wantContent(path, "second")
	_, err = first.Commit()
	must(t, err)
	f.wantContent(path, "first")
	f.wantNames(f.home, tempName("file", 1), tempName("file", 2), "file")
}

func TestNamedTemporaryFiles(t *testing.T) {
	f := newFixture(t)
	f.namedTemp = true
	path := f.put("file", "old")
	h, err := f.OpenWrite(f.ctx, f.user, path, WriteOptions{})
	must(t, err)
	f.wantNames(f.home, tempName("file", 0), "file")
	h.Abort()
	f.wantNames(f.home, "file")
	for _, opts := range []WriteOptions{{}, {Exclusive: true}, {Append: true}, {CreateParents: true, Fsync: true}} {
		result, err := f.write(f.user, "new", "content", opts)
		if err != nil || !result.Created || result.InPlace || result.Info.Mode != 0o644 {
			t.Errorf("%+v: %+v, %v", opts, result, err)
		}
		f.wantContent(f.path("new"), "content")
		_, err = f.write(f.user, "new", "x", WriteOptions{Exclusive: true})
		wantErr(t, "exclusive", err, fs.ErrExist)
		f.wantNames(f.home, "file", "new")
		must(t, os.Remove(f.path("new")))
	}
	if name := tempName(strings.Repeat("long", 60), 63); len(name) > 64 || !strings.HasPrefix(name, tempPrefix) {
		t.Errorf("temporary name %q", name)
	}
}

func TestFullDisk(t *testing.T) {
	f := newFixture(t)
	dir := f.tmpfs("2m")
	path := filepath.Join(dir, "file")
	_, err := f.write(f.user, path, "old and whole", WriteOptions{})
	must(t, err)
	for _, named := range []bool{false, true} {
		f.namedTemp = named
		for _, target := range []string{path, filepath.Join(dir, "a/b/new")} {
			_, err := f.write(f.user, target, string(pattern(4<<20)), WriteOptions{CreateParents: true})
			wantErr(t, target, err, ErrNoSpace)
			f.wantContent(path, "old and whole")
			f.wantNames(dir, "file")
		}
	}
	_, err = f.write(f.user, path, "room again", WriteOptions{})
	must(t, err)
	f.wantContent(path, "room again")
}

// TestSpaceIsTheKernelsDecision has the user's writes stop where the space that ext4
// reserves for root begins. The same capability (CAP_SYS_RESOURCE) would override
// that and a quota.
func TestSpaceIsTheKernelsDecision(t *testing.T) {
	f := newFixture(t)
	dir := f.disk(16<<20, "mkfs.ext4", "-q", "-m", "50")
	var free unix.Statfs_t
	must(t, unix.Statfs(dir, &free))
	size := (free.Bavail + (free.Bfree-free.Bavail)/2) * uint64(free.Bsize) // more than users may take, less than there is
	path := filepath.Join(dir, "file")
	_, err := f.write(f.user, path, "old and whole", WriteOptions{})
	must(t, err)
	_, err = f.write(f.user, path, string(pattern(int(size))), WriteOptions{})
	wantErr(t, "the user", err, ErrNoSpace)
	f.wantContent(path, "old and whole")
	f.wantNames(dir, "file", "lost+found")
	_, err = f.write("root", filepath.Join(dir, "roots"), string(pattern(int(size))), WriteOptions{})
	must(t, err)
}

func TestReadOnlyFileSystem(t *testing.T) {
	f := newFixture(t)
	dir := f.tmpfs("1m")
	path := filepath.Join(dir, "file")
	_, err := f.write(f.user, path, "old", WriteOptions{})
	must(t, err)
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	for _, target := range []string{path, filepath.Join(dir, "new")} {
		_, err = f.write(f.user, target, "x", WriteOptions{})
		wantErr(t, target, err, ErrReadOnly)
	}
	wantErr(t, "remove", f.remove(f.user, path, RemoveOptions{}), ErrReadOnly)
	if got, err := f.read(f.user, path, 0, 0); err != nil || got != "old" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWorkersAreBounded(t *testing.T) {
	f := newFixture(t)
	for range maxWorkers {
		f.workers <- struct{}{}
	}
	gone := errors.New("the client went away")
	ctx, cancel := context.WithCancelCause(f.ctx)
	result := make(chan error)
	go func() {
		_, err := f.Stat(ctx, f.user, ".", true)
		result <- err
	}()
	cancel(gone)
	wantErr(t, "no worker is free", <-result, gone)
	<-f.workers
	_, err := f.Stat(f.ctx, f.user, ".", true)
	must(t, err)
}

// TestTemporaryNamesAllTaken has others take all the names that a path has of its
// own: everything still works, and nothing is written in place for it.
func TestTemporaryNamesAllTaken(t *testing.T) {
	f := newFixture(t)
	shared := f.mkdir("shared")
	must(t, os.Chmod(shared, 0o777|fs.ModeSticky))
	taken := 0
	for _, name := range []string{"file", "new", "link", "packed", "moved"} {
		for slot := range tempSlots {
			path := filepath.Join(shared, tempName(name, slot))
			must(t, unix.Mkfifo(path, 0o600))
			taken++
			if f.user != "" {
				must(t, os.Chown(path, otherUID, otherUID))
			}
		}
	}
	f.put("src", "content")
	for _, named := range []bool{true, false} {
		f.namedTemp = named
		for range 2 { // the second time there is something to replace
			for _, name := range []string{"file", "new"} {
				if result, err := f.write(f.user, "shared/"+name, "written", WriteOptions{}); err != nil || result.InPlace {
					t.Errorf("writing %s: %+v, %v", name, result, err)
				}
			}
			must(t, f.copyErr("src", "shared/file", CopyOptions{}))
			_, err := f.Link(f.ctx, f.user, "src", "shared/link", true)
			must(t, err)
			_, err = f.Extract(f.ctx, f.user, "shared", ExtractOptions{}, bytes.NewReader(craft(t, tarFile("packed", "packed"))))
			must(t, err)
			f.wantContent(f.path("shared/file"), "content")
		}
	}
	if f.user != "" {
		there := f.tmpfs("1m")
		must(t, os.WriteFile(there+"/src", []byte("moved"), 0o644))
		must(t, f.move(there+"/src", "shared/moved", MoveOptions{}))
		must(t, os.Remove(f.path("shared/moved")))
	}
	entries, err := os.ReadDir(shared)
	must(t, err)
	if len(entries) != taken+4 {
		t.Errorf("%d entries, want %d of others' and 4", len(entries), taken)
	}
}

// TestForeignTreesAreNotTakenForLeftovers has somebody put a tree where a move or a
// replacement makes one: it is not removed, which would take as long as its maker
// likes.
func TestForeignTreesAreNotTakenForLeftovers(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	must(t, os.Chmod(f.home, 0o777))
	trap := f.path(tempName("link", 0))
	must(t, os.MkdirAll(trap+"/deep", 0o777))
	must(t, os.Chmod(trap, 0o777))
	must(t, os.Chown(trap, otherUID, otherUID))
	f.put("link", "old")
	_, err := f.Link(f.ctx, f.user, "src", "link", true)
	must(t, err)
	f.wantNames(f.home, filepath.Base(trap), "link")
	f.wantNames(trap, "deep")
}

// Who may write to a folder may give a temporary name to a folder of the user's, whose
// contents he could not remove.
func TestRenamedFoldersAreNotTakenForLeftovers(t *testing.T) {
	f := newFixture(t)
	there := f.tmpfs("1m")
	for i, mode := range []os.FileMode{0o755, 0o700} {
		f.put("src", "content")
		for _, path := range []string{f.path("file"), f.path("link"), filepath.Join(there, "dst")} {
			precious := filepath.Join(filepath.Dir(path), tempName(filepath.Base(path), i))
			must(t, os.MkdirAll(precious, mode))
			must(t, os.WriteFile(precious+"/gold", nil, 0o644))
			f.give(precious, precious+"/gold")
			defer f.wantNames(precious, "gold")
		}
		f.namedTemp = true
		_, err := f.write(f.user, f.path("file"), "new", WriteOptions{})
		must(t, err)
		f.put("link", "old")
		_, err = f.Link(f.ctx, f.user, "src", "link", true)
		must(t, err)
		must(t, f.move("src", there+"/dst", MoveOptions{}))
	}
}
