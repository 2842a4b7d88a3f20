package conformance

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "guestd.internal/proto/guestd/v1"
)

// linkCases are the contract of FileService.Link.
type linkCases struct{ *guest }

func linkRequest(target, path string) *pb.LinkRequest {
	return &pb.LinkRequest{Target: []byte(target), Path: []byte(path)}
}

func (g linkCases) link(t *testing.T, request *pb.LinkRequest) *pb.FileInfo {
	t.Helper()
	response, err := g.file.Link(within(t), request)
	if err != nil {
		t.Fatalf("Link: %v", err)
	}
	return response.GetInfo()
}

func (g linkCases) refuse(t *testing.T, request *pb.LinkRequest, want refusal) {
	t.Helper()
	_, err := g.file.Link(within(t), request)
	wantRefusal(t, err, want)
}

func (g linkCases) TargetIsStoredAsItIs(t *testing.T) {
	dir := g.folder(t)
	for name, target := range map[string]string{
		"odd \xff": "no/where \xfe", "up": "../../..//./x", "absolute": "/dev/null", "here": ".",
	} {
		info := g.link(t, linkRequest(target, dir+"/"+name))
		if string(info.GetLinkTarget()) != target || string(info.GetPath()) != dir+"/"+name || info.GetType() != pb.FileType_FILE_TYPE_SYMLINK {
			t.Errorf("%v, want a link to %q", info, target)
		}
		wantText(t, "the link", g.sh(t, `readlink "$1"`, dir+"/"+name), target)
	}
}

func (g linkCases) WhatIsThereIsReplacedOnlyWhereAskedFor(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && echo kept >kept && : >file && ln -s kept link && mkdir dir`, dir)
	for _, name := range []string{"/file", "/link"} {
		request := linkRequest("new", dir+name)
		g.refuse(t, request, fileExists())
		request.Replace = true
		if info := g.link(t, request); string(info.GetLinkTarget()) != "new" {
			t.Errorf("%s became %v", name, info)
		}
	}
	request := linkRequest("new", dir+"/dir")
	request.Replace = true
	g.refuse(t, request, isADirectory())
	g.wantContents(t, dir+"/kept", "kept\n")
	g.wantNoLitter(t, dir, "dir file kept link")
}

func (g linkCases) MalformedRequestsAreRefused(t *testing.T) {
	path := g.folder(t) + "/link"
	g.refuse(t, linkRequest("", path), badField("target"))
	g.refuse(t, linkRequest("a\x00b", path), badField("target"))
	request := linkRequest("x", path)
	request.RequestId = "é"
	g.refuse(t, request, badField("request_id"))
	g.refuse(t, linkRequest("x", path+"/below"), refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_FILE_NOT_FOUND})
}

func (g linkCases) GuestsPermissionsDecide(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -m 755 roots && ln -s roots door && : >roots/file`, dir)
	for _, path := range []string{"/roots/link", "/door/link", "/door/file"} {
		request := linkRequest("x", dir+path)
		request.User, request.Replace = g.OtherUser, true
		g.refuse(t, request, denied())
	}
	request := linkRequest("/root/secret", dir+"/mine") // it may say what it likes
	request.User = g.OtherUser
	if info := g.link(t, request); info.GetOwner() != g.OtherUser {
		t.Errorf("the owner is %q, want %q", info.GetOwner(), g.OtherUser)
	}
}

func (g linkCases) RepeatedRequestIDAnswersTheSame(t *testing.T) {
	path := g.folder(t) + "/link"
	request := linkRequest("x", path)
	request.RequestId = path
	for range 2 { // the second would fail by itself
		g.link(t, request)
	}
	request.Target = []byte("y")
	g.refuse(t, request, refusal{code: codes.AlreadyExists, reason: pb.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED})
}

// attributeCases are the contract of FileService.SetAttributes.
type attributeCases struct{ *guest }

func (g attributeCases) set(t *testing.T, request *pb.SetAttributesRequest) *pb.FileInfo {
	t.Helper()
	response, err := g.file.SetAttributes(within(t), request)
	if err != nil {
		t.Fatalf("SetAttributes: %v", err)
	}
	return response.GetInfo()
}

