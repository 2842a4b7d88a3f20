package fsapi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/fscred"
)

// secret makes a folder of root's with a file that nobody else may read.
func secret(t *testing.T) (dir, file string) {
	t.Helper()
	dir = scratch(t, "")
	file = filepath.Join(dir, "secret")
	must(t, os.WriteFile(file, []byte("secret"), 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "closed"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "closed/inner"), []byte("secret"), 0o666))
	must(t, os.Chmod(filepath.Join(dir, "closed/inner"), 0o666))
	return dir, file
}

// operations are all calls, each with a path that is a trap.
func (f *fixture) operations(path string) map[string]error {
	results := map[string]error{}
	_, results["read"] = f.read(f.user, path, 0, 1)
	for name, opts := range map[string]WriteOptions{
		"write": {}, "append": {Append: true}, "offset": {Offset: ptr[uint64](0)}, "parents": {CreateParents: true}, "mode": {Mode: ptr[uint32](0o777)},
	} {
		_, results[name] = f.write(f.user, path, "overwritten", opts)
	}
	_, results["read below"] = f.read(f.user, path+"/inner", 0, 1)
	_, results["write below"] = f.write(f.user, path+"/inner", "overwritten", WriteOptions{CreateParents: true})
	_, results["mkdir below"] = f.makeDir(f.user, path+"/made", nil, true)
	results["remove below"] = f.remove(f.user, path+"/inner", RemoveOptions{Recursive: true})
	results["list"] = f.List(f.ctx, f.user, path, ListOptions{Depth: 3, Hidden: true}, func(Entry) error { return nil })
	results["move from below"] = f.move(path+"/inner", "stolen", MoveOptions{})
	results["copy from"] = f.copyErr(path, "stolen", CopyOptions{FollowLinks: true})
	results["copy from below"] = f.copyErr(path+"/inner", "stolen", CopyOptions{Recursive: true})
	results["copy to below"] = f.copyErr("mine", path+"/mine", CopyOptions{})
	_, results["link below"] = f.Link(f.ctx, f.user, "x", path+"/link", true)
	results["mode"] = f.setErr(f.user, path, AttributeChanges{Mode: ptr[uint32](0o777)})
	results["times"] = f.setErr(f.user, path, AttributeChanges{ModTime: &time.Time{}})
	results["move to below"] = f.move("mine", path+"/mine", MoveOptions{})
	return results
}

func TestTrapsPlantedInTheUsersFolder(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir, file := secret(t)
	f.put("mine", "mine")
	f.symlink(file, "to-file")
	f.symlink(filepath.Join(dir, "closed"), "to-closed")
	f.symlink("/etc/shadow", "to-shadow")
	f.symlink("to-shadow", "to-to-shadow")
	f.symlink("/", "to-root")
	f.symlink("/proc/1", "to-init")
	must(t, os.Link(file, f.path("hard"))) // as protected_hardlinks=0 would let the user
	shadow, err := os.ReadFile("/etc/shadow")
	must(t, err)

	for _, path := range []string{
		"to-file", "to-closed", "to-shadow", "to-to-shadow", "to-root/etc/shadow", "to-init/environ", "to-init/root", "to-init/cwd", "hard",
		"/proc/self/root/etc/shadow", "/proc/thread-self/cwd", "/proc/1/mem", file, filepath.Join(dir, "closed"), "/root", "/proc/sys/kernel/core_pattern",
	} {
		for operation, err := range f.operations(path) {
			if err == nil && (operation == "read" || operation == "copy from") && path == "/proc/sys/kernel/core_pattern" {
				continue // everybody may read it
			}
			if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, ErrNotDirectory) && !errors.Is(err, ErrLoop) && !errors.Is(err, ErrIsDirectory) {
				t.Errorf("%s %s: %v", operation, path, err)
			}
		}
	}
	f.wantContent(file, "secret")
	f.wantContent(filepath.Join(dir, "closed/inner"), "secret")
	f.wantContent("/etc/shadow", string(shadow))
	f.wantNames(dir, "closed", "secret")
	f.wantNames(filepath.Join(dir, "closed"), "inner")
	f.wantContent(f.path("mine"), "mine")
	if uid, _, mode := f.owner(file); uid != 0 || mode != 0o600 {
		t.Errorf("root's file: uid %d, mode %v", uid, mode)
	}
}

