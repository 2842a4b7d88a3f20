package account

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const testPasswd = `root:x:0:0:root:/root:/bin/bash
# a comment
user:x:1000:1000:,,,:/home/user:/bin/zsh
+nis
broken:x:abc:1:::
short:x:1
bare:x:1001:1001:::
minus:x:4294967295:5::/:/bin/sh
huge:x:4294967296:5::/:/bin/sh
signed:x:+7:7::/:/bin/sh
again:x:1000:5::/nowhere:/bin/sh
user:x:7777:7777::/evil:/bin/sh
1234:x:1300:1300::/home/digits:/bin/sh
` + "nul\x00:x:9:9::/:/bin/sh\n" + `last:x:1002:100::relative:/bin/sh`

const testGroup = `root:x:0:
docker:x:999:user,bare
video:x:44: user ,user
user:x:1000:user
dup:x:44:user
ghost:x:55:nobody-knows
bad:x:4294967295:user
staff:x:50:
`

func newDB(t *testing.T, passwd, group string) (*DB, string) {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "etc/passwd"), passwd)
	write(t, filepath.Join(root, "etc/group"), group)
	return Open(root), root
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// runAs makes db believe that the process acts as the given ids.
func runAs(db *DB, uid, gid uint32, groups ...uint32) {
	db.process = func() (identity, error) { return identity{uid: uid, gid: gid, groups: groups}, nil }
}

