package conformance

import (
	"context"
	"crypto/sha256"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "guestd.internal/proto/guestd/v1"
)

// writeCases are the contract of FileService.Write.
type writeCases struct{ *guest }

// header is the head of a write to a path.
func header(path string) *pb.WriteHeader { return &pb.WriteHeader{Path: []byte(path)} }

// refuse fails the case unless the write is refused as wanted.
func (g writeCases) refuse(t *testing.T, header *pb.WriteHeader, data []byte, want refusal) {
	t.Helper()
	_, err := g.writeFile(within(t), header, data)
	wantRefusal(t, err, want)
}

func (g writeCases) NewFileIsMadeWithTheContents(t *testing.T) {
	file, data := g.folder(t)+"/new \xff", pattern(g.amount(10<<20))
	response := g.write(t, header(file), data)
	if !response.Created || response.InPlace || response.BytesWritten != uint64(len(data)) {
		t.Errorf("%v, want a new file of %d bytes", response, len(data))
	}
	if info := response.Info; info.Mode != 0o644 || info.Size != uint64(len(data)) || string(info.Path) != file {
		t.Errorf("%v, want mode 644 and %d bytes", info, len(data))
	}
	g.wantContents(t, file, string(data))
}

func (g writeCases) EmptyFileIsMade(t *testing.T) {
	file := g.folder(t) + "/empty"
	if response := g.write(t, header(file), nil); !response.Created || response.Info.GetSize() != 0 {
		t.Errorf("%v, want a new empty file", response)
	}
}

func (g writeCases) ModeOfANewFileIsAsAsked(t *testing.T) {
	mode, head := uint32(0o4775), header(g.folder(t)+"/program")
	head.Mode = &mode
	if response := g.write(t, head, []byte("x")); response.Info.GetMode() != mode {
		t.Errorf("mode %o, want %o", response.Info.GetMode(), mode)
	}
}

func (g writeCases) ReplacedFileKeepsModeAndOwner(t *testing.T) {
	file := g.folder(t) + "/file"
	g.sh(t, `echo old >"$1" && chmod 640 "$1"`, file)
	if g.Capabilities.Root {
		g.ownerSh(t, `chown 54321:12345 "$1"`, file)
	}
	before := g.stat(t, file)
	head := header(file)
	head.User = g.owner()
	response := g.write(t, head, []byte("new"))
	if after := response.Info; response.Created || after.Mode != 0o640 || after.Uid != before.Uid || after.Gid != before.Gid {
		t.Errorf("before %v, after %v: want the same mode and owner", before, response)
	}
	g.wantContents(t, file, "new")
}

func (g writeCases) ReaderNeverSeesAHalfReplacedFile(t *testing.T) {
	file := g.folder(t) + "/file"
	versions := []string{strings.Repeat("a", 1<<20), strings.Repeat("b", 2<<20)}
	g.put(t, file, versions[0])
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				if _, err := g.writeFile(within(t), header(file), []byte(versions[i%2])); err != nil {
					t.Errorf("writing: %v", err)
					return
				}
			}
		}
	}()
	for range g.amount(30) {
		if got := string(g.contents(t, file)); got != versions[0] && got != versions[1] {
			t.Errorf("a reader saw %s", excerpt(got))
			break
		}
	}
	close(stop)
	<-done
}

func (g writeCases) MissingParentsAreMadeUnlessToldNot(t *testing.T) {
	dir, no := g.folder(t), false
	g.put(t, dir+"/a/b/file", "deep")
	g.wantContents(t, dir+"/a/b/file", "deep")
	if info := g.stat(t, dir+"/a"); info.Mode != 0o755 {
		t.Errorf("a parent has mode %o, want 755", info.Mode)
	}
	head := header(dir + "/c/file")
	head.CreateParents = &no
	g.refuse(t, head, []byte("x"), refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_FILE_NOT_FOUND})
	if g.exists(t, dir+"/c") {
		t.Error("a parent was made though it was not to be")
	}
}

