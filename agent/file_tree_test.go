package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

func (a testAgent) fileCalls() guestdv1.FileServiceClient {
	return guestdv1.NewFileServiceClient(a.client)
}

// self is this process's own user, whom guestd serves with or without root.
func self() string { return strconv.Itoa(os.Geteuid()) + ":" + strconv.Itoa(os.Getegid()) }

// writeFiles makes files, with their own names as contents, below a folder.
func writeFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMakeDirMoveAndRemoveTellWhatTheyDid(t *testing.T) {
	files, ctx := startAgent(t, Config{}).fileCalls(), within(t)
	dir := t.TempDir()
	for i, want := range []bool{true, false} {
		made, err := files.MakeDir(ctx, &guestdv1.MakeDirRequest{User: self(), Path: []byte(dir + "/a/b"), Parents: true})
		if err != nil || made.GetCreated() != want || made.GetInfo().GetType() != guestdv1.FileType_FILE_TYPE_DIRECTORY {
			t.Errorf("call %d: %v, %v", i, made, err)
		}
	}
	writeFiles(t, dir, "a/b/file", "a/x")
	moved, err := files.Move(ctx, &guestdv1.MoveRequest{User: self(), Source: []byte(dir + "/a/x"), Destination: []byte(dir + "/y")})
	if err != nil || string(moved.GetInfo().GetPath()) != dir+"/y" || moved.GetInfo().GetSize() != 3 || moved.GetCopied() {
		t.Errorf("%v, %v", moved, err)
	}
	_, err = files.Move(ctx, &guestdv1.MoveRequest{User: self(), Source: []byte(dir + "/y"), Destination: []byte(dir + "/a"), NoReplace: true})
	wantCode(t, err, codes.AlreadyExists, "FILE_EXISTS")
	_, err = files.Remove(ctx, &guestdv1.RemoveRequest{User: self(), Path: []byte(dir + "/a")})
	wantCode(t, err, codes.FailedPrecondition, "NOT_EMPTY")
	removed, err := files.Remove(ctx, &guestdv1.RemoveRequest{User: self(), Path: []byte(dir + "/a"), Recursive: true})
	if err != nil || removed.GetRemoved() != 3 {
		t.Errorf("%v, %v", removed, err)
	}
	removed, err = files.Remove(ctx, &guestdv1.RemoveRequest{User: self(), Path: []byte(dir + "/a"), IgnoreMissing: true})
	if err != nil || removed.GetRemoved() != 0 {
		t.Errorf("%v, %v", removed, err)
	}
}

func TestCopyOverTheAPI(t *testing.T) {
	files, ctx := startAgent(t, Config{}).fileCalls(), within(t)
	dir := t.TempDir()
	writeFiles(t, dir, "src/a", "src/sub/b", "file")
	if err := os.Symlink("../file", dir+"/src/link"); err != nil {
		t.Fatal(err)
	}
	request := func(change func(*guestdv1.CopyRequest)) *guestdv1.CopyRequest {
		r := &guestdv1.CopyRequest{User: self(), Source: []byte(dir + "/src"), Destination: []byte(dir + "/dst"), Recursive: true}
		if change != nil {
			change(r)
		}
		return r
	}
	_, err := files.Copy(ctx, request(func(r *guestdv1.CopyRequest) { r.Recursive = false }))
	wantCode(t, err, codes.FailedPrecondition, "IS_A_DIRECTORY")
	_, err = files.Copy(ctx, request(func(r *guestdv1.CopyRequest) { r.Destination = []byte(dir + "/src/sub/x") }))
	wantCode(t, err, codes.InvalidArgument, "INVALID_FIELD")
	copied, err := files.Copy(ctx, request(func(r *guestdv1.CopyRequest) { r.FollowLinks = true }))
	if err != nil || copied.GetEntries() != 5 || copied.GetBytes() != 5+9+4 || string(copied.GetInfo().GetPath()) != dir+"/dst" {
		t.Errorf("%v, %v", copied, err)
	}
	if info, err := os.Lstat(dir + "/dst/link"); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
	_, err = files.Copy(ctx, request(func(r *guestdv1.CopyRequest) { r.NoReplace = true }))
	wantCode(t, err, codes.AlreadyExists, "FILE_EXISTS")
	when := time.Unix(1_000_000_000, 0)
	if err := os.Chtimes(dir+"/file", when, when); err != nil {
		t.Fatal(err)
	}
	copied, err = files.Copy(ctx, request(func(r *guestdv1.CopyRequest) {
		r.Source, r.Destination, r.Preserve = []byte(dir+"/file"), []byte(dir+"/copy"), true
	}))
	if err != nil || !copied.GetInfo().GetModifyTime().AsTime().Equal(when) {
		t.Errorf("%v, %v", copied, err)
	}
}

