package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStateFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "guestd")
	s, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, s.path} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o711 {
			t.Errorf("%s has mode %04o, want 0711", path, mode)
		}
	}
	if err := os.WriteFile(filepath.Join(s.path, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(s.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after close: %v", err)
	}
}

func TestStateOfTheDeadIsRemovedAndOfTheLivingNot(t *testing.T) {
	dir := t.TempDir()
	living, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer living.close()
	dead, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as the kernel does when a process dies
	other := filepath.Join(dir, "somebody-elses")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	next, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer next.close()
	if _, err := os.Lstat(dead.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the dead one's: %v, want it gone", err)
	}
	for _, path := range []string{living.path, other} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestStateFolderOfOthersIsRefused(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := openState(open); err == nil || !strings.Contains(err.Error(), "others may write") {
		t.Errorf("writable by all: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if _, err := openState(link); err == nil {
		t.Error("a link is taken for a folder")
	}
	if os.Geteuid() != 0 {
		return
	}
	foreign := t.TempDir()
	if err := os.Chown(foreign, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := openState(foreign); err == nil || !strings.Contains(err.Error(), "another user") {
		t.Errorf("another user's: %v", err)
	}
}