func TestRootCanWhatRootCan(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir, file := secret(t)
	if got, err := f.read("root", file, 0, 0); err != nil || got != "secret" {
		t.Errorf("%q, %v", got, err)
	}
	_, err := f.write("root", filepath.Join(dir, "closed/inner"), "by root", WriteOptions{})
	must(t, err)
	f.wantContent(filepath.Join(dir, "closed/inner"), "by root")
	_, err = f.write("root", f.path("new"), "x", WriteOptions{})
	must(t, err)
	if uid, _, _ := f.owner(f.path("new")); uid != 0 {
		t.Errorf("root's new file belongs to %d", uid)
	}
	const environ = "/proc/1/environ" // which a container may keep even from root
	_, want := os.ReadFile(environ)
	if got, err := f.read("root", environ, 0, 10); (err == nil) != (want == nil) {
		t.Errorf("%s: %q, %v; outside: %v", environ, got, err, want)
	}
}

func TestSupplementaryGroupsAndStickyFolders(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir := scratch(t, "")
	shared := filepath.Join(dir, "shared")
	must(t, os.WriteFile(shared, []byte("for the group"), 0o640))
	must(t, os.Chown(shared, 0, shareGID))
	if got, err := f.read(testUser, shared, 0, 0); err != nil || got != "for the group" {
		t.Errorf("member: %q, %v", got, err)
	}
	_, err := f.read(otherUser, shared, 0, 0)
	wantErr(t, "not a member", err, fs.ErrPermission)
	_, err = f.read(fmt.Sprintf("%d:%d", otherUID, shareGID), shared, 0, 0)
	must(t, err)

	sticky := filepath.Join(dir, "sticky")
	must(t, os.Mkdir(sticky, 0o777))
	must(t, os.Chmod(sticky, 0o777|fs.ModeSticky))
	_, err = f.write(otherUser, filepath.Join(sticky, "theirs"), "x", WriteOptions{Mode: ptr[uint32](0o644)})
	must(t, err)
	wantErr(t, "remove", f.remove(testUser, filepath.Join(sticky, "theirs"), RemoveOptions{}), fs.ErrPermission)
	_, err = f.write(testUser, filepath.Join(sticky, "theirs"), "y", WriteOptions{})
	wantErr(t, "write", err, fs.ErrPermission)
	f.wantContent(filepath.Join(sticky, "theirs"), "x")

	// A link that another user has put into a shared folder is not written
	// through, whoever writes.
	victim := filepath.Join(dir, "victim")
	must(t, os.WriteFile(victim, []byte("whole"), 0o666))
	for _, target := range []string{victim, filepath.Join(dir, "not-there")} {
		link := filepath.Join(sticky, filepath.Base(target))
		must(t, os.Symlink(target, link))
		must(t, os.Lchown(link, otherUID, otherUID))
		for _, user := range []string{"root", testUser} {
			_, err = f.write(user, link, "hijacked", WriteOptions{})
			wantErr(t, user+" through a foreign link", err, fs.ErrPermission)
		}
	}
	f.wantContent(victim, "whole")
	f.wantNames(dir, "shared", "sticky", "victim")
}

// makePublic makes a file that anybody may read, and does not wait for the
// other side if the path is a FIFO by now.
func makePublic(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|syscall.O_NONBLOCK, 0o666)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString("public")
	return err
}

