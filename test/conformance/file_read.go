package conformance

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "guestd.internal/proto/guestd/v1"
)

// statCases are the contract of FileService.Stat.
type statCases struct{ *guest }

func (g statCases) FileIsDescribed(t *testing.T) {
	file := g.folder(t) + "/a file \xff"
	g.sh(t, `printf 12345 >"$1" && chmod 4751 "$1" && ln "$1" "$1.2"`, file)
	info := g.stat(t, file)
	if string(info.Path) != file || info.Type != pb.FileType_FILE_TYPE_REGULAR || info.Size != 5 || info.Mode != 0o4751 || info.Links != 2 {
		t.Errorf("%v, want a regular file of 5 bytes, mode 4751, 2 links", info)
	}
	ids := g.sh(t, `stat -c '%u %g %i' "$1"`, file)
	wantText(t, "owner, group and inode", fmt.Sprintf("%d %d %d", info.Uid, info.Gid, info.Inode), ids)
	for name, time := range map[string]int64{"modify": info.ModifyTime.GetSeconds(), "access": info.AccessTime.GetSeconds(), "change": info.ChangeTime.GetSeconds()} {
		if time == 0 {
			t.Errorf("no %s time", name)
		}
	}
}

func (g statCases) OwnersAreNamed(t *testing.T) {
	g.needRoot(t)
	file := g.folder(t) + "/file"
	g.ownerSh(t, `: >"$1"`, file)
	if info := g.stat(t, file); info.Owner != "root" || info.Group != "root" {
		t.Errorf("owner %q, group %q, want root's", info.Owner, info.Group)
	}
	g.ownerSh(t, `chown 54321:54321 "$1"`, file)
	if info := g.stat(t, file); info.Owner != "" || info.Uid != 54321 {
		t.Errorf("owner %q, uid %d, want a uid without a name", info.Owner, info.Uid)
	}
}

func (g statCases) EveryTypeIsTold(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir dir && mkfifo fifo && ln -s dir link`, dir)
	for name, want := range map[string]pb.FileType{
		dir + "/dir":  pb.FileType_FILE_TYPE_DIRECTORY,
		dir + "/fifo": pb.FileType_FILE_TYPE_FIFO,
		dir + "/link": pb.FileType_FILE_TYPE_SYMLINK,
		"/dev/null":   pb.FileType_FILE_TYPE_CHARACTER_DEVICE,
	} {
		if info := g.stat(t, name); info.Type != want {
			t.Errorf("%s is %v, want %v", name, info.Type, want)
		}
	}
}

func (g statCases) LinkIsDescribedOrFollowed(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && printf 123 >file && ln -s file link && ln -s nowhere broken`, dir)
	link := g.stat(t, dir+"/link")
	if link.Type != pb.FileType_FILE_TYPE_SYMLINK || string(link.LinkTarget) != "file" || link.TargetType != pb.FileType_FILE_TYPE_REGULAR {
		t.Errorf("%v, want a link to the regular file \"file\"", link)
	}
	broken := g.stat(t, dir+"/broken")
	if broken.Type != pb.FileType_FILE_TYPE_SYMLINK || broken.TargetType != pb.FileType_FILE_TYPE_UNSPECIFIED {
		t.Errorf("%v, want a link that leads nowhere", broken)
	}
	response, err := g.file.Stat(within(t), &pb.StatRequest{Path: []byte(dir + "/link"), FollowLinks: true})
	if err != nil || response.Info.GetType() != pb.FileType_FILE_TYPE_REGULAR || response.Info.GetSize() != 3 {
		t.Errorf("followed: %v, %v, want the file", response, err)
	}
	_, err = g.file.Stat(within(t), &pb.StatRequest{Path: []byte(dir + "/broken"), FollowLinks: true})
	wantRefusal(t, err, refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_FILE_NOT_FOUND})
}

func (g statCases) LinksOfProcAreNotFollowed(t *testing.T) {
	pid := g.start(t, command("sleep", "1000")).GetPid()
	var err error
	// In the middle of its exec a process shows its user nothing: the kernel lets its parent go on before it is through.
	eventually(t, "the process shows its links", func() bool {
		_, err = g.file.Stat(within(t), &pb.StatRequest{Path: fmt.Appendf(nil, "/proc/%d/exe", pid), FollowLinks: true})
		return status.Code(err) != codes.PermissionDenied
	})
	wantRefusal(t, err, refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_LINK_REFUSED})
}

// Of guestd's own folder of /proc root alone learns what links there are.
func (g statCases) LinksOfGuestdItselfAreNotFollowed(t *testing.T) {
	g.needRoot(t)
	for user, want := range map[string]refusal{
		"root":  {code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_LINK_REFUSED},
		"65534": {code: codes.PermissionDenied, errno: "EACCES"},
	} {
		for _, link := range []string{"exe", "cwd", "root", "fd/0"} {
			_, err := g.file.Stat(within(t), &pb.StatRequest{User: user, Path: []byte("/proc/self/" + link), FollowLinks: true})
			wantRefusal(t, err, want)
		}
	}
}