func (g writeCases) ExclusiveNeverReplaces(t *testing.T) {
	dir := g.folder(t)
	head := header(dir + "/file")
	head.Exclusive = true
	g.write(t, head, []byte("first"))
	g.refuse(t, head, []byte("second"), fileExists())
	g.wantContents(t, dir+"/file", "first")
	g.sh(t, `ln -s nowhere "$1/link"`, dir)
	head.Path = []byte(dir + "/link")
	g.refuse(t, head, []byte("x"), fileExists())
}

func (g writeCases) AppendGoesBehindTheEnd(t *testing.T) {
	file := g.folder(t) + "/file"
	head := header(file)
	head.Placement = pb.WritePlacement_WRITE_PLACEMENT_APPEND
	if response := g.write(t, head, []byte("one ")); !response.Created || response.InPlace {
		t.Errorf("%v, want created, at once", response)
	}
	if response := g.write(t, head, []byte("two")); response.Created || !response.InPlace || response.Info.GetSize() != 7 || response.BytesWritten != 3 {
		t.Errorf("%v, want 3 bytes more in place, and 7 in all", response)
	}
	g.wantContents(t, file, "one two")
}

func (g writeCases) OffsetIsWrittenAtAndAHoleFillsWhatIsMissing(t *testing.T) {
	file := g.folder(t) + "/file"
	g.put(t, file, "0123456789")
	head := header(file)
	head.Placement, head.Offset = pb.WritePlacement_WRITE_PLACEMENT_AT_OFFSET, 4
	g.write(t, head, []byte("xy"))
	g.wantContents(t, file, "0123xy6789")
	head.Offset = 12
	g.write(t, head, []byte("z"))
	g.wantContents(t, file, "0123xy6789\x00\x00z")
}

func (g writeCases) LinkIsWrittenThrough(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir sub && echo old >sub/file && ln -s sub/file link`, dir)
	g.put(t, dir+"/link", "new")
	g.wantContents(t, dir+"/sub/file", "new")
	if info := g.stat(t, dir+"/link"); info.Type != pb.FileType_FILE_TYPE_SYMLINK {
		t.Errorf("the link became %v", info.Type)
	}
}

func (g writeCases) DeviceIsWrittenInPlaceAndSaidSo(t *testing.T) {
	if response := g.write(t, header("/dev/null"), []byte("gone")); !response.InPlace || response.Created || response.BytesWritten != 4 {
		t.Errorf("%v, want 4 bytes written in place", response)
	}
	if info := g.stat(t, "/dev/null"); info.Type != pb.FileType_FILE_TYPE_CHARACTER_DEVICE {
		t.Fatalf("/dev/null became %v", info.Type)
	}
}

func (g writeCases) WrongSizeOrSumChangesNothing(t *testing.T) {
	dir := g.folder(t)
	file, five, sum := dir+"/file", uint64(5), sha256.Sum256([]byte("new"))
	g.put(t, file, "old")
	want := refusal{code: codes.DataLoss, reason: pb.ErrorReason_ERROR_REASON_CHECKSUM_MISMATCH}
	g.refuse(t, &pb.WriteHeader{Path: []byte(file), ExpectedSize: &five}, []byte("four"), want)
	g.refuse(t, &pb.WriteHeader{Path: []byte(file), ExpectedSize: &five}, []byte("sixsix"), want)
	g.refuse(t, &pb.WriteHeader{Path: []byte(file), ExpectedSha256: sum[:]}, []byte("other"), want)
	g.wantContents(t, file, "old")
	g.wantNoLitter(t, dir, "file")
	three := uint64(3)
	g.write(t, &pb.WriteHeader{Path: []byte(file), ExpectedSize: &three, ExpectedSha256: sum[:], Fsync: true}, []byte("new"))
	g.wantContents(t, file, "new")
}

func (g writeCases) UploadThatBreaksOffLeavesTheOldFileWhole(t *testing.T) {
	dir := g.folder(t)
	g.put(t, dir+"/file", "old")
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	g.breakOff(ctx, t, dir+"/file", cancel)
	other := over(g.Target, g.Dial(t))
	other.breakOff(within(t), t, dir+"/file", func() { _ = other.conn.Close() })
	g.wantNoLitter(t, dir, "file")
	g.wantContents(t, dir+"/file", "old")
}

// breakOff sends a part of a file and then lets the call break.
func (g *guest) breakOff(ctx context.Context, t *testing.T, path string, breakCall func()) {
	t.Helper()
	stream, err := g.beginWrite(ctx, header(path))
	if err == nil {
		err = sendData(stream, pattern(3<<20))
	}
	if err != nil {
		t.Fatalf("uploading: %v", err)
	}
	breakCall()
	if _, err := stream.CloseAndRecv(); err == nil {
		t.Error("the upload succeeded")
	}
}

// wantNoLitter waits until nothing but the names is left in a directory.
func (g *guest) wantNoLitter(t *testing.T, dir, names string) {
	t.Helper()
	eventually(t, "only "+names+" is in the folder", func() bool {
		l, err := g.list(within(t), &pb.FileServiceListRequest{User: g.owner(), Path: []byte(dir)})
		return err == nil && l.names(dir) == names
	})
}

func (g writeCases) GuestsPermissionsDecide(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -m 755 roots && echo old >roots/file && echo old >roots/open && chmod 666 roots/open && ln -s roots/file link`, dir)
	for _, name := range []string{"/roots/new", "/roots/file", "/link", "/roots/sub/file"} {
		head := header(dir + name)
		head.User = g.OtherUser
		g.refuse(t, head, []byte("x"), denied())
	}
	g.wantContents(t, dir+"/roots/file", "old\n")
	head := header(dir + "/mine")
	head.User = g.OtherUser
	if response := g.write(t, head, []byte("x")); response.Info.GetOwner() != g.OtherUser {
		t.Errorf("the owner is %q, want %q", response.Info.GetOwner(), g.OtherUser)
	}
}

