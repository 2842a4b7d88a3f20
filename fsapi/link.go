package fsapi

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// Link makes a symbolic link at path that says target, which need not exist and
// is stored as it is. With replace it takes the place of a file or link that is
// there (but of no folder: ErrIsDirectory) in one step; without, that is
// fs.ErrExist. The link's folder must exist.
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
			err = replaceEntry(ctx, place{at.dir, at.base}, create)
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