func (g statCases) LinksInACircleAreTold(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `ln -s b "$1/a" && ln -s a "$1/b"`, dir)
	_, err := g.file.Stat(within(t), &pb.StatRequest{Path: []byte(dir + "/a"), FollowLinks: true})
	wantRefusal(t, err, refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_LINK_REFUSED, errno: "ELOOP"})
}

func (g statCases) RelativePathStartsAtTheHome(t *testing.T) {
	home := g.complete(t, script("pwd")).stdout()
	response, err := g.file.Stat(within(t), &pb.StatRequest{Path: []byte(".")})
	if err != nil {
		t.Fatalf("Stat: %v", err)
	}
	wantText(t, "the path", string(response.Info.GetPath())+"\n", home)
}

func (g statCases) PathIsCleaned(t *testing.T) {
	dir := g.folder(t)
	response, err := g.file.Stat(within(t), &pb.StatRequest{Path: []byte(dir + "//./")})
	if err != nil {
		t.Fatalf("Stat: %v", err)
	}
	wantText(t, "the path", string(response.Info.GetPath()), dir)
}

// listCases are the contract of FileService.List.
type listCases struct{ *guest }

func (g listCases) listed(t *testing.T, request *pb.FileServiceListRequest) *listing {
	t.Helper()
	l, err := g.list(within(t), request)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	return l
}

