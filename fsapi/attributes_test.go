package fsapi

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

func (f *fixture) setErr(user, path string, changes AttributeChanges) error {
	_, err := f.SetAttributes(f.ctx, user, path, changes)
	return err
}

func TestLink(t *testing.T) {
	f := newFixture(t)
	f.tree("file", "dir/", "old->nowhere")
	info, err := f.Link(f.ctx, f.user, "file", "link", false)
	if err != nil || info.Type != TypeSymlink || info.LinkTarget != "file" || info.TargetType != TypeRegular || info.Path != f.path("link") {
		t.Errorf("%+v, %v", info, err)
	}
	if uid, _, _ := f.owner(f.path("link")); f.user != "" && uid != testUID {
		t.Errorf("the link belongs to %d", uid)
	}
	_, err = f.Link(f.ctx, f.user, "no/where/\xff", "old", false)
	wantErr(t, "taken", err, fs.ErrExist)
	for _, path := range []string{"old", "file"} {
		info, err = f.Link(f.ctx, f.user, "no/where/\xff", path, true)
		if err != nil || info.LinkTarget != "no/where/\xff" || !info.Broken {
			t.Errorf("%+v, %v", info, err)
		}
	}
	_, err = f.Link(f.ctx, f.user, "x", "dir", true)
	wantErr(t, "a folder", err, ErrIsDirectory)
	for _, special := range []string{"fifo", "socket"} {
		kind := map[string]uint32{"fifo": unix.S_IFIFO, "socket": unix.S_IFSOCK}[special]
		if err := unix.Mknod(f.path(special), kind|0o600, 0); err != nil {
			t.Fatal(err)
		}
		_, err = f.Link(f.ctx, f.user, "x", special, true)
		wantErr(t, special, err, ErrNotSupportedType)
		var stat unix.Stat_t
		if err := unix.Lstat(f.path(special), &stat); err != nil || stat.Mode&unix.S_IFMT != kind {
			t.Errorf("%s is now of mode %o: %v", special, stat.Mode, err)
		}
	}
	_, err = f.Link(f.ctx, f.user, "x", "new/", true)
	wantErr(t, "a slash", err, ErrNotDirectory)
	_, err = f.Link(f.ctx, f.user, "x", "no/such", true)
	wantErr(t, "no folder", err, fs.ErrNotExist)
	_, err = f.Link(f.ctx, f.user, strings.Repeat("long/", 1000), "new", false)
	wantErr(t, "a long target", err, ErrNameTooLong)
	_, err = f.Link(f.ctx, f.user, "", "new", false)
	wantInvalid(t, "no target", err, "target")
	_, err = f.Link(f.ctx, f.user, "a\x00b", "new", false)
	wantInvalid(t, "NUL", err, "target")
	_, err = f.Link(f.ctx, f.user, "x", "/", false)
	wantInvalid(t, "the root", err, "path")
	f.wantNames(f.home, "dir", "fifo", "file", "link", "old", "socket")
}

func TestLinkNeedsTheUsersRights(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir, file := secret(t)
	f.symlink(dir, "to-dir")
	for _, path := range []string{file, dir + "/new", "to-dir/new", "to-dir/closed/new"} {
		for _, replace := range []bool{false, true} {
			if _, err := f.Link(f.ctx, f.user, "x", path, replace); err == nil {
				t.Errorf("%s: a link was made", path)
			}
		}
	}
	f.wantContent(file, "secret")
	f.wantNames(dir, "closed", "secret")
}