func (g attributeCases) refuse(t *testing.T, request *pb.SetAttributesRequest, want refusal) {
	t.Helper()
	_, err := g.file.SetAttributes(within(t), request)
	wantRefusal(t, err, want)
}

func (g attributeCases) WhatIsAskedForChangesAndTheRestStays(t *testing.T) {
	file := g.folder(t) + "/file \xff"
	g.put(t, file, "x")
	before := g.stat(t, file)
	info := g.set(t, &pb.SetAttributesRequest{Path: []byte(file), Mode: proto.Uint32(0o2751)})
	if info.Mode != 0o2751 || !proto.Equal(info.ModifyTime, before.ModifyTime) || info.Uid != before.Uid {
		t.Errorf("%v, want another mode alone", info)
	}
	modified, accessed := &timestamppb.Timestamp{Seconds: 1_000_000_000, Nanos: 5000}, &timestamppb.Timestamp{Seconds: 1_100_000_000}
	info = g.set(t, &pb.SetAttributesRequest{Path: []byte(file), ModifyTime: modified})
	if !proto.Equal(info.ModifyTime, modified) || !proto.Equal(info.AccessTime, before.AccessTime) || info.Mode != 0o2751 {
		t.Errorf("%v, want another time of change alone", info)
	}
	info = g.set(t, &pb.SetAttributesRequest{Path: []byte(file), AccessTime: accessed})
	if !proto.Equal(info.ModifyTime, modified) || !proto.Equal(info.AccessTime, accessed) {
		t.Errorf("%v, want both times", info)
	}
	info = g.set(t, &pb.SetAttributesRequest{Path: []byte(file)})
	if !proto.Equal(info, g.stat(t, file)) || info.Mode != 0o2751 || !proto.Equal(info.ModifyTime, modified) {
		t.Errorf("%v, want no change", info)
	}
	wantText(t, "the mode", g.sh(t, `stat -c %a "$1"`, file), "2751")
}

func (g attributeCases) ExtendedAttributesAreSetAndRemoved(t *testing.T) {
	file := []byte(g.folder(t) + "/file")
	g.put(t, string(file), "x")
	set := &pb.SetAttributesRequest{Path: file, SetAttributes: []*pb.ExtendedAttribute{
		{Name: []byte("user.a \xff"), Value: []byte("\x00\xff")}, {Name: []byte("user.b")},
	}}
	if _, err := g.file.SetAttributes(within(t), set); status.Code(err) == codes.Unimplemented || status.Code(err) == codes.FailedPrecondition {
		t.Skipf("the file system has none: %v", err)
	}
	g.set(t, set) // again, over what is there
	remove := &pb.SetAttributesRequest{Path: file, RemoveAttributes: [][]byte{[]byte("user.a \xff"), []byte("user.b")}}
	g.set(t, remove)
	g.refuse(t, remove, refusal{code: codes.NotFound})
}

func (g attributeCases) OwnerAndGroupAreNamesOrNumbers(t *testing.T) {
	g.needRoot(t)
	file := g.folder(t) + "/file"
	g.put(t, file, "x")
	request := &pb.SetAttributesRequest{User: "root", Path: []byte(file), Owner: proto.String(g.OtherUser), Group: proto.String("12345")}
	if info := g.set(t, request); info.Owner != g.OtherUser || info.Gid != 12345 {
		t.Errorf("%v, want owner %s and group 12345", info, g.OtherUser)
	}
	request = &pb.SetAttributesRequest{User: "root", Path: []byte(file), Owner: proto.String("54321")}
	if info := g.set(t, request); info.Uid != 54321 || info.Gid != 12345 {
		t.Errorf("%v, want owner 54321 and group 12345", info)
	}
	request.Owner = proto.String("no-such-user-here")
	g.refuse(t, request, refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_USER_NOT_FOUND})
}

