package fsapi

import (
	"context"
	"strconv"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// Stat describes the file at path. With follow a link at its end is followed:
// the Info is that of the file it leads to, with LinkTarget and ResolvedPath
// telling the way; one that leads to nothing is fs.ErrNotExist, one in circles
// ErrLoop. Without follow a link is described itself, with Broken where it leads
// to nothing. A slash at the end demands a folder and follows a link, as
// everywhere in POSIX.
func (fsys *FS) Stat(ctx context.Context, user, path string, follow bool) (Info, error) {
	acc, err := fsys.account(user)
	if err != nil {
		return Info{}, err
	}
	full, err := absolute("path", path, acc.Home)
	if err != nil {
		return Info{}, err
	}
	var info Info
	err = fsys.as(ctx, acc, func() (err error) {
		info, err = stat(full, follow, acc)
		return err
	})
	if err != nil {
		return Info{}, pathError("stat", path, err)
	}
	newNames(fsys.accounts).fill(&info)
	return info, nil
}

// stat describes an absolute path, but for the owner's names, to a user.
func stat(path string, follow bool, acc account.Account) (Info, error) {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Info{}, err
	}
	defer unix.Close(fd)
	info, err := statAt(fd, "")
	if err != nil {
		return Info{}, err
	}
	name(&info, path)
	if info.Type != TypeSymlink {
		return info, nil
	}
	if err := refuseOwnProc(fd, acc); err != nil { // what it leads to is told
		return Info{}, err
	}
	folder, base, _ := split(path)
	dir, err := openFolder(folder)
	if err != nil {
		return Info{}, err
	}
	defer unix.Close(dir)
	describeLink(&info, dir, base)
	if !follow {
		return info, nil
	}
	return followed(path, info)
}

// followed describes what the link at path leads to.
func followed(path string, link Info) (Info, error) {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_PATH, 0)
	if err != nil {
		return Info{}, err
	}
	defer unix.Close(fd)
	info, err := statAt(fd, "")
	if err != nil {
		return Info{}, err
	}
	name(&info, path)
	info.LinkTarget, info.TargetType = link.LinkTarget, info.Type
	info.ResolvedPath, _ = descriptorPath(fd)
	return info, nil
}

// descriptorPath is where the kernel knows a descriptor's file to be.
func descriptorPath(fd int) (string, error) {
	return readLinkAt(unix.AT_FDCWD, descriptorLink(fd))
}

// descriptorLink is a link to a descriptor's file, whatever its name.
func descriptorLink(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// name sets an Info's path and name.
func name(info *Info, path string) {
	info.Path = tidy(path)
	_, info.Name, _ = split(info.Path)
	if info.Name == "" {
		info.Name = "/"
	}
}