func TestSetAttributes(t *testing.T) {
	f := newFixture(t)
	f.tree("file", "link->file", "dir/")
	must(t, os.Chmod(f.path("file"), 0)) // no right to the contents is needed
	old, recent := time.Unix(-5, 7), time.Unix(1<<33, 123456789)
	info, err := f.SetAttributes(f.ctx, f.user, "link", AttributeChanges{
		Mode: ptr[uint32](0o2710), ModTime: &old, AccessTime: &recent,
	})
	if err != nil || info.Mode != 0o2710 || !info.ModTime.Equal(old) || !info.AccessTime.Equal(recent) || info.Type != TypeRegular || info.Path != f.path("link") {
		t.Errorf("%+v, %v", info, err)
	}
	info, err = f.SetAttributes(f.ctx, f.user, "file", AttributeChanges{ModTime: &recent})
	if err != nil || info.Mode != 0o2710 || !info.ModTime.Equal(recent) || !info.AccessTime.Equal(recent) {
		t.Errorf("what was not named changed: %+v, %v", info, err)
	}
	info, err = f.SetAttributes(f.ctx, f.user, "dir/", AttributeChanges{Mode: ptr[uint32](0o1777)})
	if err != nil || info.Mode != 0o1777 {
		t.Errorf("%+v, %v", info, err)
	}
	info, err = f.SetAttributes(f.ctx, f.user, "link", AttributeChanges{NoFollow: true, ModTime: &old})
	if err != nil || info.Type != TypeSymlink || !info.ModTime.Equal(old) {
		t.Errorf("%+v, %v", info, err)
	}
	if target, err := os.Stat(f.path("file")); err != nil || !target.ModTime().Equal(recent) {
		t.Errorf("the link's target changed: %v, %v", target.ModTime(), err)
	}
	// Nothing at all, and NoFollow with what is no link, are fine.
	must(t, f.setErr(f.user, "file", AttributeChanges{}))
	must(t, f.setErr(f.user, "file", AttributeChanges{NoFollow: true, Mode: ptr[uint32](0o600)}))
}

func TestSetExtendedAttributes(t *testing.T) {
	f := newFixture(t)
	path := f.put("file", "x")
	value := strings.Repeat("\x00\xff", 500)
	must(t, f.setErr(f.user, "file", AttributeChanges{Set: []ExtendedAttribute{{"user.a", []byte(value)}, {"user.empty", nil}}}))
	buf := make([]byte, 2000)
	if n, err := unix.Getxattr(path, "user.a", buf); err != nil || string(buf[:n]) != value {
		t.Errorf("%q, %v", buf[:max(n, 0)], err)
	}
	if n, err := unix.Getxattr(path, "user.empty", buf); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	must(t, f.setErr(f.user, "file", AttributeChanges{
		Set: []ExtendedAttribute{{"user.a", []byte("new")}}, Remove: []string{"user.empty"},
	}))
	if n, err := unix.Getxattr(path, "user.a", buf); err != nil || string(buf[:n]) != "new" {
		t.Errorf("%q, %v", buf[:max(n, 0)], err)
	}
	wantErr(t, "gone", f.setErr(f.user, "file", AttributeChanges{Remove: []string{"user.empty"}}), ErrNoAttribute)
}

func TestSetAttributesRefusals(t *testing.T) {
	f := newFixture(t)
	f.tree("file", "link->file", "broken->nowhere")
	when := time.Now()
	for field, changes := range map[string]AttributeChanges{
		"mode":              {Mode: ptr[uint32](0o10000)},
		"owner":             {Owner: ptr("a:b")},
		"group":             {Group: ptr("")},
		"set_attributes":    {Set: []ExtendedAttribute{{Name: "security.capability"}}},
		"remove_attributes": {Remove: []string{"user."}},
	} {
		wantInvalid(t, field, f.setErr(f.user, "file", changes), field)
	}
	for field, changes := range map[string]AttributeChanges{
		"mode":              {Mode: ptr[uint32](0o600), NoFollow: true},
		"set_attributes":    {Set: []ExtendedAttribute{{Name: "user.a"}}, NoFollow: true},
		"remove_attributes": {Remove: []string{"user.a"}, NoFollow: true},
	} {
		wantInvalid(t, "a link's "+field, f.setErr(f.user, "link", changes), field)
	}
	for _, bad := range []ExtendedAttribute{{Name: "user." + strings.Repeat("x", 251)}, {Name: "user.a\x00"}, {Name: "user.a", Value: make([]byte, 64<<10+1)}} {
		wantInvalid(t, "attribute", f.setErr(f.user, "file", AttributeChanges{Set: []ExtendedAttribute{bad}}), "set_attributes")
	}
	wantInvalid(t, "too many", f.setErr(f.user, "file", AttributeChanges{Remove: make([]string, 1001)}), "remove_attributes")
	for _, changes := range []AttributeChanges{{Owner: ptr("nobody-here")}, {Group: ptr("nobody-here")}} {
		var unknown *account.UnknownUserError
		if err := f.setErr(f.user, "file", changes); !asError(err, &unknown) || unknown.Spec != "nobody-here" {
			t.Errorf("%v", err)
		}
	}
	wantErr(t, "missing", f.setErr(f.user, "missing", AttributeChanges{ModTime: &when}), fs.ErrNotExist)
	wantErr(t, "broken", f.setErr(f.user, "broken", AttributeChanges{ModTime: &when}), fs.ErrNotExist)
	wantErr(t, "magic", f.setErr(f.user, "/proc/self/cwd", AttributeChanges{ModTime: &when}), ErrLoop)
	must(t, f.setErr(f.user, "broken", AttributeChanges{ModTime: &when, NoFollow: true}))
}