func (g attributeCases) LinkIsFollowedOrChangedItself(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && : >file && ln -s file link && ln -s nowhere broken`, dir)
	when := &timestamppb.Timestamp{Seconds: 1_000_000_000}
	link := []byte(dir + "/link")
	if info := g.set(t, &pb.SetAttributesRequest{Path: link, Mode: proto.Uint32(0o600)}); info.Mode != 0o600 || info.Type != pb.FileType_FILE_TYPE_REGULAR {
		t.Errorf("followed: %v", info)
	}
	if info := g.set(t, &pb.SetAttributesRequest{Path: link, NoFollow: true, ModifyTime: when}); !proto.Equal(info.ModifyTime, when) || info.Type != pb.FileType_FILE_TYPE_SYMLINK {
		t.Errorf("itself: %v", info)
	}
	if info := g.stat(t, dir+"/file"); proto.Equal(info.ModifyTime, when) {
		t.Error("the file has got the link's time")
	}
	g.refuse(t, &pb.SetAttributesRequest{Path: link, NoFollow: true, Mode: proto.Uint32(0o600)}, badField("mode"))
	broken := &pb.SetAttributesRequest{Path: []byte(dir + "/broken"), ModifyTime: when}
	g.refuse(t, broken, refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_FILE_NOT_FOUND})
	broken.NoFollow = true
	g.set(t, broken)
}

func (g attributeCases) MalformedRequestsAreRefusedAndChangeNothing(t *testing.T) {
	file := g.folder(t) + "/file"
	g.put(t, file, "x")
	before := g.stat(t, file)
	for field, request := range map[string]*pb.SetAttributesRequest{
		"mode":              {Mode: proto.Uint32(0o10000)},
		"owner":             {Owner: proto.String("")},
		"group":             {Group: proto.String("a:b")},
		"modify_time":       {ModifyTime: &timestamppb.Timestamp{Nanos: -1}},
		"access_time":       {AccessTime: &timestamppb.Timestamp{Nanos: 1e9}},
		"set_attributes":    {SetAttributes: []*pb.ExtendedAttribute{{Name: []byte("trusted.x")}}},
		"remove_attributes": {RemoveAttributes: [][]byte{[]byte("user.a\x00b")}},
		"request_id":        {RequestId: "é"},
	} {
		request.Path = []byte(file)
		if request.Mode == nil {
			request.Mode = proto.Uint32(0o600)
		}
		t.Run(field, func(t *testing.T) { g.refuse(t, request, badField(field)) })
	}
	if after := g.stat(t, file); after.Mode != before.Mode {
		t.Errorf("the mode became %o", after.Mode)
	}
}

func (g attributeCases) GuestsPermissionsDecide(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	g.sh(t, `cd "$1" && : >roots && chmod 666 roots`, dir)
	before := g.stat(t, dir+"/roots")
	g.shAs(t, g.OtherUser, `cd "$1" && : >mine && ln -s roots link`, dir)
	mode, when := proto.Uint32(0o4777), &timestamppb.Timestamp{Seconds: 1}
	for name, request := range map[string]*pb.SetAttributesRequest{
		"/roots": {Mode: mode},
		"/link":  {Mode: mode, ModifyTime: when},
		"/mine":  {Owner: proto.String("root")},
		"//link": {ModifyTime: when},
	} {
		request.User, request.Path = g.OtherUser, []byte(dir+name)
		t.Run(name, func(t *testing.T) { g.refuse(t, request, denied()) })
	}
	if info := g.stat(t, dir+"/roots"); info.Mode != 0o666 || info.Uid != before.Uid || info.ModifyTime.Seconds == 1 {
		t.Errorf("somebody else's file became %v", info)
	}
	g.set(t, &pb.SetAttributesRequest{User: g.OtherUser, Path: []byte(dir + "/mine"), Mode: mode, ModifyTime: when})
}

func (g attributeCases) RepeatedRequestIDAnswersTheSame(t *testing.T) {
	file := g.folder(t) + "/file"
	g.put(t, file, "x")
	request := &pb.SetAttributesRequest{RequestId: file, Path: []byte(file), Mode: proto.Uint32(0o600)}
	g.set(t, request)
	g.sh(t, `chmod 640 "$1"`, file)
	if info := g.set(t, request); info.Mode != 0o600 {
		t.Errorf("the repeated call answers %v", info)
	}
	if info := g.stat(t, file); info.Mode != 0o640 {
		t.Errorf("the repeated call changed the mode to %o", info.Mode)
	}
}
