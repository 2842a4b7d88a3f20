package account

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"guestd.internal/internal/filestamp"
)

const (
	// maxFileSize is how much of a file is parsed; lines after it do not count.
	maxFileSize = 8 << 20
	// maxLine is the longest line that is parsed. A group's line grows with its
	// members; longer ones are ignored like other malformed lines.
	maxLine = 1 << 20
	// maxGroups is NGROUPS_MAX of Linux, the most that setgroups(2) takes.
	maxGroups = 65536
)

// user is one entry of passwd(5).
type user struct {
	name        string
	uid, gid    uint32
	home, shell string
}

// tables are the parsed contents of the two files; immutable once built.
type tables struct {
	byName    map[string]user
	byUID     map[uint32]user
	gidByName map[string]uint32
	groupName map[uint32]string
	members   map[string][]uint32 // groups that list a user, in the file's order
}

// DB is the user and group database of one root file system. It is safe for
// concurrent use.
type DB struct {
	passwdPath, groupPath string
	process               func() (identity, error)

	mu            sync.Mutex // protects the following
	parsed        *tables
	passwd, group filestamp.Stamp
}

// Open returns the database of the file system below root ("" means "/"). The
// files are read when they are first needed; a missing one counts as empty.
func Open(root string) *DB {
	if root == "" {
		root = "/"
	}
	return &DB{
		passwdPath: filepath.Join(root, "etc/passwd"),
		groupPath:  filepath.Join(root, "etc/group"),
		process:    sync.OnceValues(processIdentity), // guestd never changes whom it acts as
	}
}

// load returns the current tables and parses the files again if they changed.
func (db *DB) load() (*tables, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	passwd, err := filestamp.Of(db.passwdPath)
	if err != nil {
		return nil, fmt.Errorf("reading the user database: %w", err)
	}
	group, err := filestamp.Of(db.groupPath)
	if err != nil {
		return nil, fmt.Errorf("reading the user database: %w", err)
	}
	if db.parsed != nil && passwd == db.passwd && group == db.group {
		return db.parsed, nil
	}
	passwdData, err := readCapped(db.passwdPath)
	if err != nil {
		return nil, err
	}
	groupData, err := readCapped(db.groupPath)
	if err != nil {
		return nil, err
	}
	// The stamps are older than the contents: a change in between is seen as a
	// change by the next call and costs one parse more.
	db.parsed, db.passwd, db.group = parse(passwdData, groupData), passwd, group
	return db.parsed, nil
}

// readCapped reads a regular file's first maxFileSize bytes. It opens without
// blocking, so that a FIFO in the file's place is an error and no hang.
func readCapped(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the user database: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the user database: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("reading the user database: %s is no regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFileSize))
	if err != nil {
		return nil, fmt.Errorf("reading the user database: %w", err)
	}
	return data, nil
}

// parse reads passwd(5) and group(5). Malformed lines are ignored; of several
// entries for one name or id the first counts, as with the C library.
func parse(passwd, group []byte) *tables {
	t := &tables{
		byName: map[string]user{}, byUID: map[uint32]user{},
		gidByName: map[string]uint32{}, groupName: map[uint32]string{},
		members: map[string][]uint32{},
	}
	for line := range bytes.Lines(passwd) {
		if u, ok := parseUser(line); ok {
			addFirst(t.byName, u.name, u)
			addFirst(t.byUID, u.uid, u)
		}
	}
	for line := range bytes.Lines(group) {
		name, gid, members, ok := parseGroup(line)
		if !ok {
			continue
		}
		addFirst(t.gidByName, name, gid)
		addFirst(t.groupName, gid, name)
		for member := range strings.SplitSeq(members, ",") {
			member = strings.TrimSpace(member)
			// Only users that exist: a hostile file cannot make the map grow
			// beyond the entries that are kept anyway.
			if _, ok := t.byName[member]; ok && len(t.members[member]) < maxGroups {
				t.members[member] = append(t.members[member], gid)
			}
		}
	}
	return t
}

func addFirst[K comparable, V any](m map[K]V, key K, value V) {
	if _, ok := m[key]; !ok {
		m[key] = value
	}
}

// fields splits a line into exactly n colon-separated fields.
func fields(line []byte, n int) ([]string, bool) {
	if len(line) > maxLine || bytes.IndexByte(line, 0) >= 0 {
		return nil, false
	}
	parts := strings.Split(strings.TrimRight(string(line), "\r\n"), ":")
	return parts, len(parts) == n && validName(parts[0])
}

// validName refuses what is no entry (comments, NIS inclusions) and what would
// be ambiguous elsewhere (spaces, control characters, slashes).
func validName(name string) bool {
	if name == "" || strings.ContainsAny(name[:1], "#+-") {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '/' })
}

func parseUser(line []byte) (user, bool) {
	// name:password:uid:gid:gecos:home:shell
	parts, ok := fields(line, 7)
	if !ok {
		return user{}, false
	}
	uid, okUID := parseID(parts[2])
	gid, okGID := parseID(parts[3])
	u := user{name: parts[0], uid: uid, gid: gid, home: parts[5], shell: parts[6]}
	if !strings.HasPrefix(u.home, "/") {
		u.home = "/"
	}
	if u.shell == "" {
		u.shell = "/bin/sh"
	}
	return u, okUID && okGID
}

func parseGroup(line []byte) (name string, gid uint32, members string, ok bool) {
	// name:password:gid:member,member
	parts, ok := fields(line, 4)
	if !ok {
		return "", 0, "", false
	}
	gid, ok = parseID(parts[2])
	return parts[0], gid, parts[3], ok
}
