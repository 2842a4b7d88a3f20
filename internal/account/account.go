// Package account knows the guest's users and groups: it reads /etc/passwd
// and /etc/group itself, because a static binary has no name service switch.
//
// It answers who a user specification ("name", "uid", "uid:gid",
// "name:group") means, which supplementary groups come with it, and what a
// numeric id is called. It does not authenticate anybody, knows no LDAP, NIS or
// other directory, changes no file and starts no process.
//
// A [DB] owns nothing that must be closed: no goroutine, no open file. It keeps
// the last parsed contents of the two files and reads them again once their
// identity, size or times change.
package account

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Account is one guest user, with everything that a process or a file
// operation on its behalf needs.
type Account struct {
	// Name is the login name; "" for a numeric id without an entry.
	Name string
	// UID and GID are the user's id and its primary group.
	UID, GID uint32
	// Groups are the groups for setgroups(2), without duplicates: the primary
	// group first, as initgroups(3) has it, then those of /etc/group that list
	// the user.
	Groups []uint32
	// Home is an absolute path, "/" where no entry says otherwise.
	Home string
	// Shell is the login shell, "/bin/sh" where no entry says otherwise.
	Shell string
}

// ErrOtherUser says that a user other than guestd's own was asked for while
// guestd does not run as root.
var ErrOtherUser = errors.New("without root only guestd's own user is served")

// UnknownUserError says that a user specification names nobody.
type UnknownUserError struct {
	Spec string // what was asked for, whole
}

// Error implements error.
func (e *UnknownUserError) Error() string {
	return "unknown user or group: " + strconv.QuoteToASCII(e.Spec)
}

// noID is (uid_t)-1, which the set*id system calls take for "leave unchanged":
// as a user it would mean whoever asks, so it is nobody's id here.
const noID = ^uint32(0)

// defaultName is the account that guestd serves as root when no other default
// user is configured.
const defaultName = "user"

// Lookup says whom spec means: "name", "uid", "uid:gid" or "name:group", where
// either side is a name or a decimal number and a name wins over a number. A
// number without an entry is accepted as it is: its group is the given one or
// else the number itself, its home "/". An explicit group replaces the primary
// one; the supplementary groups stay. The error is an [*UnknownUserError], or
// tells that a file cannot be read.
func (db *DB) Lookup(spec string) (Account, error) {
	t, err := db.load()
	if err != nil {
		return Account{}, err
	}
	acc, ok := t.lookup(spec)
	if !ok {
		return Account{}, &UnknownUserError{Spec: spec}
	}
	return acc, nil
}

func (t *tables) lookup(spec string) (Account, bool) {
	userPart, groupPart, hasGroup := strings.Cut(spec, ":")
	entry, known := t.byName[userPart]
	if !known {
		uid, ok := parseID(userPart)
		if !ok {
			return Account{}, false
		}
		if entry, known = t.byUID[uid]; !known {
			entry = user{uid: uid, gid: uid, home: "/", shell: "/bin/sh"}
		}
	}
	gid := entry.gid
	if hasGroup {
		var ok bool
		if gid, ok = t.groupID(groupPart); !ok {
			return Account{}, false
		}
	}
	return entry.account(gid, t.members[entry.name]), true
}

func (t *tables) groupID(spec string) (uint32, bool) {
	if gid, ok := t.gidByName[spec]; ok {
		return gid, true
	}
	return parseID(spec)
}

// account builds the Account of a passwd entry with gid as its primary group.
func (u user) account(gid uint32, member []uint32) Account {
	return Account{
		Name: u.name, UID: u.uid, GID: gid,
		Groups: uniqueGroups(gid, member),
		Home:   u.home, Shell: u.shell,
	}
}

// uniqueGroups puts primary before the others, each group once, and no more
// than the kernel takes.
func uniqueGroups(primary uint32, others []uint32) []uint32 {
	groups := []uint32{primary}
	seen := map[uint32]bool{primary: true}
	for _, gid := range others {
		if !seen[gid] && len(groups) < maxGroups {
			seen[gid] = true
			groups = append(groups, gid)
		}
	}
	return groups
}

// parseID reads a decimal uid or gid.
func parseID(s string) (uint32, bool) {
	if s == "" || s[0] == '+' || s[0] == '-' {
		return 0, false
	}
	id, err := strconv.ParseUint(s, 10, 32)
	if err != nil || uint32(id) == noID {
		return 0, false
	}
	return uint32(id), true
}

// UserName is the first name that /etc/passwd has for uid.
func (db *DB) UserName(uid uint32) (string, bool) {
	t, err := db.load()
	if err != nil {
		return "", false
	}
	entry, ok := t.byUID[uid]
	return entry.name, ok
}

// GroupName is the first name that /etc/group has for gid.
func (db *DB) GroupName(gid uint32) (string, bool) {
	t, err := db.load()
	if err != nil {
		return "", false
	}
	name, ok := t.groupName[gid]
	return name, ok
}

// identity is whom a process acts as.
type identity struct {
	uid, gid uint32
	groups   []uint32
}

// processIdentity asks the kernel whom this process acts as.
func processIdentity() (identity, error) {
	list, err := syscall.Getgroups()
	if err != nil {
		return identity{}, fmt.Errorf("reading the process's groups: %w", err)
	}
	id := identity{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	for _, gid := range list {
		id.groups = append(id.groups, uint32(gid))
	}
	return id, nil
}

// Current is whoever this process runs as: its effective ids and its groups as
// the kernel has them, with the name, home and shell of that uid's entry.
func (db *DB) Current() (Account, error) {
	id, err := db.process()
	if err != nil {
		return Account{}, err
	}
	t, err := db.load()
	if err != nil {
		return Account{}, err
	}
	return t.current(id), nil
}

func (t *tables) current(id identity) Account {
	entry, known := t.byUID[id.uid]
	if !known {
		entry = user{uid: id.uid, home: "/", shell: "/bin/sh"}
	}
	return entry.account(id.gid, id.groups)
}

// Default is the user of a request that names none: the configured one; else
// the account "user", where there is one and this process is root; else
// [DB.Current].
func (db *DB) Default(configured string) (Account, error) {
	if configured != "" {
		return db.Lookup(configured)
	}
	id, err := db.process()
	if err != nil {
		return Account{}, err
	}
	t, err := db.load()
	if err != nil {
		return Account{}, err
	}
	if _, ok := t.byName[defaultName]; ok && id.uid == 0 {
		acc, _ := t.lookup(defaultName)
		return acc, nil
	}
	return t.current(id), nil
}

// Serve says as whom a request with the user spec runs; "" means
// [DB.Default] with configured. Without root only this process's own user is
// served, with the groups that the process has; any other user or group is an
// error that wraps [ErrOtherUser].
func (db *DB) Serve(spec, configured string) (Account, error) {
	id, err := db.process()
	if err != nil {
		return Account{}, err
	}
	if spec == "" {
		spec = configured
	}
	if spec == "" {
		return db.Default("")
	}
	acc, err := db.Lookup(spec)
	if err != nil || id.uid == 0 {
		return acc, err
	}
	otherGroup := strings.Contains(spec, ":") && acc.GID != id.gid && !slices.Contains(id.groups, acc.GID)
	if acc.UID != id.uid || otherGroup {
		return Account{}, fmt.Errorf("serving user %q: %w", spec, ErrOtherUser)
	}
	return db.Current()
}
