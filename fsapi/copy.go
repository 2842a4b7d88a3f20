package fsapi

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// CopyOptions says how Copy goes about it.
type CopyOptions struct {
	// Recursive copies a folder with all that is in it; without it a folder is
	// ErrIsDirectory.
	Recursive bool
	// NoReplace makes it fs.ErrExist if there is anything at the destination.
	NoReplace bool
	// FollowLinks copies what links lead to instead of the links. A link that
	// leads nowhere cannot be copied then, nor one to a folder that it is in.
	FollowLinks bool
	// Preserve keeps owners where the user may, modes, times, user attributes,
	// access lists and hard links within the tree, as cp -a does. Otherwise, as
	// with cp -r, the copy is the user's own and new, with the modes kept but for
	// set-user-id and set-group-id, and each name of a file with several becomes a
	// file of its own.
	Preserve bool
}

// CopyResult says what Copy has done.
type CopyResult struct {
	Info    Info   // of the copy
	Entries uint64 // files, links and folders copied
	Bytes   uint64 // of contents, copied or shared, holes included
}

// Copy copies a file, folder or link to another path, exactly: not into a folder
// that is there. The destination's folder must exist.
//
// A file is copied as a whole or not at all: the copy gets its name once it is
// complete, and replaces an existing file, or a link itself, in one step.
// Contents are shared with the original where the file system can (FICLONE), else
// copied with holes as holes. FIFOs, sockets and devices are made anew, as far as
// the user may; nothing is read from them, and they are not replaced.
//
// Folders are copied as cp -RT does: into one that is there already, whose other
// entries stay. An entry that cannot be copied keeps the others from being copied
// only where nothing could be (no space left) or after 1,000; the error is the
// first, and its Path, on the source's or destination's side, says where. A
// folder is not copied into itself (an *InvalidError), and at most 256 levels
// deep (ErrTooDeep). When the context ends what is complete stays.
func (fsys *FS) Copy(ctx context.Context, user, src, dst string, opts CopyOptions) (CopyResult, error) {
	acc, err := fsys.account(user)
	if err != nil {
		return CopyResult{}, err
	}
	source, err := absolute("source", src, acc.Home)
	if err != nil {
		return CopyResult{}, err
	}
	to, err := newEndpoint("destination", dst, acc.Home)
	if err != nil {
		return CopyResult{}, err
	}
	job := &copyJob{from: source, to: to, opts: opts, copier: copier{
		ctx: ctx, acc: acc, source: rootOf(src), destination: rootOf(dst),
		rules: copyRules{
			followLinks: opts.FollowLinks, preserve: opts.Preserve, merge: !opts.NoReplace,
			goOn: true, whole: true, namedTemp: fsys.namedTemp,
		},
	}}
	err = fsys.as(ctx, acc, job.run)
	if errors.Is(err, errCopyIntoItself) {
		err = &InvalidError{Field: "destination", Problem: "is the source or inside it"}
	}
	if err != nil {
		return CopyResult{}, pathError("copy", src, err)
	}
	newNames(fsys.accounts).fill(&job.result.Info)
	return job.result, nil
}

// rootOf is what a tree's root is called in the paths of errors about what is
// below it.
func rootOf(path string) string {
	if trimmed := strings.TrimRight(path, "/"); trimmed != "" {
		return trimmed
	}
	return path
}

// copyJob is a call of Copy.
type copyJob struct {
	copier
	from   string // absolute
	to     endpoint
	opts   CopyOptions
	result CopyResult
}

// run copies; on a worker.
func (j *copyJob) run() error {
	from, err := openSourcePlace(j.from)
	if err != nil {
		return j.sourceError(copyEntry{}, err)
	}
	defer unix.Close(from.dir)
	if j.to.dir, err = openFolder(j.to.folder); err != nil {
		return j.destinationError(copyEntry{}, err)
	}
	defer unix.Close(j.to.dir)
	info, err := j.look(from)
	if err == nil && info.Type == TypeDirectory && !j.opts.Recursive {
		err = unix.EISDIR
	}
	if err != nil {
		return j.sourceError(copyEntry{}, err)
	}
	to := place{j.to.dir, j.to.base}
	if err := j.check(info, to); err != nil {
		return j.destinationError(copyEntry{}, err)
	}
	err = j.copier.run(from, to)
	j.result = CopyResult{Entries: j.entries, Bytes: j.bytes}
	if err == nil {
		j.result.Info = j.to.describe(info)
	}
	return err
}

// openSourcePlace opens the folder that a copy's source is in. A slash at its
// end demands a folder and follows a link.
func openSourcePlace(path string) (place, error) {
	folder, base, slash := split(path)
	if slash || base == "" || base == "." || base == ".." {
		folder, base = path, "."
	}
	dir, err := openFolder(folder)
	return place{dir, base}, err
}

// check finds out early what the copy would come to too late.
func (j *copyJob) check(source Info, to place) error {
	if source.Type != TypeDirectory && j.to.slash {
		return unix.ENOTDIR
	}
	old, err := statAt(to.dir, to.name)
	switch {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return err
	case j.opts.NoReplace:
		return unix.EEXIST
	case old.id() == source.id():
		return errCopyIntoItself
	case source.Type == TypeDirectory && old.Type != TypeDirectory:
		return unix.ENOTDIR
	}
	if source.Type == TypeDirectory && within(to.dir, source.id()) {
		return errCopyIntoItself
	}
	return nil
}

// within says whether the folder dir is the given one or below it, as far as the
// user may find out.
func within(dir int, folder fileID) bool {
	at, err := openAt(dir, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	defer func() { unix.Close(at) }()
	for last := (fileID{}); ; {
		info, err := statAt(at, "")
		if err != nil || info.id() == last {
			return false // the root is its own parent
		}
		if info.id() == folder {
			return true
		}
		last = info.id()
		up, err := openAt(at, "..", unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return false
		}
		unix.Close(at)
		at = up
	}
}
