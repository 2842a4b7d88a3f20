package agent

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// rootStateDir is root's state folder unless another is configured.
const rootStateDir = "/run/guestd"

// stateFolder is one instance's own folder inside the state folder. It is locked
// for as long as its instance lives: a later one can tell what a crash left
// behind, and removes it, without harm to others that run beside it.
type stateFolder struct {
	path      string // the instance's own
	lock      *os.File
	temporary string // the state folder, where it was made for this instance alone
}

// openState makes an instance's folder in dir, "" for the default one.
func openState(dir string) (*stateFolder, error) {
	s := &stateFolder{}
	if dir == "" {
		dir = defaultStateDir()
	}
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "guestd-"); err != nil {
			return nil, err
		}
		s.temporary = dir
	}
	if err := s.open(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("using the state folder %s: %w", dir, err), s.close())
	}
	return s, nil
}

// defaultStateDir is "" where there is no lasting place.
func defaultStateDir() string {
	if os.Geteuid() == 0 {
		return rootStateDir
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && len(dir) <= maxStateDir-len("/guestd") {
		return filepath.Join(dir, "guestd")
	}
	return ""
}

func (s *stateFolder) open(dir string) error {
	// Guest users pass through on the way to folders of their own; none can list it.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	if err := checkOwn(dir); err != nil {
		return err
	}
	removeStale(dir)
	var name [4]byte // short, for the sake of the sockets' paths
	rand.Read(name[:])
	path := filepath.Join(dir, hex.EncodeToString(name[:]))
	if err := os.Mkdir(path, 0o711); err != nil {
		return err
	}
	s.path = path
	if err := os.Chmod(path, 0o711); err != nil { // whatever the umask took away
		return err
	}
	var err error
	s.lock, err = lockFolder(path)
	return err
}

// checkOwn refuses a folder in which somebody else could plant something.
func checkOwn(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return unix.ENOTDIR
	case !ok || int(stat.Uid) != os.Geteuid():
		return errors.New("it belongs to another user")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write to it (mode %04o)", info.Mode().Perm())
	}
	return nil
}

// lockFolder locks a folder for this process. The error is EWOULDBLOCK when
// somebody holds it.
func lockFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(os.NewSyscallError("flock", err), f.Close())
	}
	return f, nil
}

// removeStale removes the folders of instances that are gone. What cannot be
// removed stays: it is in nobody's way.
func removeStale(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if _, err := hex.DecodeString(entry.Name()); err != nil || len(entry.Name()) != 8 {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		lock, err := lockFolder(path)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(path) // see above
		lock.Close()
	}
}

// close removes the instance's folder.
func (s *stateFolder) close() error {
	var errs []error
	if s.path != "" {
		errs = append(errs, os.RemoveAll(s.path))
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	if s.temporary != "" {
		errs = append(errs, os.RemoveAll(s.temporary))
	}
	return errors.Join(errs...)
}