// TestRaceWithSwappedLinks swaps a file, and a folder on the way, with links to
// root's while all calls go on.
func TestRaceWithSwappedLinks(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir, file := secret(t)
	stop := make(chan struct{})
	var attackers sync.WaitGroup
	acc, err := f.account(f.user)
	must(t, err)
	// The attackers are the user too: as root they would fall for their own
	// links.
	swap := func(name, target string, make func(string) error) {
		attackers.Go(func() {
			path := f.path(name)
			must(t, fscred.Do(acc, func() error {
				for {
					select {
					case <-stop:
						return nil
					default:
					}
					make(path)
					os.RemoveAll(path)
					os.Symlink(target, path)
					os.Remove(path)
				}
			}))
		})
	}
	f.put("mine", "mine")
	swap("way", dir, func(path string) error {
		os.Mkdir(path, 0o777)
		return makePublic(filepath.Join(path, "secret"))
	})
	swap("end", file, makePublic)
	swap("fifo", file, func(path string) error { return syscall.Mkfifo(path, 0o666) })
	var calls sync.WaitGroup
	for _, path := range []string{"way/secret", "end", "fifo"} {
		calls.Go(func() {
			for range 200 {
				if got, err := f.read(f.user, path, 0, 0); err == nil && strings.Contains(got, "secret") {
					t.Errorf("%s: root's file was read", path)
				}
				f.write(f.user, path, "overwritten", WriteOptions{Mode: ptr[uint32](0o666)})
				f.write(f.user, path, "overwritten", WriteOptions{Append: true})
				f.makeDir(f.user, "way/made", nil, true)
				f.remove(f.user, path, RemoveOptions{Recursive: true})
				f.move("mine", path, MoveOptions{})
				f.copy("mine", path, CopyOptions{})
				f.copy(path, "mine", CopyOptions{FollowLinks: true})
				f.Link(f.ctx, f.user, "x", path, true)
				f.SetAttributes(f.ctx, f.user, path, AttributeChanges{Mode: ptr[uint32](0o666)})
				f.move(path, "mine", MoveOptions{})
				f.Stat(f.ctx, f.user, path, true)
				f.Search(f.ctx, f.user, ".", SearchOptions{Pattern: ptr("secret")}, func(m SearchMatch) error {
					t.Errorf("root's file was searched: %+v", m)
					return nil
				})
			}
		})
	}
	calls.Wait()
	close(stop)
	attackers.Wait()
	f.wantContent(file, "secret")
	f.wantNames(dir, "closed", "secret")
	if uid, _, mode := f.owner(file); uid != 0 || mode != 0o600 {
		t.Errorf("root's file: uid %d, mode %v", uid, mode)
	}
}

func TestDevicesWhereAFileIsExpected(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	must(t, unix.Mknod(f.path("mem"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1))))
	for _, path := range []string{"mem", "/dev/kmsg"} {
		if info, err := os.Lstat(path); err == nil && info.Mode().Perm()&0o006 != 0 {
			continue // this system lets everybody
		}
		_, err := f.read(f.user, path, 0, 1)
		wantErr(t, "read "+path, err, fs.ErrPermission)
		_, err = f.write(f.user, path, "x", WriteOptions{})
		wantErr(t, "write "+path, err, fs.ErrPermission)
	}
}

var errFound = errors.New("found")

// TestContentsAreReadAndWrittenWithTheUsersRights has the kernel decide while a file
// is open, which it does by the rights of the thread that reads or writes.
func TestContentsAreReadAndWrittenWithTheUsersRights(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	// The code's address is told only to who may trace the process.
	others := exec.Command("sleep", "600")
	must(t, others.Start())
	defer func() {
		_ = others.Process.Kill()
		_ = others.Wait()
	}()
	for user, tells := range map[string]bool{f.user: false, "root": true} {
		stat, err := f.read(user, fmt.Sprintf("/proc/%d/stat", others.Process.Pid), 0, 0)
		must(t, err)
		const startCode = 23 // as proc_pid_stat(5) counts from 26, behind the name in parentheses
		fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
		if address := fields[startCode]; (address != "0" && address != "1") != tells {
			t.Errorf("%s is told that the code is at %s", user, address)
		}
	}
	_, err := f.Search(f.ctx, f.user, fmt.Sprintf("/proc/%d/stat", others.Process.Pid), SearchOptions{Pattern: ptr(`\) . (\S+ ){23}[01] `)},
		func(SearchMatch) error { return errFound })
	wantErr(t, "a search for no address", err, errFound)
	// Who writes into a set-user-id program makes it an ordinary one, but for root.
	for user, want := range map[string]fs.FileMode{f.user: 0o755, "root": 0o755 | fs.ModeSetuid} {
		for name, opts := range map[string]WriteOptions{"append": {Append: true}, "offset": {Offset: ptr[uint64](1)}} {
			path := f.put("program", "program")
			must(t, os.Chmod(path, 0o755|fs.ModeSetuid))
			_, err := f.write(user, path, "x", opts)
			must(t, err)
			if _, _, mode := f.owner(path); mode != want {
				t.Errorf("%s by %s leaves the mode %v, want %v", name, user, mode, want)
			}
		}
	}
}
