package fsapi

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// across moves between file systems. The copy is made in a folder of its own
// beside the destination, which is recognised as left over if guestd is killed.
func (m *mover) across(ctx context.Context, info Info) error {
	if err := m.checkDestination(info); err != nil {
		return m.explain(err)
	}
	lock := -1
	temp, err := claimTemp(m.to.dir, m.to.base, func(name string) (err error) {
		lock, err = makeTempFolder(m.to.dir, name)
		return err
	})
	if err != nil {
		return pathError("move", m.destination, err)
	}
	defer unix.Close(lock)
	// Not ctx: the litter goes even if the call is cancelled. If that fails, as it
	// does only when the folder has been changed meanwhile, the next move to the
	// same path finds it.
	defer func() { _ = removeTempFolder(context.WithoutCancel(ctx), place{m.to.dir, temp}, lock) }()
	p := publication{mover: m, copied: place{lock, tempEntry}, info: info}
	c := copier{
		ctx: ctx, acc: m.acc, source: m.source, destination: m.destination,
		rules: copyRules{preserve: true, removable: true},
	}
	if err := c.run(place{m.from.dir, m.from.base}, p.copied); err != nil {
		return m.explain(err)
	}
	if err := p.publish(); err != nil {
		return m.explain(pathError("move", m.destination, err))
	}
	// From here on a cancelled call does not stop half way.
	whole, err := m.drop(context.WithoutCancel(ctx), info)
	return p.settle(whole, err)
}

// checkDestination finds out early what would make the long copy pointless.
func (m *mover) checkDestination(info Info) error {
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

// drop removes the source, once it has been copied; whole says that a failure has
// left all of it. What has gone meanwhile, or is another file by now, is not the
// move's to remove, and no failure: the destination has what was there.
func (m *mover) drop(ctx context.Context, info Info) (whole bool, err error) {
	if info.Type == TypeDirectory {
		return m.dropFolder(ctx, info)
	}
	now, err := statAt(m.from.dir, m.from.base)
	if err == nil && now.id() == info.id() {
		err = unix.Unlinkat(m.from.dir, m.from.base, 0)
	}
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return true, err
}

// dropFolder takes the source's name away first, which is when the kernel decides
// whether it may be removed. A killed guestd leaves the rest under a temporary name:
// nothing tells it from a folder that somebody else has given that name.
func (m *mover) dropFolder(ctx context.Context, info Info) (whole bool, err error) {
	fd, err := openSubfolder(m.from.dir, m.from.base)
	if err != nil {
		return true, unlessGone(err)
	}
	defer unix.Close(fd)
	now, err := statAt(fd, "")
	if err != nil || now.id() != info.id() {
		return true, err
	}
	// Somebody else's lock keeps it from being taken for left over as well.
	_ = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	aside, err := claimTemp(m.from.dir, m.from.base, func(name string) error {
		return renameNew(m.from.dir, m.from.base, m.from.dir, name)
	})
	if err != nil {
		return true, unlessGone(err)
	}
	removed, err := removeThis(ctx, m.from.dir, aside, info.id())
	if err == nil {
		return false, nil
	}
	if errors.Is(err, errOtherFolder) {
		err = nil // the source has gone meanwhile
	}
	err = relabel(err, aside, m.source)
	if backErr := renameNew(m.from.dir, aside, m.from.dir, m.from.base); backErr != nil {
		return false, errors.Join(err, pathError("rename "+aside+" to", m.source, backErr))
	}
	return removed == 0, err
}

// unlessGone is err, but for one that says that the source is not there any more.
func unlessGone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
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
