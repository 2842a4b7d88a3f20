package conformance

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"

	pb "guestd.internal/proto/guestd/v1"
)

// copyCases are the contract of FileService.Copy.
type copyCases struct{ *guest }

// copyRequest asks for a copy of a file or tree.
func copyRequest(from, to string) *pb.CopyRequest {
	return &pb.CopyRequest{Source: []byte(from), Destination: []byte(to), Recursive: true}
}

func (g copyCases) copy(t *testing.T, request *pb.CopyRequest) *pb.CopyResponse {
	t.Helper()
	response, err := g.file.Copy(within(t), request)
	if err != nil {
		t.Fatalf("Copy: %v", err)
	}
	if string(response.Info.GetPath()) != string(request.Destination) {
		t.Errorf("the copy is described as %v", response.Info)
	}
	return response
}

func (g copyCases) refuse(t *testing.T, request *pb.CopyRequest, want refusal) {
	t.Helper()
	_, err := g.file.Copy(within(t), request)
	wantRefusal(t, err, want)
}

func (g copyCases) FileIsCopiedWithItsMode(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `printf 12345 >"$1/file" && chmod 4751 "$1/file"`, dir)
	response := g.copy(t, copyRequest(dir+"/file", dir+"/copy \xff"))
	if response.Entries != 1 || response.Bytes != 5 || response.Info.Mode != 0o751 || response.Info.Links != 1 {
		t.Errorf("%v, want one file of 5 bytes and its mode without set-user-id", response)
	}
	g.put(t, dir+"/file", "changed")
	g.wantContents(t, dir+"/copy \xff", "12345")
}

func (g copyCases) TreeIsCopiedOnlyWhereAskedFor(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -p tree/sub/empty && printf 123 >tree/sub/file && ln -s sub tree/link && ln -s nowhere tree/broken && mkfifo tree/fifo`, dir)
	request := copyRequest(dir+"/tree", dir+"/copy")
	request.Recursive = false
	g.refuse(t, request, isADirectory())
	request.Recursive = true
	if response := g.copy(t, request); response.Entries != 7 || response.Bytes != 3 {
		t.Errorf("%v, want 7 entries and 3 bytes", response)
	}
	const look = `cd "$1" && find . | sort && readlink link && readlink broken && test -p fifo`
	wantText(t, "the copy", g.sh(t, look, dir+"/copy"), g.sh(t, look, dir+"/tree"))
	g.wantContents(t, dir+"/copy/sub/file", "123")
}

func (g copyCases) LinksAreCopiedOrFollowed(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && echo text >file && mkdir tree && ln -s ../file tree/link && ln -s nowhere broken`, dir)
	g.copy(t, copyRequest(dir+"/tree", dir+"/links"))
	if info := g.stat(t, dir+"/links/link"); string(info.LinkTarget) != "../file" {
		t.Errorf("the copy is %v, want the link", info)
	}
	request := copyRequest(dir+"/tree", dir+"/files")
	request.FollowLinks = true
	g.copy(t, request)
	if info := g.stat(t, dir+"/files/link"); info.Type != pb.FileType_FILE_TYPE_REGULAR {
		t.Errorf("the copy is %v, want the file", info)
	}
	request = copyRequest(dir+"/broken", dir+"/none")
	g.copy(t, request)
	request.FollowLinks, request.Destination = true, []byte(dir+"/none 2")
	g.refuse(t, request, refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_FILE_NOT_FOUND})
}

func (g copyCases) PreserveKeepsOwnerModeAndTimes(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -m 2750 tree && echo text >tree/file && chmod 4640 tree/file && touch -t 200102030405.06 tree/file tree`, dir)
	if g.Capabilities.Root {
		g.ownerSh(t, `chown -R 54321:12345 "$1/tree" && chmod 2750 "$1/tree" && chmod 4640 "$1/tree/file"`, dir)
	}
	request := copyRequest(dir+"/tree", dir+"/kept")
	request.User, request.Preserve = g.owner(), true
	g.copy(t, request)
	for _, name := range []string{"", "/file"} {
		from, to := g.stat(t, dir+"/tree"+name), g.stat(t, dir+"/kept"+name)
		if to.Mode != from.Mode || to.Uid != from.Uid || to.Gid != from.Gid || to.ModifyTime.GetSeconds() != from.ModifyTime.GetSeconds() {
			t.Errorf("%v was preserved as %v", from, to)
		}
	}
}

func (g copyCases) HardLinksAndTimesAreKeptOnlyWhereAskedFor(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir tree && echo text >tree/a && ln tree/a tree/b && touch -t 200102030405.06 tree/a`, dir)
	for _, preserve := range []bool{false, true} {
		request := copyRequest(dir+"/tree", fmt.Sprintf("%s/copy %v", dir, preserve))
		request.Preserve = preserve
		g.copy(t, request)
		from := g.stat(t, dir+"/tree/a")
		a, b := g.stat(t, string(request.Destination)+"/a"), g.stat(t, string(request.Destination)+"/b")
		linked, sameTime := a.Inode == b.Inode, a.ModifyTime.AsTime().Equal(from.ModifyTime.AsTime())
		if linked != preserve || sameTime != preserve {
			t.Errorf("with preserve %v: linked %v, the same time %v", preserve, linked, sameTime)
		}
	}
}

