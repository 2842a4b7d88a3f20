package fsapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pendingFolder is a folder that gets its attributes once all that goes into it
// is there: making entries changes its time, and its mode may forbid it.
type pendingFolder struct {
	name    string // clean
	id      fileID
	mode    uint32
	owner   entryOwner
	modTime time.Time
}

// depth is 0 for the root and more for what is further inside.
func (f *pendingFolder) depth() int {
	if f.name == "." {
		return 0
	}
	return strings.Count(f.name, "/") + 1
}

// pendingFolders are those folders, in the order of the archive.
type pendingFolders struct {
	list  []pendingFolder
	bytes int
}

// How many folders wait at most, and how long their names are in all. Beyond that
// those that the archive seems to be done with get their attributes early; only in an
// archive that comes back to a folder much later does its time then not fit.
const (
	maxPendingFolders = 64 << 10
	maxPendingBytes   = 8 << 20
)

// putRoot takes the attributes of the folder itself, if it is a new one.
func (x *extractor) putRoot(item *extractItem) error {
	if x.made.empty() {
		return nil
	}
	info, err := statAt(x.root, "")
	if err != nil {
		return err
	}
	return x.attributesLater(item, info, x.root)
}

// putFolder makes a folder, or is content with one that is there.
func (x *extractor) putFolder(at place, item *extractItem) error {
	err := unix.Mkdirat(at.dir, at.name, 0o700)
	found := errors.Is(err, unix.EEXIST)
	if err != nil && !found {
		return err
	}
	fd, err := openBeneath(at.dir, at.name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if found && x.opts.NoReplace {
		return nil
	}
	info, err := statAt(fd, "")
	if err != nil {
		return err
	}
	return x.attributesLater(item, info, fd)
}

// attributesLater sets what can be set at once, and notes the rest.
func (x *extractor) attributesLater(item *extractItem, info Info, fd int) error {
	if len(item.attrs) > 0 {
		own, err := openSubfolder(fd, ".")
		if err == nil {
			err = setAttributes(own, item.attrs)
			unix.Close(own)
		}
		if err != nil {
			x.result.fail("extract", join(x.full, item.name), err)
		}
	}
	f := &x.folders
	f.list = append(f.list, pendingFolder{
		name: item.name, id: info.id(), owner: item.owner, modTime: item.modTime,
		// A set-group-id bit that comes from the parent stays, as with mkdir(1).
		mode: item.mode | info.Mode&unix.S_ISGID,
	})
	f.bytes += len(item.name)
	if len(f.list) >= maxPendingFolders || f.bytes >= maxPendingBytes {
		x.settle(item.name)
	}
	return nil
}

// settle gives the folders that wait their attributes, innermost first, except for
// current and those around it; "" excepts none. It is called on a worker.
func (x *extractor) settle(current string) {
	waiting := x.folders.list
	x.folders = pendingFolders{}
	slices.SortStableFunc(waiting, func(a, b pendingFolder) int { return b.depth() - a.depth() })
	for i := range waiting {
		folder := &waiting[i]
		if current != "" && (folder.name == "." || strings.HasPrefix(current+"/", folder.name+"/")) {
			x.folders.list = append(x.folders.list, *folder)
			x.folders.bytes += len(folder.name)
			continue
		}
		if err := x.settleFolder(folder); err != nil {
			x.result.fail("extract", join(x.full, folder.name), err)
		}
	}
}

func (x *extractor) settleFolder(folder *pendingFolder) error {
	fd, err := openBeneath(x.root, folder.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	info, err := statAt(fd, "")
	if err != nil {
		return err
	}
	if info.id() != folder.id {
		return fmt.Errorf("it was moved away meanwhile: %w", unix.ESTALE)
	}
	if err := x.chown(fd, "", folder.owner); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, folder.mode); err != nil {
		return err
	}
	return setTimes(fd, "", folder.modTime, folder.modTime)
}
