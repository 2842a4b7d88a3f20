package client

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCopy(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	ctx := t.Context()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	plantFiles(t, dir, map[string]string{"tree/a": "12345", "tree/sub/b": "123", "file": "1"})
	old := time.Unix(1_000_000_000, 0)
	if err := errors.Join(os.Symlink("a", at("tree/link")), os.Chtimes(at("tree/a"), old, old)); err != nil {
		t.Fatal(err)
	}
	got, err := c.Copy(ctx, at("tree"), at("copy"), &CopyOptions{Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	if got.Entries != 5 || got.Bytes != 8 || got.Info.Path != at("copy") || !got.Info.IsDir() {
		t.Errorf("copied %+v, %+v", got, got.Info)
	}
	if target, err := os.Readlink(at("copy/link")); err != nil || target != "a" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	got, err = c.Copy(ctx, at("tree"), at("kept"), &CopyOptions{Recursive: true, Preserve: true, FollowLinks: true})
	if err != nil || got.Bytes != 13 {
		t.Errorf("followed: %+v, %v", got, err)
	}
	if info, err := os.Lstat(at("kept/a")); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("preserved: %+v, %v", info, err)
	}
	copyTo := func(from, to string, options *CopyOptions) error {
		_, err := c.Copy(ctx, at(from), at(to), options)
		return err
	}
	for name, c := range map[string]struct{ err, want error }{
		"a directory":      {copyTo("tree", "no", nil), syscall.EISDIR},
		"nothing":          {copyTo("nothing", "no", nil), fs.ErrNotExist},
		"without a parent": {copyTo("file", "no/no", nil), fs.ErrNotExist},
		"onto":             {copyTo("file", "tree/a", &CopyOptions{NoReplace: true}), fs.ErrExist},
		"into itself":      {copyTo("tree", "tree/sub/x", &CopyOptions{Recursive: true}), ErrInvalid},
		"as nobody":        {copyTo("file", "no", &CopyOptions{User: "no-such-user"}), ErrUserNotFound},
		"as no text":       {copyTo("file", "no", &CopyOptions{User: "\xff"}), ErrInvalid},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: got %v, want %v", name, c.err, c.want)
		}
	}
	if err := copyTo("file", "tree/a", nil); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(at("tree/a")); err != nil || string(got) != "1" {
		t.Errorf("the file has %q, %v", got, err)
	}
}

func TestSymlink(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	ctx := t.Context()
	dir := t.TempDir()
	link := filepath.Join(dir, "link \xff")
	if err := c.Symlink(ctx, "no/where \xfe", link, nil); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(link); err != nil || target != "no/where \xfe" {
		t.Errorf("it leads to %q, %v", target, err)
	}
	if err := c.Symlink(ctx, "other", link, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second one: %v", err)
	}
	if err := c.Symlink(ctx, "other", link, &SymlinkOptions{Replace: true}); err != nil {
		t.Error(err)
	}
	if target, err := os.Readlink(link); err != nil || target != "other" {
		t.Errorf("replaced it leads to %q, %v", target, err)
	}
	if err := c.Symlink(ctx, "x", dir, &SymlinkOptions{Replace: true}); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("in place of a directory: %v", err)
	}
	if err := c.Symlink(ctx, "x", link, &SymlinkOptions{User: "\xff"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("as no text: %v", err)
	}
}

func TestSetAttributes(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	ctx := t.Context()
	dir := t.TempDir()
	plantFiles(t, dir, map[string]string{"file": "x"})
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.Symlink("file", link); err != nil {
		t.Fatal(err)
	}
	mode := fs.FileMode(0o640) | fs.ModeSetgid
	modified, accessed := time.Unix(1_000_000_000, 5000), time.Unix(1_100_000_000, 0)
	info, err := c.SetAttributes(ctx, link, &AttributeChanges{
		Mode: &mode, Owner: strconv.Itoa(os.Getuid()), Group: strconv.Itoa(os.Getgid()),
		Modified: modified, Accessed: accessed, Xattrs: map[string][]byte{"user.origin": []byte("here\x00")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != mode || !info.Modified.Equal(modified) || !info.Accessed.Equal(accessed) {
		t.Errorf("it is %+v", info)
	}
	value := make([]byte, 100)
	if n, err := unix.Getxattr(file, "user.origin", value); err != nil || string(value[:n]) != "here\x00" {
		t.Errorf("the attribute is %q, %v", value[:max(0, n)], err)
	}
	if info, err := c.SetAttributes(ctx, file, nil); err != nil || info.Mode() != mode || !info.Modified.Equal(modified) {
		t.Errorf("changing nothing gives %+v, %v", info, err)
	}
	if info, err := c.SetAttributes(ctx, link, &AttributeChanges{NoFollow: true, Modified: accessed}); err != nil ||
		info.Mode().Type() != fs.ModeSymlink || !info.Modified.Equal(accessed) {
		t.Errorf("the link is %+v, %v", info, err)
	}
	remove := &AttributeChanges{RemoveXattrs: []string{"user.origin"}}
	if _, err := c.SetAttributes(ctx, file, remove); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string]struct {
		changes *AttributeChanges
		want    error
	}{
		"remove again":     {remove, fs.ErrNotExist},
		"an unknown owner": {&AttributeChanges{Owner: "no-such-user"}, ErrUserNotFound},
		"no user.":         {&AttributeChanges{Xattrs: map[string][]byte{"trusted.x": nil}}, ErrInvalid},
		"no text":          {&AttributeChanges{Group: "\xff"}, ErrInvalid},
		"no time":          {&AttributeChanges{Modified: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)}, ErrInvalid},
	} {
		if _, err := c.SetAttributes(ctx, file, bad.changes); !errors.Is(err, bad.want) {
			t.Errorf("%s: got %v, want %v", name, err, bad.want)
		}
	}
}
