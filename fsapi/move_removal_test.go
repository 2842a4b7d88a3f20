package fsapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// snapshot tells all of a tree: names, types, modes, owners, contents.
func (f *fixture) snapshot(root string) string {
	f.t.Helper()
	var all strings.Builder
	must(f.t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		uid, gid, mode := f.owner(path)
		content := []byte{}
		if entry.Type().IsRegular() {
			content, err = os.ReadFile(path)
		}
		fmt.Fprintf(&all, "%s %v %d:%d %q\n", path, mode, uid, gid, content)
		return err
	}))
	return all.String()
}

// own makes something with an owner: a folder if its name ends in a slash.
func own(t *testing.T, path string, uid int, mode fs.FileMode) {
	t.Helper()
	if strings.HasSuffix(path, "/") {
		must(t, os.Mkdir(path, 0o700))
	} else {
		must(t, os.WriteFile(path, []byte("content of "+filepath.Base(path)), 0o600))
	}
	must(t, os.Chown(path, uid, uid))
	must(t, os.Chmod(path, mode))
}

// makeImmutable does what chattr +i does, until the test ends.
func makeImmutable(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { file.Close() })
	const immutable = 0x10 // FS_IMMUTABLE_FL
	must(t, unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, immutable))
	t.Cleanup(func() { must(t, unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, 0)) })
}

// unremovable are sources that the user can read and not remove: src in a folder
// of its own.
var unremovable = map[string]func(t *testing.T, area string){
	"a file in a sticky folder": func(t *testing.T, area string) {
		must(t, os.Chmod(area, 0o777|fs.ModeSticky))
		own(t, area+"/src", otherUID, 0o644)
	},
	"a folder in a sticky folder": func(t *testing.T, area string) {
		must(t, os.Chmod(area, 0o777|fs.ModeSticky))
		own(t, area+"/src/", otherUID, 0o777)
		own(t, area+"/src/x", testUID, 0o644)
	},
	"a file in somebody else's folder": func(t *testing.T, area string) {
		own(t, area+"/src", testUID, 0o644)
	},
	"a sticky folder below": func(t *testing.T, area string) {
		must(t, os.Chmod(area, 0o777))
		own(t, area+"/src/", testUID, 0o755)
		own(t, area+"/src/a", testUID, 0o644)
		own(t, area+"/src/shared/", 0, 0o777|fs.ModeSticky)
		own(t, area+"/src/shared/x", otherUID, 0o644)
		own(t, area+"/src/z", testUID, 0o644)
	},
	"somebody else's folder below": func(t *testing.T, area string) {
		must(t, os.Chmod(area, 0o777))
		own(t, area+"/src/", testUID, 0o755)
		own(t, area+"/src/a", testUID, 0o644)
		own(t, area+"/src/closed/", otherUID, 0o755)
		own(t, area+"/src/closed/x", testUID, 0o644)
		own(t, area+"/src/z", testUID, 0o644)
	},
	"a folder below that one may not write to": func(t *testing.T, area string) {
		must(t, os.Chmod(area, 0o777))
		own(t, area+"/src/", testUID, 0o755)
		own(t, area+"/src/deep/", testUID, 0o755)
		own(t, area+"/src/deep/x", testUID, 0o644)
		must(t, os.Chmod(area+"/src/deep", 0o555))
	},
	"an immutable file below": func(t *testing.T, area string) {
		must(t, os.Chmod(area, 0o777))
		own(t, area+"/src/", testUID, 0o755)
		own(t, area+"/src/a", testUID, 0o644)
		own(t, area+"/src/b", testUID, 0o644)
		makeImmutable(t, area+"/src/b")
	},
	"a mounted file system below": func(t *testing.T, area string) {
		must(t, os.Chmod(area, 0o777))
		own(t, area+"/src/", testUID, 0o755)
		own(t, area+"/src/a", testUID, 0o644)
		own(t, area+"/src/mnt/", testUID, 0o755)
		must(t, unix.Mount("tmpfs", area+"/src/mnt", "tmpfs", 0, "mode=0777"))
		t.Cleanup(func() { must(t, unix.Unmount(area+"/src/mnt", unix.MNT_DETACH)) })
		own(t, area+"/src/mnt/x", testUID, 0o644)
	},
	"a mounted file": func(t *testing.T, area string) {
		must(t, os.Chmod(area, 0o777))
		own(t, area+"/src", testUID, 0o644)
		must(t, unix.Mount(area+"/src", area+"/src", "", unix.MS_BIND, ""))
		t.Cleanup(func() { must(t, unix.Unmount(area+"/src", unix.MNT_DETACH)) })
	},
}

