package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"guestd.internal/internal/account"
	"guestd.internal/internal/fscred"
	"guestd.internal/internal/spawn"
	"guestd.internal/test/need"
)

// otherUser returns an account that is not root's; without root there is none
// that could be served.
func otherUser(t *testing.T) account.Account {
	t.Helper()
	if os.Getuid() != 0 {
		need.Skip(t, "needs root, to run a kernel as somebody else: go test -exec sudo")
	}
	acc, err := account.Open("").Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	return acc
}

func TestKernelRunsAsItsUser(t *testing.T) {
	acc := otherUser(t)
	var state string
	cs := newContexts(t, func(cfg *Config) {
		cfg.DefaultUser = func() string { return "nobody" }
		state = cfg.StateDir
	})
	out := mustOK(t, cs, "import os; print(os.getuid(), os.geteuid(), os.getgid(), os.getcwd(), oct(os.umask(0o22)))")
	home := "/" // in place of one that is missing, as nobody's mostly is
	if info, err := os.Stat(acc.Home); err == nil && info.IsDir() {
		home = acc.Home
	}
	if want := fmt.Sprintf("%d %d %d %s 0o22\n", acc.UID, acc.UID, acc.GID, home); out.stdout != want {
		t.Errorf("got %q, want %q", out.stdout, want)
	}
	if user := cs.List()[0].User; user != "nobody" {
		t.Errorf("user %q", user)
	}
	folders, err := os.ReadDir(state)
	if err != nil || len(folders) != 1 {
		t.Fatalf("folders %v, %v", folders, err)
	}
	dir := filepath.Join(state, folders[0].Name())
	for path, mode := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, connectionFile): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != mode || info.Sys().(*syscall.Stat_t).Uid != acc.UID {
			t.Errorf("%s: %v of uid %d", path, info.Mode(), info.Sys().(*syscall.Stat_t).Uid)
		}
	}
	stranger := account.Account{UID: acc.UID - 1, GID: acc.GID - 1, Home: "/"}
	err = fscred.Do(stranger, func() error { _, err := os.ReadDir(dir); return err })
	if !errors.Is(err, os.ErrPermission) {
		t.Errorf("another user can enter: %v", err)
	}
}

// A user can put a link to anything into the kernel's folder.
func TestForeignSocketIsRefused(t *testing.T) {
	acc := otherUser(t)
	dir, err := os.MkdirTemp(stateRoot, "f")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "root")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := dialUnix(acc, path); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a socket without permission: %v", err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := dialUnix(acc, path); !errors.Is(err, errForeignPeer) {
		t.Errorf("another user's socket: %v", err)
	}
}

func TestStateDirTooLong(t *testing.T) {
	long := filepath.Join(stateRoot, "s"+strings.Repeat("x", 90))
	cs := newContexts(t, func(cfg *Config) { cfg.StateDir = long })
	defer os.RemoveAll(long)
	if out := execute(t, cs, "1"); out.err == nil || out.err.Name != ErrorKernelStart || !strings.Contains(out.err.Value, "107") {
		t.Errorf("error %+v", out.err)
	}
}

// What a user leaves in the folder is removed with it, and nothing outside.
func TestFolderIsRemovedWhole(t *testing.T) {
	var state string
	cs := newContexts(t, func(cfg *Config) { state = cfg.StateDir })
	outside := t.TempDir()
	mustOK(t, cs, fmt.Sprintf(`
import os
d = os.path.dirname(os.environ['IPYTHONDIR'])
os.makedirs(d + '/a/b')
os.symlink(%q, d + '/a/link')
os.mkfifo(d + '/fifo')
os.chmod(d + '/a/b', 0)`, outside))
	if err := os.WriteFile(filepath.Join(outside, "kept"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := cs.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(state, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Error(err)
	}
}

func TestOldFoldersAreRemoved(t *testing.T) {
	var state string
	newContexts(t, func(cfg *Config) {
		state = cfg.StateDir
		for _, name := range []string{"0123abcd/ipython", "kept"} {
			if err := os.MkdirAll(filepath.Join(state, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	})
	if _, err := os.Stat(filepath.Join(state, "0123abcd")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an old kernel's folder: %v", err)
	}
	if err := os.Remove(filepath.Join(state, "kept")); err != nil {
		t.Errorf("somebody else's folder: %v", err)
	}
}

// A user's kernels are forked from a server that has that user's rights from its
// start, and nothing of root's.
func TestForkedKernelRunsAsItsUser(t *testing.T) {
	if os.Getuid() != 0 {
		need.Skip(t, "needs root, to run a kernel as somebody else: go test -exec sudo")
	}
	const uid, gid = 65534, 65533
	cs, p := warmContexts(t, 1, func(cfg *Config) {
		cfg.DefaultUser = func() string { return fmt.Sprintf("%d:%d", uid, gid) }
	})
	dir, err := os.MkdirTemp(stateRoot, "w")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	server := serverPID(cs, p)
	info, err := cs.Create(t.Context(), ContextRequest{Dir: dir, Env: []spawn.EnvVar{{Name: "GREETING", Value: "hello"}}})
	if err != nil {
		t.Fatal(err)
	}
	if !isForkOf(t, info.PID, server) {
		t.Error("the kernel is no fork")
	}
	for name, pid := range map[string]int{"server": server, "kernel": info.PID} {
		wantRights(t, name, pid, map[string]string{
			"Uid": "65534 65534 65534 65534", "Gid": "65533 65533 65533 65533", "CapEff": "0000000000000000", "CapPrm": "0000000000000000",
		})
	}
	out := collect(t, start(t, cs, Request{ContextID: info.ID, Code: `
import os
print(os.getcwd(), os.environ['GREETING'], os.getuid(), os.getgid())
open('made', 'w').close()
print(os.stat('made').st_uid, os.access('/etc/shadow', os.R_OK))
import matplotlib.pyplot as plt
_ = plt.plot([1, 4, 2])`}))
	if want := dir + " hello 65534 65533\n65534 False\n"; out.stdout != want || out.finished.Status != OK {
		t.Errorf("%+v, error %+v, got %q, want %q", out.finished, out.err, out.stdout, want)
	}
}

// wantRights compares what /proc/PID/status says of a process.
func wantRights(t *testing.T, name string, pid int, want map[string]string) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		field, value, _ := strings.Cut(line, ":")
		if wanted, ok := want[field]; ok && strings.Join(strings.Fields(value), " ") != wanted {
			t.Errorf("the %s has %s %s, want %s", name, field, strings.TrimSpace(value), wanted)
		}
	}
}
