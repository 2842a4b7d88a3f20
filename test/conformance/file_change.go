package conformance

import (
	"testing"

	"google.golang.org/grpc/codes"

	pb "guestd.internal/proto/guestd/v1"
)

// makeDirCases are the contract of FileService.MakeDir.
type makeDirCases struct{ *guest }

func (g makeDirCases) make(t *testing.T, request *pb.MakeDirRequest) *pb.MakeDirResponse {
	t.Helper()
	response, err := g.file.MakeDir(within(t), request)
	if err != nil {
		t.Fatalf("MakeDir: %v", err)
	}
	return response
}

func (g makeDirCases) DirectoryIsMadeWithTheMode(t *testing.T) {
	dir, mode := g.folder(t), uint32(0o2770)
	plain := g.make(t, &pb.MakeDirRequest{Path: []byte(dir + "/plain \xff")})
	if !plain.Created || plain.Info.GetType() != pb.FileType_FILE_TYPE_DIRECTORY || plain.Info.GetMode() != 0o755 {
		t.Errorf("%v, want a new directory of mode 755", plain)
	}
	if special := g.make(t, &pb.MakeDirRequest{Path: []byte(dir + "/special"), Mode: &mode}); special.Info.GetMode() != mode {
		t.Errorf("mode %o, want %o", special.Info.GetMode(), mode)
	}
}

func (g makeDirCases) ParentsAreMadeOnlyWhereAskedFor(t *testing.T) {
	dir := g.folder(t)
	_, err := g.file.MakeDir(within(t), &pb.MakeDirRequest{Path: []byte(dir + "/a/b")})
	wantRefusal(t, err, refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_FILE_NOT_FOUND, errno: "ENOENT"})
	if response := g.make(t, &pb.MakeDirRequest{Path: []byte(dir + "/a/b"), Parents: true}); !response.Created {
		t.Errorf("%v, want created", response)
	}
}

func (g makeDirCases) DirectoryThatIsThereIsNotChanged(t *testing.T) {
	dir, mode := g.folder(t), uint32(0o700)
	g.sh(t, `mkdir "$1/there" && chmod 711 "$1/there" && : >"$1/file"`, dir)
	_, err := g.file.MakeDir(within(t), &pb.MakeDirRequest{Path: []byte(dir + "/there")})
	wantRefusal(t, err, fileExists())
	response := g.make(t, &pb.MakeDirRequest{Path: []byte(dir + "/there"), Parents: true, Mode: &mode})
	if response.Created || response.Info.GetMode() != 0o711 {
		t.Errorf("%v, want it untouched", response)
	}
	_, err = g.file.MakeDir(within(t), &pb.MakeDirRequest{Path: []byte(dir + "/file/below"), Parents: true})
	wantRefusal(t, err, notADirectory())
}

func (g makeDirCases) GuestsPermissionsDecide(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	g.sh(t, `mkdir -m 755 "$1/roots"`, dir)
	_, err := g.file.MakeDir(within(t), &pb.MakeDirRequest{User: g.OtherUser, Path: []byte(dir + "/roots/new")})
	wantRefusal(t, err, denied())
	response := g.make(t, &pb.MakeDirRequest{User: g.OtherUser, Path: []byte(dir + "/a/b"), Parents: true})
	if parent := g.stat(t, dir+"/a"); response.Info.GetOwner() != g.OtherUser || parent.Owner != g.OtherUser {
		t.Errorf("owners %q and %q, want %q", response.Info.GetOwner(), parent.Owner, g.OtherUser)
	}
}

// removeCases are the contract of FileService.Remove.
type removeCases struct{ *guest }

func (g removeCases) remove(t *testing.T, request *pb.RemoveRequest) uint64 {
	t.Helper()
	response, err := g.file.Remove(within(t), request)
	if err != nil {
		t.Fatalf("Remove: %v", err)
	}
	return response.Removed
}

func (g removeCases) FileAndEmptyDirectoryAreRemoved(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `: >"$1/file" && mkdir "$1/dir"`, dir)
	for _, name := range []string{"/file", "/dir"} {
		if n := g.remove(t, &pb.RemoveRequest{Path: []byte(dir + name)}); n != 1 || g.exists(t, dir+name) {
			t.Errorf("%s: %d removed, want one and nothing left", name, n)
		}
	}
}

func (g removeCases) FullDirectoryIsRemovedOnlyWhereAskedFor(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `mkdir -p "$1/tree/a/b" && : >"$1/tree/a/b/file" && chmod 0 "$1/tree/a/b/file"`, dir)
	_, err := g.file.Remove(within(t), &pb.RemoveRequest{Path: []byte(dir + "/tree")})
	wantRefusal(t, err, refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NOT_EMPTY, errno: "ENOTEMPTY"})
	if n := g.remove(t, &pb.RemoveRequest{Path: []byte(dir + "/tree"), Recursive: true}); n != 4 || g.exists(t, dir+"/tree") {
		t.Errorf("%d removed, want 4 and nothing left", n)
	}
}

