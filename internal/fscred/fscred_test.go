package fscred

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/test/need"
)

// guest is a user without an entry anywhere and one supplementary group.
var guest = account.Account{UID: 31001, GID: 31001, Groups: []uint32{31001, 31044}}

var root = account.Account{Name: "root"}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Skip(t, "changing credentials needs root: run the tests as root")
	}
}

// folder is a folder that everybody can enter; t.TempDir's parents are not.
func folder(t *testing.T, mode fs.FileMode) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fscred-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

// put makes a file with exactly that owner, group and mode.
func put(t *testing.T, path string, uid, gid int, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func open(path string, flags int) error {
	file, err := os.OpenFile(path, flags, 0o644)
	if err == nil {
		file.Close()
	}
	return err
}

func TestDenials(t *testing.T) {
	needRoot(t)
	dir := folder(t, 0o755)
	open777 := folder(t, 0o777)
	secret := filepath.Join(dir, "secret")
	put(t, secret, 0, 0, 0o600)
	link := filepath.Join(open777, "link")
	shadow := filepath.Join(open777, "shadow")
	public := filepath.Join(open777, "public")
	put(t, public, 0, 0, 0o644)
	for name, target := range map[string]string{link: secret, shadow: "/etc/shadow"} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	for name, operation := range map[string]func() error{
		"read root's file":          func() error { return open(secret, os.O_RDONLY) },
		"write root's file":         func() error { return open(public, os.O_WRONLY) },
		"read through a link":       func() error { return open(link, os.O_RDONLY) },
		"read /etc/shadow by link":  func() error { return open(shadow, os.O_RDONLY) },
		"write /etc/shadow by link": func() error { return open(shadow, os.O_WRONLY) },
		"create in root's folder":   func() error { return open(filepath.Join(dir, "new"), os.O_CREATE|os.O_WRONLY) },
		"mkdir in root's folder":    func() error { return os.Mkdir(filepath.Join(dir, "sub"), 0o755) },
		"remove from root's folder": func() error { return os.Remove(secret) },
		"chmod root's file":         func() error { return os.Chmod(public, 0o666) },
		"chown root's file":         func() error { return os.Chown(public, int(guest.UID), int(guest.GID)) },
		"give a file away":          func() error { return giveAway(filepath.Join(open777, "mine")) },
		"make a device": func() error {
			return unix.Mknod(filepath.Join(open777, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
		},
		"read init's environment": func() error { return open("/proc/1/environ", os.O_RDONLY) },
		"mount":                   func() error { return unix.Mount("none", open777, "tmpfs", 0, "") },
		"change a kernel setting": func() error { return open("/proc/sys/kernel/core_pattern", os.O_WRONLY) },
		"trusted attribute":       func() error { return unix.Setxattr(public, "trusted.x", []byte("1"), 0) },
	} {
		if err := Do(guest, operation); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v, want a permission error", name, err)
		}
		// The same as root's, which proves that it is the user who was refused.
		if name == "read root's file" || name == "read through a link" {
			if err := Do(root, operation); err != nil {
				t.Errorf("root: %s: %v", name, err)
			}
		}
	}
}

func giveAway(path string) error {
	if err := open(path, os.O_CREATE|os.O_WRONLY); err != nil {
		return fmt.Errorf("making an own file: %v", err)
	}
	return os.Chown(path, 0, 0)
}

func TestNewFilesBelongToTheUserWithUmaskZero(t *testing.T) {
	needRoot(t)
	dir := folder(t, 0o777)
	path := filepath.Join(dir, "mine")
	err := Do(guest, func() error {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666)
		if err != nil {
			return err
		}
		return file.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	if st.Uid != guest.UID || st.Gid != guest.GID || info.Mode().Perm() != 0o666 {
		t.Errorf("uid %d, gid %d, mode %v", st.Uid, st.Gid, info.Mode())
	}
}

func TestSupplementaryGroupsCount(t *testing.T) {
	needRoot(t)
	dir := folder(t, 0o755)
	path := filepath.Join(dir, "shared")
	put(t, path, 0, 31044, 0o640)
	read := func() error { return open(path, os.O_RDONLY) }
	if err := Do(guest, read); err != nil {
		t.Errorf("member of the group: %v", err)
	}
	stranger := account.Account{UID: 31001, GID: 31001}
	if err := Do(stranger, read); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("not a member: %v", err)
	}
	// guestd's own groups must be gone, root's among them.
	put(t, path, 31999, 0, 0o640)
	if err := Do(guest, read); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("group 0 was kept: %v", err)
	}
}

func TestOthersAreUnaffected(t *testing.T) {
	needRoot(t)
	dir := folder(t, 0o700)
	secret := filepath.Join(dir, "secret")
	put(t, secret, 0, 0, 0o600)
	before := statusOfAllThreads(t)
	umask := unix.Umask(0o22)
	unix.Umask(umask)

	inside, leave := make(chan struct{}), make(chan struct{})
	result := make(chan error, 1)
	go func() {
		result <- Do(guest, func() error {
			if err := os.Chdir("/proc"); err != nil {
				return err
			}
			close(inside)
			<-leave
			return open(secret, os.O_RDONLY)
		})
	}()
	<-inside
	if err := open(secret, os.O_RDONLY); err != nil {
		t.Errorf("another goroutine lost its rights: %v", err)
	}
	if now := unix.Umask(umask); now != umask {
		t.Errorf("another thread's umask is %#o", now)
	}
	if wd, err := os.Readlink("/proc/self/cwd"); err != nil || wd == "/proc" {
		t.Errorf("the process's working directory is %s, %v", wd, err)
	}
	close(leave)
	if err := <-result; !errors.Is(err, fs.ErrPermission) {
		t.Errorf("inside: %v", err)
	}
	waitFor(t, "the threads' rights to be the same as before", func() bool {
		after := statusOfAllThreads(t)
		return len(after) == 1 && len(before) == 1 && fmt.Sprint(before) == fmt.Sprint(after)
	})
}

// statusOfAllThreads is the set of different credentials that threads of this
// process have.
func statusOfAllThreads(t *testing.T) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]bool{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the thread ended
		}
		var lines []string
		for line := range strings.Lines(string(data)) {
			name, _, _ := strings.Cut(line, ":")
			switch name {
			case "Uid", "Gid", "Groups", "CapEff", "CapPrm", "Umask":
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		set[strings.Join(lines, " ")] = true
	}
	return set
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for range 2000 {
		if condition() {
			return
		}
		runtime.Gosched()
		unix.Nanosleep(&unix.Timespec{Nsec: 5e6}, nil)
	}
	t.Fatalf("waited in vain for %s", what)
}