func TestSetAttributesAsRootAndAsOthers(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	dir, file := secret(t)
	f.tree("mine", "program")
	must(t, os.Link(file, f.path("hard")))
	f.symlink(file, "to-file")
	must(t, syscall.Mkfifo(f.path("fifo"), 0o666)) // root's, and nobody reads it
	must(t, os.WriteFile(f.path("roots"), []byte("x"), 0o666))
	when := time.Now()
	for name, changes := range map[string]AttributeChanges{
		"mode": {Mode: ptr[uint32](0o777)}, "owner": {Owner: ptr(testUser)}, "group": {Group: ptr("share")},
		"times": {ModTime: &when}, "attribute": {Set: []ExtendedAttribute{{Name: "user.a"}}},
	} {
		for _, path := range []string{"hard", "to-file", "fifo", "roots", file, filepath.Join(dir, "closed")} {
			if path == "roots" && name == "attribute" {
				continue // a file that everybody may write
			}
			wantErr(t, name+" "+path, f.setErr(testUser, path, changes), fs.ErrPermission)
		}
	}
	wantErr(t, "giving away", f.setErr(testUser, "mine", AttributeChanges{Owner: ptr("root")}), fs.ErrPermission)
	wantErr(t, "a foreign group", f.setErr(testUser, "mine", AttributeChanges{Group: ptr("0")}), fs.ErrPermission)
	must(t, f.setErr(testUser, "mine", AttributeChanges{Group: ptr("share")}))
	if uid, gid, _ := f.owner(f.path("mine")); uid != testUID || gid != shareGID {
		t.Errorf("%d:%d", uid, gid)
	}
	info, err := f.SetAttributes(f.ctx, "root", f.path("program"), AttributeChanges{
		Owner: ptr(otherUser), Group: ptr("4711"), Mode: ptr[uint32](0o4755),
	})
	if err != nil || info.Owner != otherUser || info.GID != 4711 || info.Mode != 0o4755 {
		t.Errorf("%+v, %v", info, err)
	}
	// As chown(1) does it, without a mode set-user-id goes.
	info, err = f.SetAttributes(f.ctx, "root", f.path("program"), AttributeChanges{Owner: ptr("31001")})
	if err != nil || info.Owner != testUser || info.GID != 4711 || info.Mode != 0o755 {
		t.Errorf("%+v, %v", info, err)
	}
	must(t, f.setErr("root", f.path("to-file"), AttributeChanges{Owner: ptr(otherUser), NoFollow: true}))
	if uid, _, mode := f.owner(file); uid != 0 || mode != 0o600 {
		t.Errorf("root's file: uid %d, mode %v", uid, mode)
	}
	if uid, _, _ := f.owner(f.path("to-file")); uid != otherUID {
		t.Errorf("the link belongs to %d", uid)
	}
}