func (g copyCases) FileIsReplacedUnlessToldNot(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && echo new >source && echo old >destination && echo kept >kept && ln -s kept link`, dir)
	request := copyRequest(dir+"/source", dir+"/destination")
	request.NoReplace = true
	g.refuse(t, request, fileExists())
	g.wantContents(t, dir+"/destination", "old\n")
	request.NoReplace = false
	g.copy(t, request)
	g.wantContents(t, dir+"/destination", "new\n")
	// A link in its place is replaced itself.
	g.copy(t, copyRequest(dir+"/source", dir+"/link"))
	if info := g.stat(t, dir+"/link"); info.Type != pb.FileType_FILE_TYPE_REGULAR {
		t.Errorf("the copy is %v", info)
	}
	g.wantContents(t, dir+"/kept", "kept\n")
	g.wantNoLitter(t, dir, "destination kept link source")
}

func (g copyCases) DestinationIsNeverCopiedInto(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir tree there && echo new >tree/file && echo old >there/file && : >there/kept`, dir)
	g.refuse(t, copyRequest(dir+"/tree/file", dir+"/there"), isADirectory())
	g.refuse(t, copyRequest(dir+"/tree", dir+"/there/file"), notADirectory())
	g.copy(t, copyRequest(dir+"/tree", dir+"/there"))
	g.wantNoLitter(t, dir+"/there", "file kept")
	g.wantContents(t, dir+"/there/file", "new\n")
}

func (g copyCases) NothingIsCopiedIntoItself(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -p tree/sub && : >tree/file && ln -s tree/sub door`, dir)
	for _, to := range []string{"/tree", "/tree/copy", "/tree/sub/copy", "/door/copy"} {
		g.refuse(t, copyRequest(dir+"/tree", dir+to), badField("destination"))
	}
	g.refuse(t, copyRequest(dir+"/tree/file", dir+"/tree/file"), badField("destination"))
	g.wantNoLitter(t, dir+"/tree", "file sub")
	g.wantNoLitter(t, dir+"/tree/sub", "")
}

func (g copyCases) WhatIsMissingIsTold(t *testing.T) {
	dir := g.folder(t)
	g.put(t, dir+"/file", "x")
	g.refuse(t, copyRequest(dir+"/missing", dir+"/new"), noFile(dir+"/missing"))
	want := refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_FILE_NOT_FOUND, errno: "ENOENT"}
	g.refuse(t, copyRequest(dir+"/file", dir+"/missing/new"), want)
}

func (g copyCases) HolesStayHoles(t *testing.T) {
	dir := g.folder(t)
	const sparse = `dd if=/dev/zero of="$1/file" bs=1 count=1 seek=67108863 2>/dev/null && stat -c %b "$1/file"`
	if blocks := g.sh(t, sparse, dir); len(blocks) > 4 {
		t.Skipf("the file system has no holes: %s blocks", blocks)
	}
	if response := g.copy(t, copyRequest(dir+"/file", dir+"/copy")); response.Info.Size != 64<<20 {
		t.Errorf("%v, want 64 MiB", response)
	}
	if blocks := g.sh(t, `stat -c %b "$1/copy"`, dir); len(blocks) > 4 {
		t.Errorf("the copy has %s blocks", blocks)
	}
}

func (g copyCases) GuestsPermissionsDecide(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -m 755 roots tree && echo x >roots/file && echo y >roots/secret && chmod 600 roots/secret && cp -p roots/* tree`, dir)
	copyAs := func(from, to string) *pb.CopyRequest {
		request := copyRequest(dir+from, dir+to)
		request.User = g.OtherUser
		return request
	}
	g.refuse(t, copyAs("/roots/secret", "/mine"), denied())
	g.refuse(t, copyAs("/roots/file", "/roots/new"), denied())
	if response := g.copy(t, copyAs("/roots/file", "/mine")); response.Info.Owner != g.OtherUser {
		t.Errorf("the owner is %q, want %q", response.Info.Owner, g.OtherUser)
	}
	// What can be copied of a tree is.
	want := denied()
	want.path = dir + "/tree/secret"
	g.refuse(t, copyAs("/tree", "/copy"), want)
	g.wantNoLitter(t, dir+"/copy", "file")
}

func (g copyCases) PlantedLinksLeadNowhereThatTheUserMayNotGo(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -m 700 secret && echo secret >secret/file && mkdir -m 755 roots`, dir)
	g.shAs(t, g.OtherUser, `cd "$1" && mkdir tree && ln -s ../secret/file tree/link && ln -s roots door`, dir)
	request := copyRequest(dir+"/tree", dir+"/copy")
	request.User, request.FollowLinks = g.OtherUser, true
	g.refuse(t, request, denied())
	request = copyRequest(dir+"/tree", dir+"/door/copy")
	request.User = g.OtherUser
	g.refuse(t, request, denied())
	// Root copies the link itself.
	request = copyRequest(dir+"/tree", dir+"/roots/copy")
	request.User = g.owner()
	g.copy(t, request)
	if info := g.stat(t, dir+"/roots/copy/link"); info.Type != pb.FileType_FILE_TYPE_SYMLINK {
		t.Errorf("root copied %v", info)
	}
}

func (g copyCases) RepeatedRequestIDAnswersTheSame(t *testing.T) {
	dir := g.folder(t)
	g.put(t, dir+"/file", "first")
	request := copyRequest(dir+"/file", dir+"/copy")
	request.RequestId = dir
	g.copy(t, request)
	g.put(t, dir+"/file", "second")
	if response := g.copy(t, request); response.Bytes != 5 {
		t.Errorf("the repeated call answers %v", response)
	}
	g.wantContents(t, dir+"/copy", "first")
	request.NoReplace = true
	g.refuse(t, request, refusal{code: codes.AlreadyExists, reason: pb.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED})
}
