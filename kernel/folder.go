package kernel

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/internal/fscred"
	"guestd.internal/kernel/internal/pykernel"
)

// folder is the private folder of one kernel: its sockets, its connection file
// and IPython's own files. Only the kernel's user can enter it.
type folder struct {
	path string
	acc  account.Account
}

// folderName is what newFolder calls a folder.
var folderName = regexp.MustCompile(`^[0-9a-f]{8}$`)

// prepareState makes the folder that the kernels' folders are in, and removes
// what an earlier guestd that was killed has left there. Users pass through it
// and cannot list it.
func prepareState(dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("making the kernels' folder: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { // whatever the umask took away
		return fmt.Errorf("opening the kernels' folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the kernels' folder: %w", err)
	}
	for _, entry := range entries {
		if folderName.MatchString(entry.Name()) {
			// os.RemoveAll follows no links.
			if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
				return fmt.Errorf("removing an old kernel's folder: %w", err)
			}
		}
	}
	return nil
}

// newFolder makes a folder with a name of its own in dir, where no user can have
// planted anything.
func newFolder(dir string, acc account.Account) (*folder, error) {
	var name [4]byte // short: the socket paths have 107 bytes
	for {
		_, _ = rand.Read(name[:]) // never fails, says its documentation
		path := filepath.Join(dir, hex.EncodeToString(name[:]))
		err := os.Mkdir(path, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("making a kernel's folder: %w", err)
		}
		f := &folder{path: path, acc: acc}
		if err := os.Lchown(path, int(acc.UID), int(acc.GID)); err != nil {
			return nil, errors.Join(fmt.Errorf("giving a kernel's folder to its user: %w", err), f.remove())
		}
		return f, nil
	}
}

// write makes a new file that only the user can read.
func (f *folder) write(name string, data []byte) error {
	path := filepath.Join(f.path, name)
	err := fscred.Do(f.acc, func() error {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		_, err = file.Write(data)
		return errors.Join(err, file.Close())
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// script is where our launcher is, if it was written.
func (f *folder) script() string { return filepath.Join(f.path, launcherFolder, pykernel.Script) }

// writeLauncher writes our launcher, which the user can read, and replace: it runs
// as nobody else.
func (f *folder) writeLauncher() error {
	root := filepath.Join(f.path, launcherFolder)
	err := fscred.Do(f.acc, func() error {
		for _, file := range pykernel.Files() {
			path := filepath.Join(root, filepath.FromSlash(file.Name))
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}
			if err := os.WriteFile(path, file.Data, 0o600); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("writing the launcher: %w", err)
	}
	return nil
}

func (f *folder) mkdir(name string) error {
	path := filepath.Join(f.path, name)
	if err := fscred.Do(f.acc, func() error { return os.Mkdir(path, 0o700) }); err != nil {
		return fmt.Errorf("making %s: %w", path, err)
	}
	return nil
}

// remove empties the folder with the user's rights, who may have put anything
// into it, and then removes it.
func (f *folder) remove() error {
	err := fscred.Do(f.acc, func() error {
		entries, err := os.ReadDir(f.path)
		for _, entry := range entries {
			err = errors.Join(err, os.RemoveAll(filepath.Join(f.path, entry.Name())))
		}
		return err
	})
	if err := errors.Join(err, os.Remove(f.path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a kernel's folder: %w", err)
	}
	return nil
}
