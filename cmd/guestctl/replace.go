package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// replaceFile makes what r gives the contents of a local file, at once and with the given mode.
// What goes wrong on the way leaves the old file whole and nothing beside it. A link is followed; a
// device or FIFO is written to as it is.
func replaceFile(name string, r io.Reader, mode fs.FileMode) (err error) {
	name, special, err := resolveDestination(name)
	if err != nil {
		return err
	}
	if special {
		return writeSpecial(name, r)
	}
	temporary, err := os.CreateTemp(filepath.Dir(name), ".guestctl-*")
	if err != nil {
		return aboutFile(name, err)
	}
	committed := false
	defer func() {
		if !committed {
			err = errors.Join(err, temporary.Close(), os.Remove(temporary.Name()))
		}
	}()
	if _, err := io.Copy(temporary, r); err != nil {
		if path, is := errors.AsType[*fs.PathError](err); is && path.Path == temporary.Name() {
			return aboutFile(name, err)
		}
		return err
	}
	if err := temporary.Chmod(mode); err != nil {
		return err
	}
	// A file system may tell only now that it is full.
	if err := temporary.Sync(); err != nil {
		return fmt.Errorf("flushing what is to be %s: %w", quoted(name), err)
	}
	if err := os.Rename(temporary.Name(), name); err != nil {
		return err
	}
	committed = true
	return temporary.Close()
}

// aboutFile is what went wrong with a file's temporary one, told of the file, which is the one that
// the user knows.
func aboutFile(name string, err error) error {
	if path, is := errors.AsType[*fs.PathError](err); is {
		op := path.Op
		if op == "open" {
			op = "create"
		}
		return &fs.PathError{Op: op, Path: name, Err: path.Err}
	}
	return err
}

// resolveDestination follows links to what will be replaced, and tells whether it is a device, FIFO
// or socket.
func resolveDestination(name string) (_ string, special bool, err error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return name, false, nil
	}
	if err != nil {
		return "", false, err
	}
	if !info.Mode().IsRegular() {
		return name, true, nil
	}
	resolved, err := filepath.EvalSymlinks(name)
	return resolved, false, err
}

func writeSpecial(name string, r io.Reader) error {
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, r)
	return errors.Join(err, file.Close())
}
