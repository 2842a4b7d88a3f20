package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// searchAll reads a whole search: its header, its matches and its summary.
func searchAll(ctx context.Context, files guestdv1.FileServiceClient, req *guestdv1.SearchRequest) (events []*guestdv1.SearchResponse, err error) {
	stream, err := files.Search(ctx, req)
	if err != nil {
		return nil, err
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, m)
	}
}

func TestSearchOverTheAPI(t *testing.T) {
	files, ctx := startAgent(t, Config{}).fileCalls(), within(t)
	dir := t.TempDir()
	writeFiles(t, dir, "a.go", "sub/b.go", "sub/skip/c.go", ".hidden/d.go", "ignored.go")
	for name, text := range map[string]string{"a.go": "one\ntwo Two\nthree\n", "sub/b.go": "two\x00", ".gitignore": "ignored.go\n"} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	request := &guestdv1.SearchRequest{
		User: self(), Path: []byte(dir), Include: [][]byte{[]byte("*.go")}, Exclude: [][]byte{[]byte("skip")},
		Pattern: proto.String("TWO"), IgnoreCase: true, BeforeLines: 1, AfterLines: 1,
		SkipHidden: true, RespectGitignore: true, Binary: true,
	}
	events, err := searchAll(ctx, files, request)
	if err != nil || len(events) != 4 {
		t.Fatalf("%v, %v", events, err)
	}
	if root := events[0].GetHeader().GetRoot(); string(root.GetPath()) != dir || root.GetType() != guestdv1.FileType_FILE_TYPE_DIRECTORY {
		t.Errorf("header %v", root)
	}
	want := &guestdv1.SearchMatch{
		Path: []byte(dir + "/a.go"), Type: guestdv1.FileType_FILE_TYPE_REGULAR,
		Line:   &guestdv1.SearchLine{Number: 2, Text: []byte("two Two")},
		Ranges: []*guestdv1.ByteRange{{Start: 0, End: 3}, {Start: 4, End: 7}},
		Before: []*guestdv1.SearchLine{{Number: 1, Text: []byte("one")}},
		After:  []*guestdv1.SearchLine{{Number: 3, Text: []byte("three")}},
	}
	if got := events[1].GetMatch(); !proto.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	want = &guestdv1.SearchMatch{Path: []byte(dir + "/sub/b.go"), Type: guestdv1.FileType_FILE_TYPE_REGULAR, Binary: true}
	if got := events[2].GetMatch(); !proto.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := events[3].GetSummary(); got.GetFiles() != 2 || got.GetMatches() != 2 || got.GetLimitReached() {
		t.Errorf("%v", got)
	}
}

func TestSearchNamesAndLimitsOverTheAPI(t *testing.T) {
	files, ctx := startAgent(t, Config{}).fileCalls(), within(t)
	dir := t.TempDir()
	writeFiles(t, dir, "c", "a", "b/d")
	for _, c := range []struct {
		change func(*guestdv1.SearchRequest)
		want   string
	}{
		{func(*guestdv1.SearchRequest) {}, "a b b/d c false"},
		{func(r *guestdv1.SearchRequest) { r.MaxMatches = 2 }, "a b true"},
		{func(r *guestdv1.SearchRequest) { r.Pattern = proto.String("."); r.MaxFileBytes = proto.Uint64(1) }, "a c false"},
		{func(r *guestdv1.SearchRequest) { r.Pattern = proto.String("."); r.MaxFileBytes = proto.Uint64(0) }, "false"},
	} {
		request := &guestdv1.SearchRequest{User: self(), Path: []byte(dir)}
		c.change(request)
		events, err := searchAll(ctx, files, request)
		if err != nil || len(events) < 2 {
			t.Fatalf("%v, %v", events, err)
		}
		var got []string
		for _, event := range events[1 : len(events)-1] {
			got = append(got, strings.TrimPrefix(string(event.GetMatch().GetPath()), dir+"/"))
		}
		got = append(got, fmt.Sprint(events[len(events)-1].GetSummary().GetLimitReached()))
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: %s, want %s", request, got, c.want)
		}
	}
}

func TestSearchErrorsOverTheAPI(t *testing.T) {
	files, ctx := startAgent(t, Config{}).fileCalls(), within(t)
	dir := t.TempDir()
	writeFiles(t, dir, "a")
	for reason, request := range map[string]*guestdv1.SearchRequest{
		"pattern":      {Path: []byte(dir), Pattern: proto.String("(")},
		"include":      {Path: []byte(dir), Include: [][]byte{nil}},
		"before_lines": {Path: []byte(dir), BeforeLines: 1 << 31},
		"after_lines":  {Path: []byte(dir), AfterLines: 101},
	} {
		request.User = self()
		events, err := searchAll(ctx, files, request)
		wantCode(t, err, codes.InvalidArgument, "INVALID_FIELD")
		if len(events) != 0 || err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, %v", reason, events, err)
		}
	}
	_, err := searchAll(ctx, files, &guestdv1.SearchRequest{User: self(), Path: []byte(dir + "/missing")})
	wantCode(t, err, codes.NotFound, "FILE_NOT_FOUND")
}

// TestNothingIsLostInConversion sets every field of the requests: none of what
// fsapi is given may be left at its zero.
func TestNothingIsLostInConversion(t *testing.T) {
	search := searchOptions(&guestdv1.SearchRequest{
		Include: [][]byte{[]byte("a")}, Exclude: [][]byte{[]byte("b")}, Pattern: proto.String("c"), IgnoreCase: true, Invert: true,
		BeforeLines: 1, AfterLines: 2, SkipHidden: true, RespectGitignore: true, Binary: true,
		MaxMatches: 3, MaxMatchesPerFile: 4, MaxFileBytes: proto.Uint64(5),
	})
	changes, err := attributeChanges(&guestdv1.SetAttributesRequest{
		NoFollow: true, Mode: proto.Uint32(1), Owner: proto.String("a"), Group: proto.String("b"),
		ModifyTime: timestamppb.Now(), AccessTime: timestamppb.Now(),
		SetAttributes: []*guestdv1.ExtendedAttribute{{Name: []byte("c")}}, RemoveAttributes: [][]byte{[]byte("d")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, converted := range []any{search, changes} {
		v := reflect.ValueOf(converted)
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%T.%s is not converted", converted, v.Type().Field(i).Name)
			}
		}
	}
}