func TestLookup(t *testing.T) {
	db, _ := newDB(t, testPasswd, testGroup)
	user := Account{Name: "user", UID: 1000, GID: 1000, Groups: []uint32{1000, 999, 44}, Home: "/home/user", Shell: "/bin/zsh"}
	userStaff := user
	userStaff.GID, userStaff.Groups = 50, []uint32{50, 999, 44, 1000}
	for spec, want := range map[string]Account{
		"user":       user,
		"1000":       user,
		"1000:1000":  user,
		"user:staff": userStaff,
		"user:50":    userStaff,
		"bare":       {Name: "bare", UID: 1001, GID: 1001, Groups: []uint32{1001, 999}, Home: "/", Shell: "/bin/sh"},
		"last":       {Name: "last", UID: 1002, GID: 100, Groups: []uint32{100}, Home: "/", Shell: "/bin/sh"},
		"1234":       {Name: "1234", UID: 1300, GID: 1300, Groups: []uint32{1300}, Home: "/home/digits", Shell: "/bin/sh"},
		"4242":       {UID: 4242, GID: 4242, Groups: []uint32{4242}, Home: "/", Shell: "/bin/sh"},
		"4242:7":     {UID: 4242, GID: 7, Groups: []uint32{7}, Home: "/", Shell: "/bin/sh"},
		"4242:video": {UID: 4242, GID: 44, Groups: []uint32{44}, Home: "/", Shell: "/bin/sh"},
	} {
		got, err := db.Lookup(spec)
		if err != nil {
			t.Errorf("Lookup(%q): %v", spec, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Lookup(%q) (-want +got):\n%s", spec, diff)
		}
	}
}

func TestLookupUnknown(t *testing.T) {
	db, _ := newDB(t, testPasswd, testGroup)
	for _, spec := range []string{
		"", ":", "nobody", "user:", ":1000", "user:nogroup", "4294967295", "1000:4294967295",
		"4294967296", "-1", "+5", "0x10", "1e3", "minus", "huge", "signed", "broken", "short", "# a comment", "user:1000:1",
	} {
		acc, err := db.Lookup(spec)
		var unknown *UnknownUserError
		if !errors.As(err, &unknown) || unknown.Spec != spec {
			t.Errorf("Lookup(%q) = %+v, %v; want UnknownUserError of that spec", spec, acc, err)
		}
	}
}

func TestNames(t *testing.T) {
	db, _ := newDB(t, testPasswd, testGroup)
	if name, ok := db.UserName(1000); name != "user" || !ok {
		t.Errorf("UserName(1000) = %q, %v", name, ok)
	}
	if name, ok := db.GroupName(44); name != "video" || !ok {
		t.Errorf("GroupName(44) = %q, %v", name, ok)
	}
	if name, ok := db.UserName(7777); name != "user" || !ok { // as getpwuid(3) has it
		t.Errorf("UserName(7777) = %q, %v", name, ok)
	}
	if _, ok := db.GroupName(12345); ok {
		t.Error("GroupName(12345) exists")
	}
}

func TestFileChangesAreSeen(t *testing.T) {
	db, root := newDB(t, testPasswd, testGroup)
	if _, err := db.Lookup("newcomer"); err == nil {
		t.Fatal("newcomer exists already")
	}
	write(t, filepath.Join(root, "etc/passwd"), testPasswd+"\nnewcomer:x:5000:5000::/:/bin/sh\n")
	if acc, err := db.Lookup("newcomer"); err != nil || acc.UID != 5000 {
		t.Fatalf("after the change: %+v, %v", acc, err)
	}
	if err := os.Remove(filepath.Join(root, "etc/passwd")); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Lookup("newcomer"); err == nil {
		t.Fatal("newcomer survived the file")
	}
	if acc, err := db.Lookup("77"); err != nil || acc.UID != 77 {
		t.Fatalf("numeric user without any file: %+v, %v", acc, err)
	}
}

func TestStrangeFileIsAnErrorAndNoHang(t *testing.T) {
	db, root := newDB(t, testPasswd, testGroup)
	path := filepath.Join(root, "etc/passwd")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Lookup("user"); err == nil {
		t.Error("a FIFO was read as a user database")
	}
}

func TestDefault(t *testing.T) {
	db, _ := newDB(t, testPasswd, testGroup)
	runAs(db, 0, 0, 0)
	check := func(db *DB, configured string, wantUID uint32) {
		t.Helper()
		if acc, err := db.Default(configured); err != nil || acc.UID != wantUID {
			t.Errorf("Default(%q) = %+v, %v; want uid %d", configured, acc, err, wantUID)
		}
	}
	check(db, "", 1000)
	check(db, "bare", 1001)
	runAs(db, 1001, 1001)
	check(db, "", 1001)
	without, _ := newDB(t, "root:x:0:0::/root:/bin/sh\n", "")
	runAs(without, 0, 0)
	check(without, "", 0)
	if _, err := db.Default("nobody"); err == nil {
		t.Error("an unknown configured user was replaced by another")
	}
}

func TestServe(t *testing.T) {
	db, _ := newDB(t, testPasswd, testGroup)
	runAs(db, 0, 0, 0)
	if acc, err := db.Serve("bare", ""); err != nil || acc.UID != 1001 {
		t.Errorf("root serving bare: %+v, %v", acc, err)
	}
	runAs(db, 1000, 1000, 1000, 27)
	want := Account{Name: "user", UID: 1000, GID: 1000, Groups: []uint32{1000, 27}, Home: "/home/user", Shell: "/bin/zsh"}
	for _, spec := range []string{"", "user", "1000", "1000:1000"} {
		acc, err := db.Serve(spec, "")
		if diff := cmp.Diff(want, acc); err != nil || diff != "" {
			t.Errorf("Serve(%q): %v (-want +got)\n%s", spec, err, diff)
		}
	}
	for _, spec := range []string{"root", "0", "bare", "4242", "1000:docker"} {
		if _, err := db.Serve(spec, ""); !errors.Is(err, ErrOtherUser) {
			t.Errorf("Serve(%q) = %v, want ErrOtherUser", spec, err)
		}
	}
	if _, err := db.Serve("", "root"); !errors.Is(err, ErrOtherUser) {
		t.Errorf("configured root without root: %v", err)
	}
	var unknown *UnknownUserError
	if _, err := db.Serve("nobody", ""); !errors.As(err, &unknown) {
		t.Errorf("Serve(nobody) = %v", err)
	}
}

func TestCurrentIsTheProcess(t *testing.T) {
	acc, err := Open("").Current()
	if err != nil {
		t.Fatal(err)
	}
	if int(acc.UID) != os.Geteuid() || int(acc.GID) != os.Getegid() {
		t.Errorf("Current() = %+v", acc)
	}
}

func TestConcurrentUse(t *testing.T) {
	db, root := newDB(t, testPasswd, testGroup)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if acc, err := db.Lookup("root"); err != nil || acc.UID != 0 {
					t.Errorf("Lookup(root) = %+v, %v", acc, err)
				}
				db.GroupName(44)
			}
		})
	}
	for range 50 {
		// Replaced by rename, as useradd does: a reader sees one or the other.
		temp := filepath.Join(root, "etc/passwd+")
		write(t, temp, testPasswd)
		if err := os.Rename(temp, filepath.Join(root, "etc/passwd")); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(testPasswd), []byte(testGroup), "user:staff")
	f.Add([]byte(":::::::\n\n:"), []byte("a:b:1:,,,"), "1:2")
	f.Add([]byte("u:x:1:1:::"), []byte(strings.Repeat("g:x:1:u\n", 9)), "u")
	f.Fuzz(func(t *testing.T, passwd, group []byte, spec string) {
		tables := parse(passwd, group)
		for name, u := range tables.byName {
			if name == "" || u.uid == noID || u.gid == noID || !strings.HasPrefix(u.home, "/") || u.shell == "" {
				t.Fatalf("entry %q: %+v", name, u)
			}
		}
		acc, ok := tables.lookup(spec)
		if !ok {
			return
		}
		if acc.UID == noID || acc.GID == noID || len(acc.Groups) == 0 || acc.Groups[0] != acc.GID {
			t.Fatalf("lookup(%q) = %+v", spec, acc)
		}
		seen := map[uint32]bool{}
		for _, gid := range acc.Groups {
			if gid == noID || seen[gid] {
				t.Fatalf("lookup(%q): group %d twice or no group", spec, gid)
			}
			seen[gid] = true
		}
	})
}