func TestLinkOverTheAPI(t *testing.T) {
	files, ctx := startAgent(t, Config{}).fileCalls(), within(t)
	dir := t.TempDir()
	request := &guestdv1.LinkRequest{User: self(), Target: []byte("\xff"), Path: []byte(dir + "/link")}
	made, err := files.Link(ctx, request)
	if err != nil || string(made.GetInfo().GetLinkTarget()) != "\xff" || made.GetInfo().GetType() != guestdv1.FileType_FILE_TYPE_SYMLINK {
		t.Errorf("%v, %v", made, err)
	}
	_, err = files.Link(ctx, request)
	wantCode(t, err, codes.AlreadyExists, "FILE_EXISTS")
	request.Target, request.Replace = []byte("."), true
	made, err = files.Link(ctx, request)
	if err != nil || made.GetInfo().GetTargetType() != guestdv1.FileType_FILE_TYPE_DIRECTORY {
		t.Errorf("%v, %v", made, err)
	}
}

func TestSetAttributesOverTheAPI(t *testing.T) {
	files, ctx := startAgent(t, Config{}).fileCalls(), within(t)
	dir := t.TempDir()
	writeFiles(t, dir, "file")
	when := timestamppb.New(time.Unix(1_000_000_000, 5))
	set, err := files.SetAttributes(ctx, &guestdv1.SetAttributesRequest{
		User: self(), Path: []byte(dir + "/file"), Mode: proto.Uint32(0), ModifyTime: when,
		Owner: proto.String(strconv.Itoa(os.Geteuid())), Group: proto.String(strconv.Itoa(os.Getegid())),
		SetAttributes: []*guestdv1.ExtendedAttribute{{Name: []byte("user.a"), Value: []byte("x")}},
	})
	if err != nil || set.GetInfo().GetMode() != 0 || !proto.Equal(set.GetInfo().GetModifyTime(), when) {
		t.Errorf("%v, %v", set, err)
	}
	remove := &guestdv1.SetAttributesRequest{User: self(), Path: []byte(dir + "/file"), RemoveAttributes: [][]byte{[]byte("user.a")}}
	if _, err := files.SetAttributes(ctx, remove); err != nil {
		t.Error(err)
	}
	_, err = files.SetAttributes(ctx, remove)
	wantCode(t, err, codes.NotFound, "FILE_NOT_FOUND")
	_, err = files.SetAttributes(ctx, &guestdv1.SetAttributesRequest{
		User: self(), Path: []byte(dir + "/file"), AccessTime: &timestamppb.Timestamp{Nanos: -1}})
	wantCode(t, err, codes.InvalidArgument, "INVALID_FIELD")
	_, err = files.SetAttributes(ctx, &guestdv1.SetAttributesRequest{
		User: self(), Path: []byte(dir + "/file"), Owner: proto.String("nobody-of-that-name")})
	wantCode(t, err, codes.NotFound, "USER_NOT_FOUND")
}

func TestListFiltersOverTheAPI(t *testing.T) {
	files, ctx := startAgent(t, Config{}).fileCalls(), within(t)
	dir := t.TempDir()
	writeFiles(t, dir, "a.go", "a.txt", "sub/b.go", "sub/skip/c.go")
	request := &guestdv1.FileServiceListRequest{
		User: self(), Path: []byte(dir), Depth: 9,
		Include: [][]byte{[]byte("**/*.go")}, Exclude: [][]byte{[]byte("skip")},
	}
	stream, err := files.List(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for m, err := stream.Recv(); err == nil; m, err = stream.Recv() {
		for _, entry := range m.GetEntries().GetEntries() {
			got[string(entry.GetPath())] = true
		}
	}
	if len(got) != 2 || !got[dir+"/a.go"] || !got[dir+"/sub/b.go"] {
		t.Errorf("%v", got)
	}
	request.Exclude = [][]byte{[]byte("[")}
	stream, err = files.List(ctx, request)
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, err, codes.InvalidArgument, "INVALID_FIELD")
}

func TestReadTellsALengthOfZeroFromNone(t *testing.T) {
	files, ctx := startAgent(t, Config{}).fileCalls(), within(t)
	dir := t.TempDir()
	writeFiles(t, dir, "file")
	for _, c := range []struct {
		length *uint64
		want   string
	}{{nil, "ile"}, {proto.Uint64(0), ""}, {proto.Uint64(2), "il"}} {
		stream, err := files.Read(ctx, &guestdv1.ReadRequest{User: self(), Path: []byte(dir + "/file"), Offset: 1, Length: c.length})
		if err != nil {
			t.Fatal(err)
		}
		got, headers := "", 0
		for m, err := stream.Recv(); err == nil; m, err = stream.Recv() {
			got += string(m.GetData().GetData())
			if m.GetHeader().GetInfo().GetSize() == 4 {
				headers++
			}
		}
		if got != c.want || headers != 1 {
			t.Errorf("length %v: %q with %d headers", c.length, got, headers)
		}
	}
}