// TestMoveAcrossFileSystemsOfWhatStays moves what cannot be removed: neither side
// may change at all, and nothing is left over.
func TestMoveAcrossFileSystemsOfWhatStays(t *testing.T) {
	for what, prepare := range unremovable {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t)
			// Not tmpfs, which has no immutable files before Linux 6.6.
			area, there := f.disk(16<<20, "mkfs.ext4", "-q"), f.tmpfs("1m")
			must(t, os.Chmod(area, 0o755))
			prepare(t, area)
			old := there + "/old"
			if info, err := os.Stat(area + "/src"); err == nil && info.IsDir() {
				old += "/"
			}
			own(t, old, testUID, 0o755)
			before := f.snapshot(area) + f.snapshot(there)
			for _, dst := range []string{"new", "old"} {
				err := f.move(area+"/src", there+"/"+dst, MoveOptions{})
				if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EBUSY) || strings.Contains(err.Error(), "whole copy") {
					t.Errorf("to %s: %v", dst, err)
				}
				if after := f.snapshot(area) + f.snapshot(there); after != before {
					t.Errorf("to %s:\n%swas\n%s", dst, after, before)
				}
			}
		})
	}
}

// TestMoveAcrossFileSystemsOfSharedFolders moves what the rules do let the user
// remove, though others have a part in it.
func TestMoveAcrossFileSystemsOfSharedFolders(t *testing.T) {
	f := newFixture(t)
	area, there := f.tmpfs("1m"), f.tmpfs("1m")
	own(t, area+"/file", otherUID, 0o644)
	own(t, area+"/sticky/", testUID, 0o777|fs.ModeSticky)
	own(t, area+"/sticky/x", otherUID, 0o644)
	own(t, area+"/empty/", testUID, 0o755)
	own(t, area+"/empty/foreign/", otherUID, 0o755)
	for _, name := range []string{"file", "sticky", "empty"} {
		must(t, f.move(area+"/"+name, there+"/"+name, MoveOptions{}))
	}
	f.wantNames(area)
	f.wantNames(there, "empty", "file", "sticky")
	f.wantNames(there+"/sticky", "x")
	own(t, area+"/roots/", otherUID, 0o777|fs.ModeSticky)
	own(t, area+"/roots/x", testUID, 0o444)
	_, err := f.Move(f.ctx, "root", area+"/roots", there+"/roots", MoveOptions{})
	must(t, err)
	f.wantNames(area)
}

// moveLate moves area/src to there/name across file systems, with something
// happening right before the source is removed.
func (f *fixture) moveLate(area, there, name string, meanwhile func(*publication)) error {
	f.t.Helper()
	acc, err := f.account(f.user)
	must(f.t, err)
	m := &mover{acc: acc, source: area + "/src", destination: there + "/" + name}
	return f.as(f.ctx, acc, func() (err error) {
		for _, side := range []struct {
			at   *endpoint
			path string
		}{{&m.from, m.source}, {&m.to, m.destination}} {
			*side.at, err = newEndpoint("path", side.path, "/")
			must(f.t, err)
			side.at.dir, err = openFolder(side.at.folder)
			must(f.t, err)
			defer unix.Close(side.at.dir)
		}
		info, err := statAt(m.from.dir, "src")
		must(f.t, err)
		temp, err := makeTempFolder(m.to.dir, "temp")
		must(f.t, err)
		defer unix.Close(temp)
		p := publication{mover: m, copied: place{temp, tempEntry}, info: info}
		c := copier{ctx: f.ctx, acc: acc, rules: copyRules{preserve: true, removable: true}}
		must(f.t, c.run(place{m.from.dir, "src"}, p.copied))
		must(f.t, p.publish())
		done := make(chan struct{})
		go func() { // with root's rights
			defer close(done)
			meanwhile(&p)
		}()
		<-done
		whole, err := m.drop(f.ctx, info)
		err = p.settle(whole, err)
		_, cleanErr := removeTree(context.Background(), m.to.dir, "temp")
		must(f.t, cleanErr)
		return err
	})
}

