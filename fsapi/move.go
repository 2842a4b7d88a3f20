package fsapi

import (
	"context"
	"errors"
	"strings"

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
// renamed, then removed: the destination is whole or untouched. A failure while
// the source is removed is returned, and leaves what is left of it beside the
// whole copy.
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
	}
	if err == nil {
		m.result.Info = m.to.describe(info)
	}
	return m.explain(err)
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

// explain says which side an error is about.
func (m *mover) explain(err error) error {
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, errCopyIntoItself):
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

// across moves between file systems. The copy is made in a folder of its own
// beside the destination, which is recognised as left over if guestd is killed.
func (m *mover) across(ctx context.Context, info Info) error {
	if err := m.checkAcross(info); err != nil {
		return err
	}
	lock := -1
	temp, err := claimTemp(m.to.dir, m.to.base, func(name string) (err error) {
		lock, err = makeTempFolder(m.to.dir, name)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(lock)
	const copied = "entry"
	c := copier{ctx: ctx, acc: m.acc, source: m.source, destination: m.destination, rules: copyRules{preserve: true}}
	if err = c.run(place{m.from.dir, m.from.base}, place{lock, copied}); err == nil {
		err = m.placeCopy(lock, copied, info)
	}
	// Not ctx: the litter goes even if the call is cancelled.
	if _, cleanErr := removeTree(context.WithoutCancel(ctx), m.to.dir, temp); err == nil && cleanErr != nil {
		err = cleanErr
	}
	if err != nil {
		return err
	}
	if info.Type == TypeDirectory {
		_, err := removeTree(ctx, m.from.dir, m.from.base)
		return relabel(err, m.from.base, m.source)
	}
	return unix.Unlinkat(m.from.dir, m.from.base, 0)
}

// relabel makes an error's path, which begins with the tree's own name, begin
// with what the caller calls the tree.
func relabel(err error, name, path string) error {
	var below *PathError
	if errors.As(err, &below) {
		below.Path = path + strings.TrimPrefix(below.Path, name)
	}
	return err
}

// checkAcross finds out early what would make the long copy pointless.
func (m *mover) checkAcross(info Info) error {
	if err := unix.Faccessat2(m.from.dir, ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	old, err := statAt(m.to.dir, m.to.base)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	case m.opts.NoReplace:
		return unix.EEXIST
	case old.Type == TypeDirectory && info.Type != TypeDirectory:
		return unix.EISDIR
	case old.Type != TypeDirectory && info.Type == TypeDirectory:
		return unix.ENOTDIR
	}
	return nil
}

// makeTempFolder makes a folder that only the user can enter, opens and locks it.
func makeTempFolder(dir int, name string) (int, error) {
	if err := unix.Mkdirat(dir, name, 0o700); err != nil {
		return -1, err
	}
	fd, err := openSubfolder(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return -1, unix.EEXIST // taken for left over before it was locked
	}
	if err != nil {
		return -1, err
	}
	if err := lockTemp(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// placeCopy renames the finished copy to the destination. Renaming a folder
// elsewhere changes its "..", which takes write permission for it; one without
// gets it for that moment.
func (m *mover) placeCopy(tempDir int, name string, info Info) error {
	if info.Type != TypeDirectory || info.Mode&0o200 != 0 {
		return m.renameCopy(tempDir, name)
	}
	fd, err := openSubfolder(tempDir, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	copied, err := statAt(fd, "")
	if err != nil {
		return err
	}
	if err := unix.Fchmod(fd, copied.Mode|0o200); err != nil {
		return err
	}
	return errors.Join(m.renameCopy(tempDir, name), unix.Fchmod(fd, copied.Mode))
}

func (m *mover) renameCopy(tempDir int, name string) error {
	if m.opts.NoReplace {
		return renameNew(tempDir, name, m.to.dir, m.to.base)
	}
	return unix.Renameat(tempDir, name, m.to.dir, m.to.base)
}