func TestManyInParallelAndNoThreadIsLeft(t *testing.T) {
	needRoot(t)
	dir := folder(t, 0o777)
	secret := filepath.Join(dir, "secret")
	put(t, secret, 0, 0, 0o600)
	var wg sync.WaitGroup
	for user := range uint32(16) {
		acc := account.Account{UID: 32000 + user, GID: 33000 + user, Groups: []uint32{33000 + user}}
		wg.Go(func() {
			for n := range 40 {
				path := filepath.Join(dir, fmt.Sprintf("%d-%d", user, n))
				if err := Do(acc, func() error { return ownFile(path, acc, secret) }); err != nil {
					t.Error(err)
				}
				if err := open(secret, os.O_RDONLY); err != nil {
					t.Errorf("outside: %v", err)
				}
			}
		})
	}
	wg.Wait()
	waitFor(t, "the workers' threads to end", func() bool { return len(statusOfAllThreads(t)) == 1 })
}

func ownFile(path string, acc account.Account, secret string) error {
	if err := open(secret, os.O_RDONLY); !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("uid %d opened root's file: %v", acc.UID, err)
	}
	if err := open(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	if st.Uid != acc.UID || st.Gid != acc.GID {
		return fmt.Errorf("%s belongs to %d:%d", path, st.Uid, st.Gid)
	}
	return nil
}

func TestInvalidIDsAreRefused(t *testing.T) {
	for _, acc := range []account.Account{
		{UID: unchanged, GID: 1}, {UID: 1, GID: unchanged}, {UID: 1, GID: 1, Groups: []uint32{1, unchanged}},
	} {
		err := Do(acc, func() error { t.Error("the function ran"); return nil })
		if !errors.Is(err, ErrInvalidID) {
			t.Errorf("%+v: %v", acc, err)
		}
	}
}

func TestMainThreadIsNeverAWorker(t *testing.T) {
	for range 200 {
		err := Do(account.Account{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}, func() error {
			if unix.Gettid() == unix.Getpid() {
				return errors.New("a worker runs on the main thread")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestErrorPanicAndExitReachTheCaller(t *testing.T) {
	own := account.Account{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	boom := errors.New("boom")
	if err := Do(own, func() error { return boom }); err != boom {
		t.Errorf("error: %v", err)
	}
	if err := Do(own, func() error { runtime.Goexit(); return nil }); !errors.Is(err, errExited) {
		t.Errorf("Goexit: %v", err)
	}
	defer func() {
		p, ok := recover().(*PanicError)
		if !ok || p.Value != boom || !strings.Contains(string(p.Stack), "TestErrorPanicAndExit") {
			t.Errorf("recovered %+v", p)
		}
	}()
	err := Do(own, func() error { panic(boom) })
	t.Errorf("Do returned %v after a panic", err)
}