// names is the paths of a listing below its directory, sorted.
func (l *listing) names(dir string) string {
	var names []string
	for path := range l.entries {
		names = append(names, strings.TrimPrefix(path, dir+"/"))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (g listCases) DepthHiddenAndPatternsAreAsAsked(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -p a/b/c .h && : >a/b/f.txt && : >.h/inside && : >.hidden && : >g.txt && ln -s a loop`, dir)
	for _, c := range []struct {
		want    string
		request *pb.FileServiceListRequest
	}{
		{".h .hidden a g.txt loop", &pb.FileServiceListRequest{}},
		{".h .hidden a g.txt loop", &pb.FileServiceListRequest{Depth: 1}},
		{".h .h/inside .hidden a a/b g.txt loop", &pb.FileServiceListRequest{Depth: 2}},
		{"a a/b a/b/c a/b/f.txt g.txt loop", &pb.FileServiceListRequest{Depth: 100, SkipHidden: true}},
		{"a/b/f.txt g.txt", &pb.FileServiceListRequest{Depth: 9, Include: [][]byte{[]byte("*.txt")}}},
		{"a/b/f.txt", &pb.FileServiceListRequest{Depth: 9, Include: [][]byte{[]byte("a/**/*.txt")}}},
		{".h .h/inside .hidden g.txt loop", &pb.FileServiceListRequest{Depth: 9, Exclude: [][]byte{[]byte("a")}}},
	} {
		c.request.Path = []byte(dir)
		l := g.listed(t, c.request)
		wantText(t, "the listing", l.names(dir), c.want)
		if string(l.directory.Path) != dir || l.directory.Type != pb.FileType_FILE_TYPE_DIRECTORY {
			t.Errorf("the header is %v", l.directory)
		}
		for i, name := range l.order {
			if parent := path.Dir(name); slices.Index(l.order, parent) > i {
				t.Errorf("%s comes before its directory", name)
			}
		}
	}
}

func (g listCases) NamesNeedNotBeText(t *testing.T) {
	dir := g.folder(t)
	name := dir + "/\xff\x01\n\xc3("
	g.sh(t, `: >"$1"`, name)
	if l := g.listed(t, &pb.FileServiceListRequest{Path: []byte(dir)}); l.entries[name] == nil {
		t.Errorf("entries %q, want %q", l.order, name)
	}
}

func (g listCases) FiveThousandEntriesAreAllListed(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && i=0; while [ $i -lt "$2" ]; do : >"entry-$i"; i=$((i+1)); done`, dir, fmt.Sprint(g.amount(5000)))
	if l := g.listed(t, &pb.FileServiceListRequest{Path: []byte(dir)}); len(l.entries) != g.amount(5000) {
		t.Errorf("%d entries, want %d", len(l.entries), g.amount(5000))
	}
}

func (g listCases) EmptyDirectoryHasAHeaderAlone(t *testing.T) {
	if l := g.listed(t, &pb.FileServiceListRequest{Path: []byte(g.folder(t))}); len(l.entries) != 0 {
		t.Errorf("entries %q, want none", l.order)
	}
}

func (g listCases) ClosedSubdirectoryIsToldAndTheRestGoesOn(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -m 700 closed && mkdir open && : >closed/x && : >open/y && chmod 755 open`, dir)
	l := g.listed(t, &pb.FileServiceListRequest{User: g.OtherUser, Path: []byte(dir), Depth: 2})
	wantText(t, "the listing", l.names(dir), "closed open open/y")
	if len(l.failures) != 1 || string(l.failures[0].Path) != dir+"/closed" || l.failures[0].Errno != "EACCES" {
		t.Errorf("failures %v, want EACCES of closed", l.failures)
	}
	l = g.listed(t, &pb.FileServiceListRequest{User: g.OtherUser, Path: []byte(dir), Depth: 2, Include: [][]byte{[]byte("y")}})
	wantText(t, "the filtered listing", l.names(dir), "open/y")
	if len(l.failures) != 1 || string(l.failures[0].Path) != dir+"/closed" {
		t.Errorf("failures %v, want one of closed, which is no entry", l.failures)
	}
}

func (g listCases) WhatIsNoDirectoryIsRefused(t *testing.T) {
	dir := g.folder(t)
	g.put(t, dir+"/file", "x")
	_, err := g.list(within(t), &pb.FileServiceListRequest{Path: []byte(dir + "/file")})
	wantRefusal(t, err, notADirectory())
	_, err = g.list(within(t), &pb.FileServiceListRequest{Path: []byte(dir + "/missing")})
	wantRefusal(t, err, noFile(dir+"/missing"))
	_, err = g.list(within(t), &pb.FileServiceListRequest{Path: []byte(dir), Include: [][]byte{[]byte("[")}})
	wantRefusal(t, err, badField("include"))
}

// readCases are the contract of FileService.Read.
type readCases struct{ *guest }

func (g readCases) read(t *testing.T, request *pb.ReadRequest) string {
	t.Helper()
	_, data, err := g.readFile(within(t), request)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	return string(data)
}

func (g readCases) OffsetAndLengthChooseAPart(t *testing.T) {
	file := g.folder(t) + "/file"
	g.put(t, file, "0123456789")
	length := func(n uint64) *uint64 { return &n }
	for _, c := range []struct {
		want    string
		request *pb.ReadRequest
	}{
		{"0123456789", &pb.ReadRequest{}},
		{"789", &pb.ReadRequest{Offset: 7}},
		{"34", &pb.ReadRequest{Offset: 3, Length: length(2)}},
		{"89", &pb.ReadRequest{Offset: 8, Length: length(1 << 62)}},
		{"", &pb.ReadRequest{Length: length(0)}},
		{"", &pb.ReadRequest{Offset: 10}},
	} {
		c.request.Path = []byte(file)
		wantText(t, "the part", g.read(t, c.request), c.want)
	}
	_, _, err := g.readFile(within(t), &pb.ReadRequest{Path: []byte(file), Offset: 11})
	wantRefusal(t, err, refusal{code: codes.OutOfRange, reason: pb.ErrorReason_ERROR_REASON_OFFSET_OUT_OF_RANGE})
	_, _, err = g.readFile(within(t), &pb.ReadRequest{Path: []byte(file), Offset: 1 << 62})
	wantRefusal(t, err, refusal{code: codes.OutOfRange, reason: pb.ErrorReason_ERROR_REASON_OFFSET_OUT_OF_RANGE})
}

func (g readCases) EmptyFileIsAHeaderAlone(t *testing.T) {
	file := g.folder(t) + "/empty"
	g.put(t, file, "")
	wantText(t, "the contents", g.read(t, &pb.ReadRequest{Path: []byte(file)}), "")
}

func (g readCases) FileThatTellsNoSizeIsReadToItsEnd(t *testing.T) {
	text := g.read(t, &pb.ReadRequest{Path: []byte("/proc/version")})
	if !strings.HasPrefix(text, "Linux version ") {
		t.Errorf("/proc/version is %s", excerpt(text))
	}
}

func (g readCases) LinkIsFollowed(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && echo text >file && ln -s file link`, dir)
	wantText(t, "the contents", g.read(t, &pb.ReadRequest{Path: []byte(dir + "/link")}), "text\n")
}

func (g readCases) WhatIsNoFileIsRefusedWithoutHanging(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `mkfifo "$1/fifo"`, dir)
	special := refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE}
	for path, want := range map[string]refusal{
		dir:              isADirectory(),
		dir + "/fifo":    special,
		dir + "/missing": noFile(dir + "/missing"),
	} {
		_, _, err := g.readFile(within(t), &pb.ReadRequest{Path: []byte(path)})
		wantRefusal(t, err, want)
	}
}

func (g readCases) FileOfSomebodyElseIsDenied(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	g.sh(t, `cd "$1" && echo secret >file && chmod 600 file && ln -s file link`, dir)
	for _, name := range []string{"/file", "/link"} {
		_, _, err := g.readFile(within(t), &pb.ReadRequest{User: g.OtherUser, Path: []byte(dir + name)})
		wantRefusal(t, err, denied())
	}
	_, _, err := g.readFile(within(t), &pb.ReadRequest{User: g.OtherUser, Path: []byte("/proc/1/environ")})
	wantRefusal(t, err, denied())
}
