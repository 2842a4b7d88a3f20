package fsapi

import (
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// userNamespace is what the names of the extended attributes begin with that
// users may give to their files. The others mean something to the kernel.
const userNamespace = "user."

// maxAttributeName is XATTR_NAME_MAX.
const maxAttributeName = 255

// maxAttributeChanges bounds the work of one call; a file cannot have many more.
const maxAttributeChanges = 1000

// ExtendedAttribute is one extended attribute.
type ExtendedAttribute struct {
	Name  string // whole: "user.origin"
	Value []byte // at most 64 KiB
}

// AttributeChanges says what SetAttributes changes. What is absent stays.
type AttributeChanges struct {
	// NoFollow changes a link itself instead of what it leads to. A link has an
	// owner, a group and times of its own, but no mode and no attributes.
	NoFollow bool
	// Mode is at most 07777.
	Mode *uint32
	// Owner and Group are names or numbers.
	Owner, Group *string
	// ModTime and AccessTime are as exact as the file system keeps them.
	ModTime, AccessTime *time.Time
	// Set and Remove are extended attributes of the namespace "user.".
	Set    []ExtendedAttribute
	Remove []string
}

// SetAttributes changes attributes of a file and describes it afterwards. The
// changes are made one after the other (owner and group, mode, extended
// attributes, times), the first that fails ends the call, and those before it
// stay made. Removing an extended attribute that is not there is
// ErrNoAttribute. Linux itself takes set-user-id and set-group-id away from a
// program that gets another owner, unless the mode is set too.
func (fsys *FS) SetAttributes(ctx context.Context, user, path string, changes AttributeChanges) (Info, error) {
	acc, err := fsys.account(user)
	if err != nil {
		return Info{}, err
	}
	full, err := absolute("path", path, acc.Home)
	if err != nil {
		return Info{}, err
	}
	if err := changes.check(); err != nil {
		return Info{}, err
	}
	uid, gid, err := fsys.owners(changes)
	if err != nil {
		return Info{}, err
	}
	var info Info
	err = fsys.as(ctx, acc, func() error {
		if err := changes.apply(full, uid, gid); err != nil {
			return err
		}
		info, err = stat(full, !changes.NoFollow, acc)
		return err
	})
	if err != nil {
		return Info{}, pathError("set attributes of", path, err)
	}
	newNames(fsys.accounts).fill(&info)
	return info, nil
}

func (c *AttributeChanges) check() error {
	if c.Mode != nil && *c.Mode > 0o7777 {
		return &InvalidError{Field: "mode", Problem: "has bits beyond 07777"}
	}
	if len(c.Set) > maxAttributeChanges {
		return &InvalidError{Field: "set_attributes", Problem: "are too many"}
	}
	if len(c.Remove) > maxAttributeChanges {
		return &InvalidError{Field: "remove_attributes", Problem: "are too many"}
	}
	for _, attribute := range c.Set {
		if err := checkAttributeName("set_attributes", attribute.Name); err != nil {
			return err
		}
		if len(attribute.Value) > maxAttribute {
			return &InvalidError{Field: "set_attributes", Problem: "has a value of more than 64 KiB"}
		}
	}
	for _, name := range c.Remove {
		if err := checkAttributeName("remove_attributes", name); err != nil {
			return err
		}
	}
	return nil
}

func checkAttributeName(field, name string) error {
	switch {
	case !strings.HasPrefix(name, userNamespace) || len(name) == len(userNamespace):
		return &InvalidError{Field: field, Problem: `has a name that is not in the namespace "user."`}
	case len(name) > maxAttributeName:
		return &InvalidError{Field: field, Problem: "has a name of more than 255 bytes"}
	case strings.IndexByte(name, 0) >= 0:
		return &InvalidError{Field: field, Problem: "has a NUL byte in a name"}
	}
	return nil
}

// unchanged is what chown(2) takes for an owner or group that stays.
const unchanged = -1

// owners looks the new owner and group up.
func (fsys *FS) owners(c AttributeChanges) (uid, gid int, err error) {
	uid, gid = unchanged, unchanged
	if c.Owner != nil {
		acc, err := fsys.lookup("owner", *c.Owner, "")
		if err != nil {
			return 0, 0, err
		}
		uid = int(acc.UID)
	}
	if c.Group != nil {
		acc, err := fsys.lookup("group", *c.Group, "0:")
		if err != nil {
			return 0, 0, err
		}
		gid = int(acc.GID)
	}
	return uid, gid, nil
}

// lookup looks up the user, or behind the prefix "0:" the group, that a field
// names.
func (fsys *FS) lookup(field, spec, prefix string) (account.Account, error) {
	if spec == "" || strings.Contains(spec, ":") {
		return account.Account{}, &InvalidError{Field: field, Problem: "is not a name or number"}
	}
	acc, err := fsys.accounts.Lookup(prefix + spec)
	var unknown *account.UnknownUserError
	if errors.As(err, &unknown) {
		err = &account.UnknownUserError{Spec: spec}
	}
	return acc, err
}

// apply makes the changes, all to the same file; on a worker.
func (c *AttributeChanges) apply(path string, uid, gid int) error {
	flags := unix.O_PATH
	if c.NoFollow {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := openAt(unix.AT_FDCWD, path, flags, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := c.fit(fd); err != nil {
		return err
	}
	if uid != unchanged || gid != unchanged {
		if err := unix.Fchownat(fd, "", uid, gid, itself("")); err != nil {
			return pathError("change owner of", path, err)
		}
	}
	// A descriptor that was opened without any right to the contents serves for
	// the rest through its link, which is no link that anybody could have planted.
	if c.Mode != nil {
		if err := unix.Chmod(descriptorLink(fd), *c.Mode); err != nil {
			return pathError("change mode of", path, err)
		}
	}
	if err := c.applyExtended(descriptorLink(fd)); err != nil {
		return pathError("change extended attributes of", path, err)
	}
	return pathError("change times of", path, c.applyTimes(fd))
}

// fit checks that a link is not to get what a link cannot have.
func (c *AttributeChanges) fit(fd int) error {
	if !c.NoFollow {
		return nil
	}
	info, err := statAt(fd, "")
	if err != nil || info.Type != TypeSymlink {
		return err
	}
	const problem = "cannot be set on a link itself"
	switch {
	case c.Mode != nil:
		return &InvalidError{Field: "mode", Problem: problem}
	case len(c.Set) > 0:
		return &InvalidError{Field: "set_attributes", Problem: problem}
	case len(c.Remove) > 0:
		return &InvalidError{Field: "remove_attributes", Problem: problem}
	}
	return nil
}

func (c *AttributeChanges) applyExtended(link string) error {
	for _, attribute := range c.Set {
		if err := unix.Setxattr(link, attribute.Name, attribute.Value, 0); err != nil {
			return err
		}
	}
	for _, name := range c.Remove {
		if err := unix.Removexattr(link, name); err != nil {
			return err
		}
	}
	return nil
}

func (c *AttributeChanges) applyTimes(fd int) error {
	if c.AccessTime == nil && c.ModTime == nil {
		return nil
	}
	access, err := timespec(c.AccessTime)
	if err != nil {
		return err
	}
	modified, err := timespec(c.ModTime)
	if err != nil {
		return err
	}
	return setTimespecs(fd, "", access, modified)
}

// timespec is a time as utimensat(2) takes it; nil is to stay as it is.
func timespec(t *time.Time) (unix.Timespec, error) {
	if t == nil {
		return unix.Timespec{Nsec: unix.UTIME_OMIT}, nil
	}
	return unix.TimeToTimespec(*t)
}
