package conformance

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/codes"

	pb "guestd.internal/proto/guestd/v1"
)

// archiveCases are the contract of FileService.Archive.
type archiveCases struct{ *guest }

// archived is what an Archive answered.
type archived struct {
	root    *pb.FileInfo
	stream  []byte
	summary *pb.TreeSummary
}

// archive packs a tree, and holds the answers against the contract.
func (g *guest) archive(ctx context.Context, request *pb.ArchiveRequest) (*archived, error) {
	stream, err := g.file.Archive(ctx, request)
	if err != nil {
		return nil, err
	}
	a := &archived{}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) && a.summary != nil {
			return a, nil
		}
		if err != nil {
			return a, err
		}
		if err := a.take(response); err != nil {
			return a, err
		}
	}
}

func (a *archived) take(response *pb.ArchiveResponse) error {
	if a.root == nil {
		if a.root = response.GetHeader().GetRoot(); a.root == nil {
			return fmt.Errorf("the first answer is no header: %v", response)
		}
		return nil
	}
	switch event := response.GetEvent().(type) {
	case *pb.ArchiveResponse_Data:
		piece := event.Data
		if n := len(piece.GetData()); n == 0 || n > maxPayload || piece.GetOffset() != uint64(len(a.stream)) || a.summary != nil {
			return fmt.Errorf("a piece of %d bytes at %d, want 1 to %d at %d before the summary", n, piece.GetOffset(), maxPayload, len(a.stream))
		}
		a.stream = append(a.stream, piece.GetData()...)
	case *pb.ArchiveResponse_Summary:
		if a.summary != nil {
			return errors.New("two summaries")
		}
		a.summary = event.Summary
	default:
		return fmt.Errorf("an answer that does not belong here: %v", response)
	}
	return nil
}

// pack is archive that must succeed.
func (g *guest) pack(t *testing.T, request *pb.ArchiveRequest) *archived {
	t.Helper()
	a, err := g.archive(within(t), request)
	if err != nil {
		t.Fatalf("archiving %q: %v", request.Path, err)
	}
	return a
}

// member is an entry of a tar stream.
type member struct {
	*tar.Header
	contents string
}

// members reads an uncompressed tar stream.
func members(t *testing.T, stream []byte) map[string]member {
	t.Helper()
	all := make(map[string]member)
	for r := tar.NewReader(bytes.NewReader(stream)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("reading the archive: %v", err)
		}
		contents, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("reading %q in the archive: %v", header.Name, err)
		}
		all[header.Name] = member{header, string(contents)}
	}
}

func memberNames(all map[string]member) string {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (g archiveCases) TreeIsATarStreamWithNamesRelativeToIt(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -p tree/sub/empty && printf one >tree/one && printf two >tree/sub/two && chmod 751 tree/one && ln -s /no/where tree/link && ln tree/one tree/sub/again`, dir)
	a := g.pack(t, &pb.ArchiveRequest{Path: []byte(dir + "/tree")})
	got := members(t, a.stream)
	wantText(t, "names", memberNames(got), "./ link one sub/ sub/again sub/empty/ sub/two")
	first, second := got["one"], got["sub/again"]
	if first.Typeflag == tar.TypeLink {
		first, second = second, first
	}
	if first.contents != "one" || first.Mode != 0o751 || second.Typeflag != tar.TypeLink || second.Linkname != first.Name {
		t.Errorf("the file with two names is %+v and %+v", first.Header, second.Header)
	}
	if link := got["link"]; link.Typeflag != tar.TypeSymlink || link.Linkname != "/no/where" {
		t.Errorf("the link is %+v", link.Header)
	}
	if string(a.root.Path) != dir+"/tree" || a.summary.Entries != 7 || a.summary.Bytes != 6 || a.summary.FailureCount != 0 {
		t.Errorf("root %v, summary %v", a.root, a.summary)
	}
}

func (g archiveCases) FileIsTheOneEntryUnderItsOwnName(t *testing.T) {
	dir := g.folder(t)
	data := string(pattern(g.amount(3 << 20)))
	g.put(t, dir+"/file", data)
	a := g.pack(t, &pb.ArchiveRequest{Path: []byte(dir + "/file")})
	got := members(t, a.stream)
	if len(got) != 1 || got["file"].contents != data || a.summary.Entries != 1 || a.summary.Bytes != uint64(len(data)) {
		t.Errorf("it has %q, summary %v", memberNames(got), a.summary)
	}
}

func (g archiveCases) CompressionIsAsAsked(t *testing.T) {
	dir := g.folder(t)
	g.put(t, dir+"/file", strings.Repeat("compressible ", 10_000))
	plain := g.pack(t, &pb.ArchiveRequest{Path: []byte(dir), Compression: pb.Compression_COMPRESSION_NONE}).stream
	packed := g.pack(t, &pb.ArchiveRequest{Path: []byte(dir), Compression: pb.Compression_COMPRESSION_GZIP}).stream
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	g.wantStream(t, "gzip", unzipped, plain)
	packed = g.pack(t, &pb.ArchiveRequest{Path: []byte(dir), Compression: pb.Compression_COMPRESSION_ZSTD}).stream
	decoder, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	g.wantStream(t, "zstd", decoder, plain)
}

func (g archiveCases) wantStream(t *testing.T, what string, r io.Reader, want []byte) {
	t.Helper()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s unpacks to %d bytes, %v; want the %d of the plain archive", what, len(got), err, len(want))
	}
}

func (g archiveCases) IncludeAndExcludeChoose(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -p a/b skip bare && touch x.txt x.go a/b/y.txt skip/z.txt`, dir)
	a := g.pack(t, &pb.ArchiveRequest{Path: []byte(dir), Include: [][]byte{[]byte("*.txt")}, Exclude: [][]byte{[]byte("skip")}})
	wantText(t, "names", memberNames(members(t, a.stream)), "./ a/ a/b/ a/b/y.txt x.txt")
}

