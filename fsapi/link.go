package fsapi

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// Link makes a symbolic link at path that says target, which need not exist and
// is stored as it is. With replace it takes the place of a file or link that is
// there in one step, but of no folder (ErrIsDirectory), FIFO, socket or device
// (ErrNotSupportedType); without, that is fs.ErrExist. The link's folder must exist.
func (fsys *FS) Link(ctx context.Context, user, target, path string, replace bool) (Info, error) {
	acc, err := fsys.account(user)
	if err != nil {
		return Info{}, err
	}
	switch {
	case target == "":
		return Info{}, &InvalidError{Field: "target", Problem: "is empty"}
	case strings.IndexByte(target, 0) >= 0:
		return Info{}, &InvalidError{Field: "target", Problem: "contains a NUL byte"}
	}
	at, err := newEndpoint("path", path, acc.Home)
	if err != nil {
		return Info{}, err
	}
	var info Info
	err = fsys.as(ctx, acc, func() error {
		if at.dir, err = openFolder(at.folder); err != nil {
			return err
		}
		defer unix.Close(at.dir)
		if at.slash {
			return unix.ENOTDIR
		}
		create := func(to place) error { return unix.Symlinkat(target, to.dir, to.name) }
		err := create(place{at.dir, at.base})
		if replace && errors.Is(err, unix.EEXIST) {
			err = replaceWithLink(ctx, place{at.dir, at.base}, create)
		}
		if err == nil {
			info = at.describe(Info{Type: TypeSymlink, LinkTarget: target})
		}
		return err
	})
	if err != nil {
		return Info{}, pathError("link", path, err)
	}
	newNames(fsys.accounts).fill(&info)
	return info, nil
}

func replaceWithLink(ctx context.Context, at place, create func(place) error) error {
	old, err := statAt(at.dir, at.name)
	if err == nil {
		err = old.replaceable()
	}
	if err != nil && !errors.Is(err, unix.ENOENT) { // else it has gone just now
		return err
	}
	return replaceEntry(ctx, at, create)
}
