package client

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

func TestFiles(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	ctx := t.Context()
	dir := t.TempDir()
	name := filepath.Join(dir, "a/b/not utf-8 \xff")
	contents := make([]byte, 3<<20+7)
	rand.NewChaCha8([32]byte{3}).Read(contents)

	mode := fs.FileMode(0o640) | fs.ModeSetgid
	sum := sha256.Sum256(contents)
	size := uint64(len(contents))
	result, err := c.WriteFile(ctx, name, contents, &WriteOptions{Mode: &mode, SHA256: sum[:], Size: &size})
	if err != nil {
		t.Fatal(err)
	}
	if !result.Created || result.InPlace || result.Bytes != size || result.Info.Path != name || result.Info.Mode() != mode {
		t.Errorf("the result is %+v with %+v", result, result.Info)
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, contents) {
		t.Errorf("%d bytes were written, %v", len(got), err)
	}
	if got, err := c.ReadFile(ctx, name, nil); err != nil || !bytes.Equal(got, contents) {
		t.Errorf("%d bytes were read, %v", len(got), err)
	}
	length := uint64(10)
	if got, err := c.ReadFile(ctx, name, &ReadOptions{Offset: 1 << 20, Length: &length}); err != nil ||
		!bytes.Equal(got, contents[1<<20:1<<20+10]) {
		t.Errorf("a part gives %v, %v", got, err)
	}
	r, err := c.Open(ctx, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := iotest.TestReader(r, contents); err != nil {
		t.Error(err)
	}
	if r.Info().Size() != int64(size) {
		t.Errorf("its size is %d", r.Info().Size())
	}
	r.Close()
	if _, err := c.WriteFile(ctx, name, []byte("more"), &WriteOptions{Placement: Append}); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(name); err != nil || len(got) != len(contents)+4 {
		t.Errorf("appended it has %d bytes, %v", len(got), err)
	}
}

func TestTree(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	ctx := t.Context()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		c.MkdirAll(ctx, at("one/two"), nil),
		c.Mkdir(ctx, at("three"), nil),
		os.Symlink("one", at("link")),
		os.WriteFile(at(".hidden"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if info, err := c.Lstat(ctx, at("link"), nil); err != nil || info.Mode().Type() != fs.ModeSymlink || info.LinkTarget != "one" || info.TargetMode != fs.ModeDir {
		t.Errorf("the link is %+v, %v", info, err)
	}
	if info, err := c.Stat(ctx, at("link"), nil); err != nil || !info.IsDir() || info.Name() != "link" {
		t.Errorf("through the link there is %+v, %v", info, err)
	}
	list := func(options *ListOptions) string {
		var names []string
		for info, err := range c.List(ctx, dir, options) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, strings.TrimPrefix(info.Path, dir+"/"))
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	if got := list(nil); got != ".hidden link one three" {
		t.Errorf("the directory has %q", got)
	}
	if got := list(&ListOptions{Depth: 2, SkipHidden: true}); got != "link one one/two three" {
		t.Errorf("two levels have %q", got)
	}
	for range c.List(ctx, dir, nil) {
		break // must not leave a goroutine
	}
	if err := c.Rename(ctx, at("three"), at("four"), nil); err != nil {
		t.Error(err)
	}
	if err := c.Remove(ctx, at("four"), nil); err != nil {
		t.Error(err)
	}
	if err := c.RemoveAll(ctx, at("one"), nil); err != nil {
		t.Error(err)
	}
	if err := c.RemoveAll(ctx, at("one"), nil); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
	if got := list(nil); got != ".hidden link" {
		t.Errorf("in the end there is %q", got)
	}
}

func TestFileErrors(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	ctx := t.Context()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(name string) error { _, err := c.Open(ctx, name, nil); return err }
	write := func(name string, o *WriteOptions) error {
		_, err := c.WriteFile(ctx, name, []byte("new"), o)
		return err
	}
	statAs := func(user string) error {
		_, err := c.Stat(ctx, file, &FileOptions{User: user})
		return err
	}
	for name, c := range map[string]struct{ err, want error }{
		"open nothing":         {open(dir + "/nothing"), fs.ErrNotExist},
		"open a directory":     {open(dir), syscall.EISDIR},
		"open below a file":    {open(file + "/x"), syscall.ENOTDIR},
		"open as nobody known": {statAs("no-such-user"), ErrUserNotFound},
		"write exclusively":    {write(file, &WriteOptions{Exclusive: true}), fs.ErrExist},
		"write a directory":    {write(dir, nil), syscall.EISDIR},
		"write without parent": {write(dir+"/x/y", &WriteOptions{NoParents: true}), fs.ErrNotExist},
		"write a wrong sum":    {write(file, &WriteOptions{SHA256: make([]byte, 32)}), ErrChecksum},
		"mkdir":                {c.Mkdir(ctx, file, nil), fs.ErrExist},
		"remove nothing":       {c.Remove(ctx, dir+"/nothing", nil), fs.ErrNotExist},
		"remove a full one":    {c.Remove(ctx, dir, nil), syscall.ENOTEMPTY},
		"rename onto":          {c.Rename(ctx, file, dir, &RenameOptions{NoReplace: true}), fs.ErrExist},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: got %v, want %v", name, c.err, c.want)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "old" {
		t.Errorf("the file has %q, %v", got, err)
	}
}

func TestAbortedWriteLeavesTheOldFile(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := c.Create(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(w, io.LimitReader(rand.NewChaCha8([32]byte{4}), 2<<20)); err != nil || n != 2<<20 {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
	w.Abort()
	if _, err := w.Commit(); err == nil {
		t.Error("it can be committed")
	}
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("it can be written")
	}
	// The temporary file goes when guestd has seen the end.
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 1 {
			break
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "old" {
		t.Errorf("the file has %q, %v", got, err)
	}
}

func TestGuestdThatBreaksTheFileCalls(t *testing.T) {
	full := status.Error(codes.ResourceExhausted, "full")
	readEvents := []*guestdv1.ReadResponse{
		{Event: &guestdv1.ReadResponse_Header{Header: &guestdv1.ReadHeader{Info: &guestdv1.FileInfo{Size: 9}}}},
		{Event: &guestdv1.ReadResponse_Data{Data: &guestdv1.FileData{Offset: 0, Data: []byte("abc")}}},
		{}, // a variant of a later version
		{Event: &guestdv1.ReadResponse_Data{Data: &guestdv1.FileData{Offset: 4, Data: []byte("e")}}},
	}
	c, _ := serveFake(t, &fakeGuestd{
		write: func(s guestdv1.FileService_WriteServer) error {
			if _, err := s.Recv(); err != nil { // so that Create has sent its header
				return err
			}
			return full
		},
		read: func(_ *guestdv1.ReadRequest, s guestdv1.FileService_ReadServer) error {
			for _, event := range readEvents {
				if err := s.Send(event); err != nil {
					return err
				}
			}
			return nil
		},
	})
	w, err := c.Create(t.Context(), "/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(w, io.LimitReader(rand.NewChaCha8([32]byte{5}), 1<<30))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a refused write ends with %v", err)
	}
	if _, again := w.Commit(); !errors.Is(again, err) {
		t.Errorf("the commit tells %v, want what the write told", again)
	}
	got, err := c.ReadFile(t.Context(), "/x", nil)
	if string(got) != "abc" || err == nil || !strings.Contains(err.Error(), "from byte 4 on where 3 was due") {
		t.Errorf("skipped bytes give %q, %v", got, err)
	}
	readEvents = readEvents[1:]
	if _, err := c.ReadFile(t.Context(), "/x", nil); err == nil || !strings.Contains(err.Error(), "instead of a header") {
		t.Errorf("a missing header gives %v", err)
	}
}

func TestModes(t *testing.T) {
	for bits := range uint32(0o10000) {
		mode := fileMode(guestdv1.FileType_FILE_TYPE_REGULAR, bits)
		if modeBits(mode) != bits || mode.Type() != 0 {
			t.Fatalf("%o becomes %v, which becomes %o", bits, mode, modeBits(mode))
		}
	}
	for number, name := range guestdv1.FileType_name {
		if _, known := modeOfType[guestdv1.FileType(number)]; !known {
			t.Errorf("%s is not known", name)
		}
	}
	if mode := typeMode(99); mode != fs.ModeIrregular {
		t.Errorf("an unknown type is %v", mode)
	}
}