func (g archiveCases) NamesAndTimesAreExact(t *testing.T) {
	dir := g.folder(t)
	g.put(t, dir+"/odd \xff\n", "x")
	info := g.stat(t, dir+"/odd \xff\n")
	got := members(t, g.pack(t, &pb.ArchiveRequest{Path: []byte(dir)}).stream)["odd \xff\n"]
	if got.Header == nil || !got.ModTime.Equal(info.ModifyTime.AsTime()) {
		t.Errorf("the entry is %+v, want the time %v", got.Header, info.ModifyTime.AsTime())
	}
}

func (g archiveCases) WhatCannotBeReadIsToldAndTheRestGoesOn(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	g.sh(t, `cd "$1" && echo secret >secret && chmod 600 secret && echo open >open && mkdir -m 700 closed`, dir)
	a := g.pack(t, &pb.ArchiveRequest{User: g.OtherUser, Path: []byte(dir)})
	if got := members(t, a.stream); got["open"].contents != "open\n" || got["secret"].Header != nil {
		t.Errorf("it has %q", memberNames(got))
	}
	if a.summary.FailureCount != 2 || len(a.summary.Failures) != 2 {
		t.Fatalf("summary %v, want two failures", a.summary)
	}
	for _, failure := range a.summary.Failures {
		if path := string(failure.Path); failure.Errno != "EACCES" || failure.Message == "" || path != dir+"/secret" && path != dir+"/closed" {
			t.Errorf("failure %v", failure)
		}
	}
}

func (g archiveCases) NothingToArchiveIsRefused(t *testing.T) {
	missing := g.folder(t) + "/missing"
	_, err := g.archive(within(t), &pb.ArchiveRequest{Path: []byte(missing)})
	wantRefusal(t, err, noFile(missing))
	_, err = g.archive(within(t), &pb.ArchiveRequest{Path: []byte("/dev/null")})
	wantRefusal(t, err, refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE})
	_, err = g.archive(within(t), &pb.ArchiveRequest{})
	wantRefusal(t, err, badField("path"))
	_, err = g.archive(within(t), &pb.ArchiveRequest{Path: []byte("/"), Compression: 77})
	wantRefusal(t, err, badField("compression"))
}

// A client that goes must not leave guestd reading for nobody: guestd serves on.
func (g archiveCases) ClientThatGoesEndsIt(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `truncate -s 1G "$1/large" 2>/dev/null || dd if=/dev/zero of="$1/large" bs=1 count=1 seek=1073741823 2>/dev/null`, dir)
	ctx, cancel := context.WithCancel(within(t))
	stream, err := g.file.Archive(ctx, &pb.ArchiveRequest{Path: []byte(dir)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	for err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, err, codes.Canceled)
	g.stat(t, dir)
}