func (g writeCases) WhatCannotBeWrittenIsRefused(t *testing.T) {
	dir := g.folder(t)
	g.put(t, dir+"/file", "x")
	g.refuse(t, header(dir), []byte("x"), isADirectory())
	g.refuse(t, header(dir+"/file/below"), []byte("x"), notADirectory())
	g.refuse(t, header(dir+"/"), []byte("x"), isADirectory())
}

func (g writeCases) MalformedHeadersAreRefused(t *testing.T) {
	file, mode := g.folder(t)+"/file", uint32(0o10000)
	g.put(t, file, "old")
	for field, head := range map[string]*pb.WriteHeader{
		"mode":            {Mode: &mode},
		"exclusive":       {Exclusive: true, Placement: pb.WritePlacement_WRITE_PLACEMENT_APPEND},
		"placement":       {Placement: 99},
		"offset":          {Offset: 1},
		"expected_sha256": {ExpectedSha256: []byte("short")},
		"request_id":      {RequestId: "é"},
	} {
		head.Path = []byte(file)
		t.Run(field, func(t *testing.T) { g.refuse(t, head, []byte("x"), badField(field)) })
	}
	sum := sha256.Sum256([]byte("x"))
	head := &pb.WriteHeader{Path: []byte(file), Placement: pb.WritePlacement_WRITE_PLACEMENT_APPEND, ExpectedSha256: sum[:]}
	g.refuse(t, head, []byte("x"), badField("expected_sha256"))
	g.wantContents(t, file, "old")
}

func (g writeCases) HeaderComesFirstAndOnce(t *testing.T) {
	file := g.folder(t) + "/file"
	head := &pb.WriteRequest{Request: &pb.WriteRequest_Header{Header: header(file)}}
	data := &pb.WriteRequest{Request: &pb.WriteRequest_Data{Data: []byte("x")}}
	for name, messages := range map[string][]*pb.WriteRequest{
		"nothing": nil, "empty": {{}}, "data first": {data, head}, "two headers": {head, head}, "data between": {head, data, head},
	} {
		stream, err := g.file.Write(within(t))
		if err != nil {
			t.Fatalf("Write: %v", err)
		}
		for _, message := range messages {
			// What ended the stream is told at its close.
			_ = stream.Send(message)
		}
		t.Run(name, func(t *testing.T) {
			_, err := stream.CloseAndRecv()
			wantRefusal(t, err, badField(""))
		})
	}
	if g.exists(t, file) {
		t.Error("a refused write made the file")
	}
}