// TestMoveAcrossFileSystemsRefusedLate has the kernel refuse to remove a source
// that could be removed while it was copied: the destination is what it was.
func TestMoveAcrossFileSystemsRefusedLate(t *testing.T) {
	f := newFixture(t)
	for _, kind := range []string{"", "/"} {
		area, there := f.tmpfs("1m"), f.tmpfs("1m")
		own(t, area+"/src"+kind, testUID, 0o555)
		own(t, there+"/old"+kind, testUID, 0o750)
		before := f.snapshot(area) + f.snapshot(there)
		for _, dst := range []string{"new", "old"} {
			err := f.moveLate(area, there, dst, func(*publication) { must(t, os.Chmod(area, 0o755)) })
			wantErr(t, dst, err, fs.ErrPermission)
			must(t, os.Chmod(area, 0o777))
			if after := f.snapshot(area) + f.snapshot(there); after != before || strings.Contains(err.Error(), "whole copy") {
				t.Errorf("%s%s: %v\n%swas\n%s", dst, kind, err, after, before)
			}
		}
	}
}

// TestMoveAcrossFileSystemsThatCannotBeUndone has both sides left, and the error
// say so.
func TestMoveAcrossFileSystemsThatCannotBeUndone(t *testing.T) {
	f := newFixture(t)
	area, there := f.tmpfs("1m"), f.tmpfs("1m")
	own(t, area+"/src", testUID, 0o644)
	own(t, there+"/old", testUID, 0o644)
	err := f.moveLate(area, there, "old", func(p *publication) {
		p.had = hadLost // as where names cannot be exchanged
		must(t, os.Chmod(area, 0o755))
	})
	wantErr(t, "a file", err, fs.ErrPermission)
	f.wantContent(area+"/src", "content of src")
	f.wantContent(there+"/old", "content of src")
	if err == nil || !strings.Contains(err.Error(), "whole copy") {
		t.Errorf("%v", err)
	}

	area = f.tmpfs("1m")
	own(t, area+"/src/", testUID, 0o755)
	own(t, area+"/src/a", testUID, 0o644)
	own(t, area+"/src/closed/", testUID, 0o755)
	own(t, area+"/src/closed/x", testUID, 0o644)
	own(t, area+"/src/z", testUID, 0o644)
	err = f.moveLate(area, there, "tree", func(*publication) { must(t, os.Chown(area+"/src/closed", 0, 0)) })
	var where *PathError
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "whole copy") || !errors.As(err, &where) || where.Path != area+"/src/closed/x" {
		t.Errorf("a tree: %v", err)
	}
	f.wantNames(area, "src")
	f.wantContent(area+"/src/closed/x", "content of x")
	f.wantNames(there+"/tree", "a", "closed", "z")
	f.wantContent(there+"/tree/closed/x", "content of x")
}

// TestMoveAcrossFileSystemsOfWhatHasGone has somebody else take the source away, or
// put another in its place, after it was copied: what was there is moved, and the
// other is not touched.
func TestMoveAcrossFileSystemsOfWhatHasGone(t *testing.T) {
	f := newFixture(t)
	for _, kind := range []string{"", "/"} {
		area, there := f.tmpfs("1m"), f.tmpfs("1m")
		for _, dst := range []string{"gone", "replaced"} {
			own(t, area+"/src"+kind, testUID, 0o755)
			must(t, f.moveLate(area, there, dst, func(*publication) {
				must(t, os.Rename(area+"/src", area+"/elsewhere-"+dst))
				if dst == "replaced" {
					own(t, area+"/src"+kind, testUID, 0o700)
				}
			}))
		}
		f.wantNames(there, "gone", "replaced")
		f.wantNames(area, "elsewhere-gone", "elsewhere-replaced", "src")
	}
}