func (g removeCases) LinksAreRemovedAndNeverFollowed(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir kept tree && : >kept/file && ln -s ../kept tree/link && ln -s kept link && ln -s nowhere broken`, dir)
	g.remove(t, &pb.RemoveRequest{Path: []byte(dir + "/tree"), Recursive: true})
	g.remove(t, &pb.RemoveRequest{Path: []byte(dir + "/link"), Recursive: true})
	g.remove(t, &pb.RemoveRequest{Path: []byte(dir + "/broken")})
	g.wantNoLitter(t, dir, "kept")
	if !g.exists(t, dir+"/kept/file") {
		t.Error("a removal went through a link")
	}
}

func (g removeCases) WhatIsMissingIsToldUnlessIgnored(t *testing.T) {
	missing := g.folder(t) + "/missing"
	_, err := g.file.Remove(within(t), &pb.RemoveRequest{Path: []byte(missing)})
	wantRefusal(t, err, noFile(missing))
	if n := g.remove(t, &pb.RemoveRequest{Path: []byte(missing), IgnoreMissing: true}); n != 0 {
		t.Errorf("%d removed, want none", n)
	}
}

func (g removeCases) RootIsRefused(t *testing.T) {
	user := "" // the least that there is
	if g.Capabilities.Root {
		user = g.OtherUser
	}
	for _, path := range []string{"/", "//", "/.", "/tmp/.."} {
		_, err := g.file.Remove(within(t), &pb.RemoveRequest{User: user, Path: []byte(path)})
		wantRefusal(t, err, badField("path"))
	}
}

func (g removeCases) GuestsPermissionsDecide(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -m 755 roots && : >roots/file`, dir)
	_, err := g.file.Remove(within(t), &pb.RemoveRequest{User: g.OtherUser, Path: []byte(dir + "/roots/file")})
	wantRefusal(t, err, denied())
	if !g.exists(t, dir+"/roots/file") {
		t.Error("the file is gone")
	}
}

func (g removeCases) RepeatedRequestIDAnswersTheSame(t *testing.T) {
	file := g.folder(t) + "/file"
	g.put(t, file, "first")
	request := &pb.RemoveRequest{RequestId: file, Path: []byte(file)}
	g.remove(t, request)
	g.put(t, file, "second")
	if n := g.remove(t, request); n != 1 || !g.exists(t, file) {
		t.Errorf("the repeated call removed again (%d)", n)
	}
}

// moveCases are the contract of FileService.Move.
type moveCases struct{ *guest }

func (g moveCases) move(t *testing.T, from, to string) *pb.MoveResponse {
	t.Helper()
	response, err := g.file.Move(within(t), &pb.MoveRequest{Source: []byte(from), Destination: []byte(to)})
	if err != nil {
		t.Fatalf("Move: %v", err)
	}
	return response
}

func (g moveCases) refuse(t *testing.T, request *pb.MoveRequest, want refusal) {
	t.Helper()
	_, err := g.file.Move(within(t), request)
	wantRefusal(t, err, want)
}

func (g moveCases) FileAndDirectoryGetTheirNewNames(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && echo text >file && mkdir tree && : >tree/x && ln -s file link`, dir)
	if response := g.move(t, dir+"/file", dir+"/renamed \xff"); response.Copied || string(response.Info.GetPath()) != dir+"/renamed \xff" {
		t.Errorf("%v, want the new path, not copied", response)
	}
	g.wantContents(t, dir+"/renamed \xff", "text\n")
	g.move(t, dir+"/tree", dir+"/forest")
	g.move(t, dir+"/link", dir+"/chain")
	g.wantNoLitter(t, dir, "chain forest renamed \xff")
	if info := g.stat(t, dir+"/chain"); info.Type != pb.FileType_FILE_TYPE_SYMLINK {
		t.Errorf("the link became %v", info.Type)
	}
}

func (g moveCases) FileIsReplacedUnlessToldNot(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && echo new >source && echo old >destination`, dir)
	source, destination := []byte(dir+"/source"), []byte(dir+"/destination")
	g.refuse(t, &pb.MoveRequest{Source: source, Destination: destination, NoReplace: true}, fileExists())
	g.wantContents(t, dir+"/destination", "old\n")
	g.move(t, dir+"/source", dir+"/destination")
	g.wantContents(t, dir+"/destination", "new\n")
	if g.exists(t, dir+"/source") {
		t.Error("the source is still there")
	}
}

