package fsapi

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// MoveOptions says how Move goes about it.
type MoveOptions struct {
	// NoReplace makes it fs.ErrExist if there is anything at the destination.
	NoReplace bool
}

// MoveResult says what Move has done.
type MoveResult struct {
	Info Info // of the file under its new path
	// Copied says that it went to another file system, as a copy.
	Copied bool
}

// Move gives a file, folder or link itself another path, as rename(2): a file
// replaces a file, a folder an empty folder, in one step. Moving into a folder
// means naming the new entry. A folder that is moved into itself is an
// *InvalidError.
//
// Between file systems the source is copied beside the destination (with modes,
// times, links, holes, user attributes, and owners as far as the user may),
// renamed, then removed: the destination is whole or untouched. What the user
// could not remove is a failure before anything is renamed. If the removal is
// refused all the same the destination gets back what it had. Only where that
// cannot be, since a part of the source has gone already, or the file system
// cannot exchange two names so that a replaced file is lost, are both there
// after the failure: the whole copy, and what is left of the source. The error
// says so.
func (fsys *FS) Move(ctx context.Context, user, src, dst string, opts MoveOptions) (MoveResult, error) {
	acc, err := fsys.account(user)
	if err != nil {
		return MoveResult{}, err
	}
	m := mover{acc: acc, source: src, destination: dst, opts: opts}
	m.from, err = newEndpoint("source", src, acc.Home)
	if err != nil {
		return MoveResult{}, err
	}
	m.to, err = newEndpoint("destination", dst, acc.Home)
	if err != nil {
		return MoveResult{}, err
	}
	if err := fsys.as(ctx, acc, func() error { return m.run(ctx) }); err != nil {
		return MoveResult{}, err
	}
	newNames(fsys.accounts).fill(&m.result.Info)
	return m.result, nil
}

// endpoint is one side of a move or copy: an entry of a folder.
type endpoint struct {
	path, folder, base string
	slash              bool // the path ends in one, so it must be a folder
	dir                int
}

func newEndpoint(field, path, home string) (endpoint, error) {
	full, err := absolute(field, path, home)
	if err != nil {
		return endpoint{}, err
	}
	folder, base, slash, err := entryName(field, full)
	return endpoint{path: full, folder: folder, base: base, slash: slash, dir: -1}, err
}

type mover struct {
	acc                 account.Account
	source, destination string // as the caller gave them
	from, to            endpoint
	opts                MoveOptions
	result              MoveResult
}

func (m *mover) run(ctx context.Context) (err error) {
	if m.from.dir, err = openFolder(m.from.folder); err != nil {
		return pathError("move", m.source, err)
	}
	defer unix.Close(m.from.dir)
	if m.to.dir, err = openFolder(m.to.folder); err != nil {
		return pathError("move", m.destination, err)
	}
	defer unix.Close(m.to.dir)
	info, err := statAt(m.from.dir, m.from.base)
	if err != nil {
		return pathError("move", m.source, err)
	}
	if info.Type != TypeDirectory {
		if m.from.slash {
			return pathError("move", m.source, unix.ENOTDIR)
		}
		if m.to.slash {
			return pathError("move", m.destination, unix.ENOTDIR)
		}
	}
	if err = m.rename(info); errors.Is(err, unix.EXDEV) {
		m.result.Copied = true
		err = m.across(ctx, info)
	} else {
		err = m.explain(err)
	}
	if err == nil {
		m.result.Info = m.to.describe(info)
	}
	return err
}

// describe looks at what was just put at e. If it is gone already, or cannot be
// looked at, it is described as it was: like.
func (e *endpoint) describe(like Info) Info {
	info, err := statAt(e.dir, e.base)
	if err != nil {
		info = like
	} else if info.Type == TypeSymlink {
		describeLink(&info, e.dir, e.base)
	}
	name(&info, e.path)
	return info
}

// explain says which side an error is about, before anything was moved.
func (m *mover) explain(err error) error {
	switch {
	case errors.Is(err, unix.EINVAL) && !m.result.Copied, errors.Is(err, errCopyIntoItself):
		return &InvalidError{Field: "destination", Problem: "is inside the source"}
	case errors.Is(err, unix.EEXIST) && !m.opts.NoReplace, errors.Is(err, unix.ENOTEMPTY):
		return pathError("move", m.destination, unix.ENOTEMPTY)
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR):
		return pathError("move", m.destination, err)
	}
	return pathError("move", m.source, err)
}

// rename moves within a file system.
func (m *mover) rename(info Info) error {
	if m.opts.NoReplace {
		return renameNew(m.from.dir, m.from.base, m.to.dir, m.to.base)
	}
	if err := unix.Renameat(m.from.dir, m.from.base, m.to.dir, m.to.base); err != nil || info.Links < 2 {
		return err
	}
	return m.dropSecondName(info)
}

// dropSecondName finishes the move of a file onto another of its own hard links,
// for which rename(2) does nothing.
func (m *mover) dropSecondName(info Info) error {
	if info.Type == TypeDirectory {
		return nil
	}
	from, err := statAt(m.from.dir, "")
	if err != nil {
		return err
	}
	to, err := statAt(m.to.dir, "")
	if err != nil || from.id() == to.id() && m.from.base == m.to.base {
		return err
	}
	still, err := statAt(m.from.dir, m.from.base)
	if err != nil || still.id() != info.id() {
		return nil // moved
	}
	return unix.Unlinkat(m.from.dir, m.from.base, 0)
}
