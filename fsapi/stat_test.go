package fsapi

import (
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

func TestStatFields(t *testing.T) {
	f := newFixture(t)
	path := f.put("file", "12345")
	must(t, os.Link(path, f.path("second")))
	must(t, os.Chmod(path, 0o751|fs.ModeSticky))
	modified, accessed := time.Unix(1_500_000_000, 987654321), time.Unix(-5, 1)
	must(t, os.Chtimes(path, accessed, modified))
	info, err := f.Stat(f.ctx, f.user, path, false)
	must(t, err)
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	if info.Path != path || info.Name != "file" || info.Type != TypeRegular || info.Size != 5 || info.Mode != 0o1751 ||
		info.Links != 2 || info.Inode != st.Ino || info.Device != st.Dev || info.UID != st.Uid || info.GID != st.Gid ||
		!info.ModTime.Equal(modified) || !info.AccessTime.Equal(accessed) ||
		!info.ChangeTime.Equal(time.Unix(st.Ctim.Unix())) || info.ChangeTime.Before(info.BirthTime) {
		t.Errorf("%+v", info)
	}
	if f.user != "" && (info.Owner != testUser || info.Group != testUser) {
		t.Errorf("owner %q, group %q", info.Owner, info.Group)
	}
}

func TestStatTypes(t *testing.T) {
	f := newFixture(t)
	must(t, syscall.Mkfifo(f.path("fifo"), 0o600))
	must(t, unix.Mknod(f.path("socket"), unix.S_IFSOCK|0o600, 0))
	f.symlink("fifo", "link")
	for path, want := range map[string]Type{
		"fifo": TypeFIFO, "socket": TypeSocket, "link": TypeSymlink, ".": TypeDirectory, "/": TypeDirectory, "/dev/null": TypeCharDevice,
	} {
		info, err := f.Stat(f.ctx, f.user, path, false)
		if err != nil || info.Type != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Type, err, want)
		}
	}
	if info, err := f.Stat(f.ctx, f.user, "/dev/null", false); err != nil || info.RDevice != unix.Mkdev(1, 3) {
		t.Errorf("/dev/null: %+v, %v", info, err)
	}
	if info, err := f.Stat(f.ctx, f.user, "/", false); err != nil || info.Name != "/" {
		t.Errorf("/: %+v, %v", info, err)
	}
}

func TestStatLinks(t *testing.T) {
	f := newFixture(t)
	f.mkdir("dir")
	f.put("dir/file", "12345")
	f.symlink("dir", "way")
	f.symlink("way/file", "link")
	f.symlink("no where", "broken")
	f.symlink("circle", "circle")
	for _, c := range []struct {
		path, target  string
		follow        bool
		kind, leadsTo Type
		broken        bool
		resolved      string
	}{
		{path: "link", target: "way/file", kind: TypeSymlink, leadsTo: TypeRegular},
		{path: "link", follow: true, target: "way/file", kind: TypeRegular, leadsTo: TypeRegular, resolved: "dir/file"},
		{path: "way", target: "dir", kind: TypeSymlink, leadsTo: TypeDirectory},
		{path: "way/", kind: TypeDirectory},
		{path: "way", follow: true, target: "dir", kind: TypeDirectory, leadsTo: TypeDirectory, resolved: "dir"},
		{path: "broken", target: "no where", kind: TypeSymlink, broken: true},
		{path: "circle", target: "circle", kind: TypeSymlink, broken: true},
		{path: "way/file", follow: true, kind: TypeRegular},
	} {
		info, err := f.Stat(f.ctx, f.user, c.path, c.follow)
		resolved := c.resolved
		if resolved != "" {
			resolved = f.path(resolved)
		}
		if err != nil || info.Type != c.kind || info.LinkTarget != c.target || info.TargetType != c.leadsTo || info.Broken != c.broken || info.ResolvedPath != resolved {
			t.Errorf("%s, follow %v: %+v, %v", c.path, c.follow, info, err)
		}
	}
	_, err := f.Stat(f.ctx, f.user, "broken/", false)
	wantErr(t, "broken with a slash", err, fs.ErrNotExist)
	_, err = f.Stat(f.ctx, f.user, "broken", true)
	wantErr(t, "broken, followed", err, fs.ErrNotExist)
	_, err = f.Stat(f.ctx, f.user, "circle", true)
	wantErr(t, "circle, followed", err, ErrLoop)
	info, err := f.Stat(f.ctx, "", "/proc/self/fd/0", false)
	if err != nil || info.Type != TypeSymlink || info.Broken || info.TargetType != TypeUnknown {
		t.Errorf("magic link: %+v, %v", info, err)
	}
}

func TestStatErrorsAndUsers(t *testing.T) {
	f := newFixture(t)
	_, err := f.Stat(f.ctx, f.user, "missing", true)
	wantErr(t, "missing", err, fs.ErrNotExist)
	if !strings.Contains(err.Error(), `"missing"`) {
		t.Errorf("the error does not name the path: %v", err)
	}
	_, err = f.Stat(f.ctx, "nobody-here", "/", true)
	var unknown *account.UnknownUserError
	if !asError(err, &unknown) || unknown.Spec != "nobody-here" {
		t.Errorf("unknown user: %v", err)
	}
	needRoot(t)
	configured := New(Config{Accounts: f.accounts, DefaultUser: func() string { return testUser }})
	if info, err := configured.Stat(f.ctx, "", ".", true); err != nil || info.Path != f.home {
		t.Errorf("configured default user: %+v, %v", info, err)
	}
}

func TestNamesThatAreNotUTF8(t *testing.T) {
	f := newFixture(t)
	const name = "\xff\xfe\x01 \n'\"\\é\x80"
	_, err := f.write(f.user, name, "content", WriteOptions{})
	must(t, err)
	f.wantContent(f.path(name), "content")
	info, err := f.Stat(f.ctx, f.user, name, false)
	if err != nil || info.Name != name {
		t.Errorf("%q, %v", info.Name, err)
	}
	if entries := f.list("", ListOptions{}); len(entries) != 1 || entries[0].Info.Name != name {
		t.Errorf("%+v", entries)
	}
	if entries := f.list("", ListOptions{Include: []string{"\xff*\x80"}}); len(entries) != 1 {
		t.Errorf("pattern: %+v", entries)
	}
	must(t, f.move(name, name+"\xfd", MoveOptions{}))
	f.symlink(name+"\xfd", "link\xfc")
	info, err = f.Stat(f.ctx, f.user, "link\xfc", true)
	if err != nil || info.LinkTarget != name+"\xfd" || info.ResolvedPath != f.path(name+"\xfd") {
		t.Errorf("%+v, %v", info, err)
	}
	must(t, f.remove(f.user, name+"\xfd", RemoveOptions{}))
	f.wantNames(f.home, "link\xfc")
}

func TestTypeString(t *testing.T) {
	if TypeBlockDevice.String() != "block device" || TypeUnknown.String() != "unknown" || Type(99).String() != "Type(99)" {
		t.Error(TypeBlockDevice, TypeUnknown, Type(99))
	}
}