func (g moveCases) DestinationIsNeverMovedInto(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && : >file && mkdir empty full tree && : >full/x && : >tree/y`, dir)
	g.refuse(t, &pb.MoveRequest{Source: []byte(dir + "/file"), Destination: []byte(dir + "/empty")}, isADirectory())
	g.refuse(t, &pb.MoveRequest{Source: []byte(dir + "/tree"), Destination: []byte(dir + "/file")}, notADirectory())
	notEmpty := refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NOT_EMPTY}
	g.refuse(t, &pb.MoveRequest{Source: []byte(dir + "/tree"), Destination: []byte(dir + "/full")}, notEmpty)
	g.move(t, dir+"/tree", dir+"/empty")
	g.wantNoLitter(t, dir, "empty file full")
}

func (g moveCases) WhatIsMissingIsTold(t *testing.T) {
	dir := g.folder(t)
	g.put(t, dir+"/file", "x")
	g.refuse(t, &pb.MoveRequest{Source: []byte(dir + "/missing"), Destination: []byte(dir + "/new")}, noFile(dir+"/missing"))
	want := refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_FILE_NOT_FOUND, errno: "ENOENT"}
	g.refuse(t, &pb.MoveRequest{Source: []byte(dir + "/file"), Destination: []byte(dir + "/missing/new")}, want)
}

func (g moveCases) DirectoryIsNotMovedIntoItself(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `mkdir "$1/tree"`, dir)
	_, err := g.file.Move(within(t), &pb.MoveRequest{Source: []byte(dir + "/tree"), Destination: []byte(dir + "/tree/below")})
	if err == nil || !g.exists(t, dir+"/tree") {
		t.Errorf("error %v, want one, and the directory untouched", err)
	}
	wantRefusal(t, err, badField("destination"))
}

func (g moveCases) OtherFileSystemIsReachedByCopying(t *testing.T) {
	dir, other := g.twoFileSystems(t)
	g.sh(t, `cd "$1" && mkdir -p tree/sub && echo text >tree/sub/file && chmod 640 tree/sub/file && ln -s sub tree/link`, dir)
	if response := g.move(t, dir+"/tree", other); !response.Copied {
		t.Errorf("%v, want copied", response)
	}
	g.wantContents(t, other+"/sub/file", "text\n")
	if link, file := g.stat(t, other+"/link"), g.stat(t, other+"/sub/file"); string(link.LinkTarget) != "sub" || file.Mode != 0o640 {
		t.Errorf("moved link %v, file %v", link, file)
	}
	if g.exists(t, dir+"/tree") {
		t.Error("the source is still there")
	}
}

// twoFileSystems makes a folder, and says a path on another file system, which is
// removed when the test ends.
func (g moveCases) twoFileSystems(t *testing.T) (dir, other string) {
	t.Helper()
	dir = g.folder(t)
	other = "/dev/shm/" + dir[len(dir)-8:]
	if g.sh(t, `stat -c %d "$1" /dev/shm | uniq | wc -l`, dir) != "2" {
		t.Skip("/dev/shm is no file system of its own")
	}
	t.Cleanup(func() { g.sh(t, `rm -rf "$1"`, other) })
	return dir, other
}

// FailureOnAnotherFileSystemLeavesBothSides moves trees with something deep inside
// that the user may read but not remove.
func (g moveCases) FailureOnAnotherFileSystemLeavesBothSides(t *testing.T) {
	g.needRoot(t)
	dir, other := g.twoFileSystems(t)
	g.sh(t, `mkdir -m 777 "$2" && echo old >"$2/old" && chmod 777 "$1" && cd "$1" && umask 0 && mkdir -p closed/sub/a sticky/sub sticky-top &&
		for d in closed/sub/a sticky/sub sticky-top closed sticky; do echo text >$d/file; done &&
		chmod 755 closed/sub/a && chmod 1777 sticky/sub sticky-top`, dir, other)
	const look = `find "$1" "$2" -exec stat -c "%n %A %u" {} + && find "$1" "$2" -type f -exec cat {} +`
	before := g.sh(t, look, dir, other)
	for _, from := range []string{"/closed", "/sticky", "/sticky-top/file"} {
		for _, to := range []string{"/new", "/old"} {
			if to == "/old" && from != "/sticky-top/file" {
				continue // a tree does not replace a file
			}
			g.refuse(t, &pb.MoveRequest{User: g.OtherUser, Source: []byte(dir + from), Destination: []byte(other + to)}, denied())
		}
	}
	if after := g.sh(t, look, dir, other); after != before {
		t.Errorf("there is now\n%s\nthere was\n%s", after, before)
	}
}

func (g moveCases) GuestsPermissionsDecide(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -m 755 roots && : >roots/file`, dir)
	request := &pb.MoveRequest{User: g.OtherUser, Source: []byte(dir + "/roots/file"), Destination: []byte(dir + "/mine")}
	g.refuse(t, request, denied())
}
