package fsapi

import (
	"archive/tar"
	"strings"

	"guestd.internal/internal/account"
)

// entryOwner is whom an entry is to belong to; unchanged ids are -1.
type entryOwner struct{ uid, gid int }

// nobodyElse leaves an entry to the user who makes it.
var nobodyElse = entryOwner{uid: -1, gid: -1}

// entryOwners looks up whom archives mean. It is for one call and one goroutine.
type entryOwners struct {
	accounts      *account.DB
	users, groups map[string]int // -1: there is none of that name
}

func newEntryOwners(accounts *account.DB) *entryOwners {
	return &entryOwners{accounts: accounts, users: map[string]int{}, groups: map[string]int{}}
}

// of is an entry's owner: by name, as with tar(1), and else by number.
func (o *entryOwners) of(h *tar.Header) entryOwner {
	found := entryOwner{uid: h.Uid, gid: h.Gid}
	if uid := lookupID(o.users, h.Uname, o.user); uid >= 0 {
		found.uid = uid
	}
	if gid := lookupID(o.groups, h.Gname, o.group); gid >= 0 {
		found.gid = gid
	}
	const most = 1<<32 - 2 // (uid_t)-1 means "unchanged"
	if found.uid < 0 || found.uid > most || found.gid < 0 || found.gid > most {
		return nobodyElse
	}
	return found
}

// lookupID asks find once for each name.
func lookupID(cache map[string]int, name string, find func(string) int) int {
	if name == "" || strings.Trim(name, "0123456789") == "" || strings.Contains(name, ":") {
		return -1 // a number says no more than the header's own
	}
	id, ok := cache[name]
	if !ok {
		if len(cache) >= maxNames || len(name) > maxAccountName {
			return -1
		}
		id = find(name)
		cache[name] = id
	}
	return id
}

// maxAccountName is the longest name of a user or group that is looked up; Linux's
// tools take 32.
const maxAccountName = 256

func (o *entryOwners) user(name string) int {
	acc, err := o.accounts.Lookup(name)
	if err != nil || acc.Name != name {
		return -1
	}
	return int(acc.UID)
}

func (o *entryOwners) group(name string) int {
	acc, err := o.accounts.Lookup("0:" + name)
	if err != nil {
		return -1
	}
	return int(acc.GID)
}
