package conformance

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "guestd.internal/proto/guestd/v1"
)

// extractCases are the contract of FileService.Extract.
type extractCases struct{ *guest }

// craft makes a tar stream of entries.
func craft(t *testing.T, list ...member) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range list {
		m.Size = int64(len(m.contents))
		if err := w.WriteHeader(m.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, m.contents); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func regular(name, contents string) member {
	return member{&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, contents}
}

func linkMember(kind byte, name, target string) member {
	return member{&tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o777}, ""}
}

// extract sends a tar stream in pieces of odd sizes.
func (g *guest) extract(ctx context.Context, header *pb.ExtractHeader, stream []byte) (*pb.TreeSummary, error) {
	call, err := g.file.Extract(ctx)
	if err != nil {
		return nil, err
	}
	err = call.Send(&pb.ExtractRequest{Request: &pb.ExtractRequest_Header{Header: header}})
	for n := 1; len(stream) > 0 && err == nil; n = min(3*n, maxPayload) {
		n = min(n, len(stream))
		err = call.Send(&pb.ExtractRequest{Request: &pb.ExtractRequest_Data{Data: stream[:n]}})
		stream = stream[n:]
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	response, err := call.CloseAndRecv()
	return response.GetSummary(), err
}

// unpack is extract that must succeed.
func (g *guest) unpack(t *testing.T, header *pb.ExtractHeader, stream []byte) *pb.TreeSummary {
	t.Helper()
	summary, err := g.extract(within(t), header, stream)
	if err != nil {
		t.Fatalf("unpacking in %q: %v", header.Path, err)
	}
	return summary
}

// into is the head of an extraction to a path.
func into(path string) *pb.ExtractHeader { return &pb.ExtractHeader{Path: []byte(path)} }

func (g extractCases) ArchivedTreeComesBackAsItWas(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -p from/sub/empty && echo one >from/one && chmod 4751 from/one && ln from/one from/sub/again && ln -s ../one from/sub/link && chmod 555 from/sub/empty`, dir)
	g.put(t, dir+"/from/large", string(pattern(g.amount(2<<20))))
	for _, compression := range []pb.Compression{pb.Compression_COMPRESSION_NONE, pb.Compression_COMPRESSION_GZIP, pb.Compression_COMPRESSION_ZSTD} {
		a := g.pack(t, &pb.ArchiveRequest{Path: []byte(dir + "/from"), Compression: compression})
		to := dir + "/" + compression.String() + "/new"
		summary := g.unpack(t, into(to), a.stream) // parents are made
		if summary.Entries != a.summary.Entries || summary.Bytes != a.summary.Bytes || summary.FailureCount != 0 {
			t.Errorf("packed %v, unpacked %v", a.summary, summary)
		}
		for name, mode := range map[string]uint32{"one": 0o751, "large": 0o644, "sub/empty": 0o555, "sub": 0o755, "sub/link": 0o777} {
			from, got := g.stat(t, dir+"/from/"+name), g.stat(t, to+"/"+name)
			if got.Mode != mode || !got.ModifyTime.AsTime().Equal(from.ModifyTime.AsTime()) || got.Type != from.Type || got.Uid != from.Uid {
				t.Errorf("%s was %v, is %v", name, from, got)
			}
		}
		if g.stat(t, to+"/one").Inode != g.stat(t, to+"/sub/again").Inode {
			t.Error("the two names are two files")
		}
		wantText(t, "link", string(g.stat(t, to+"/sub/link").LinkTarget), "../one")
		g.wantContents(t, to+"/large", string(g.contents(t, dir+"/from/large")))
	}
}

func (g extractCases) NothingLandsOutside(t *testing.T) {
	const outside, noFolder = pb.ErrorReason_ERROR_REASON_OUTSIDE_DIRECTORY, pb.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY
	for name, c := range map[string]struct {
		list   []member
		reason pb.ErrorReason
	}{
		"dots":           {[]member{regular("../victim/file", "evil")}, outside},
		"dots inside":    {[]member{regular("a/../../victim/file", "evil")}, outside},
		"absolute":       {[]member{regular("VICTIM/file", "evil")}, outside},
		"through a link": {[]member{linkMember(tar.TypeSymlink, "a", "../victim"), regular("a/file", "evil")}, noFolder},
		"a link, then a folder": {[]member{linkMember(tar.TypeSymlink, "a", "../victim"),
			{&tar.Header{Typeflag: tar.TypeDir, Name: "a", Mode: 0o700}, ""}}, noFolder},
		"a hard link": {[]member{linkMember(tar.TypeLink, "a", "../victim/file"), regular("b", "x")}, outside},
	} {
		list := c.list
		t.Run(name, func(t *testing.T) {
			dir := g.folder(t)
			g.put(t, dir+"/victim/file", "old")
			before := g.stat(t, dir+"/victim")
			for i := range list {
				list[i].Name = strings.Replace(list[i].Name, "VICTIM", dir+"/victim", 1)
			}
			summary := g.unpack(t, into(dir+"/out"), craft(t, list...))
			if summary.FailureCount != 1 || len(summary.Failures) != 1 || summary.Failures[0].Message == "" || summary.Failures[0].Reason != c.reason {
				t.Errorf("summary %v, want one failure, %v", summary, c.reason)
			}
			g.wantContents(t, dir+"/victim/file", "old")
			if after := g.stat(t, dir+"/victim"); after.Mode != before.Mode || !after.ModifyTime.AsTime().Equal(before.ModifyTime.AsTime()) {
				t.Errorf("the directory outside was %v, is %v", before, after)
			}
			wantText(t, "names", g.sh(t, `ls -A "$1" "$1/victim"`, dir), g.sh(t, `printf '%s:\nout\nvictim\n\n%s/victim:\nfile\n' "$1" "$1"`, dir))
		})
	}
}

func (g extractCases) FileAndLinkAreReplacedAndNeverWrittenThrough(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir out && echo old >out/file && ln out/file hard && echo old >target && ln -s ../target out/link`, dir)
	g.unpack(t, into(dir+"/out"), craft(t, regular("file", "new"), regular("link", "new"), regular("twice", "1"), regular("twice", "2")))
	for name, want := range map[string]string{"out/file": "new", "out/link": "new", "hard": "old\n", "target": "old\n", "out/twice": "2"} {
		g.wantContents(t, dir+"/"+name, want)
	}
}

func (g extractCases) NoReplaceEndsAtTheFirstEntryThatIsThere(t *testing.T) {
	dir := g.folder(t)
	g.put(t, dir+"/b", "old")
	header := into(dir)
	header.NoReplace = true
	_, err := g.extract(within(t), header, craft(t, regular("a", "new"), regular("b", "new"), regular("c", "new")))
	wantRefusal(t, err, refusal{code: codes.AlreadyExists, reason: pb.ErrorReason_ERROR_REASON_FILE_EXISTS, path: dir + "/b", errno: "EEXIST"})
	g.wantContents(t, dir+"/a", "new")
	g.wantContents(t, dir+"/b", "old")
	if g.exists(t, dir+"/c") {
		t.Error("it went on after the entry that was there")
	}
}

func (g extractCases) LimitsAreHeldAndWhatFitsStays(t *testing.T) {
	stream := craft(t, regular("a", "12345"), regular("b", "67890"))
	nine, one, ten, two := uint64(9), uint64(1), uint64(10), uint64(2)
	limit := refusal{code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_LIMIT_REACHED}
	for _, c := range []struct {
		bytes, entries *uint64
		refused        bool
	}{{&nine, nil, true}, {nil, &one, true}, {&ten, &two, false}} {
		dir := g.folder(t)
		header := into(dir)
		header.MaxBytes, header.MaxEntries = c.bytes, c.entries
		_, err := g.extract(within(t), header, stream)
		if c.refused {
			wantRefusal(t, err, limit)
		} else if err != nil {
			t.Errorf("what just fits: %v", err)
		}
		g.wantContents(t, dir+"/a", "12345")
		if g.exists(t, dir+"/b") == c.refused {
			t.Errorf("b is there: %v", !c.refused)
		}
	}
}

func (g extractCases) IncludeAndExcludeChoose(t *testing.T) {
	dir := g.folder(t)
	header := into(dir + "/out")
	header.Include, header.Exclude = [][]byte{[]byte("*.txt")}, [][]byte{[]byte("skip")}
	summary := g.unpack(t, header, craft(t, regular("a.txt", "1"), regular("a.go", "2"), regular("sub/b.txt", "3"), regular("skip/c.txt", "4")))
	if summary.Entries != 2 || summary.Bytes != 2 || summary.FailureCount != 0 {
		t.Errorf("summary %v, want two entries of a byte each", summary)
	}
	wantText(t, "files", g.sh(t, `cd "$1" && find out -type f | sort`, dir), "out/a.txt\nout/sub/b.txt")
}

func (g extractCases) DamagedStreamIsDataLossAndWholeFilesStay(t *testing.T) {
	whole := craft(t, regular("a", "first"), regular("b", strings.Repeat("x", 5000)))
	for name, stream := range map[string][]byte{
		"empty": {}, "no archive": []byte("no archive"), "cut in contents": whole[:3000], "cut between": whole[:1024],
		"without an end": whole[:len(whole)-1024], "followed by more": append(bytes.Clone(whole), 'x'), "cut gzip": []byte("\x1f\x8b\x08\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := g.folder(t)
			_, err := g.extract(within(t), into(dir), stream)
			wantRefusal(t, err, refusal{code: codes.DataLoss, reason: pb.ErrorReason_ERROR_REASON_ARCHIVE_DAMAGED})
			for _, file := range []string{"a", "b"} {
				if g.exists(t, dir+"/"+file) {
					g.wantContents(t, dir+"/"+file, map[string]string{"a": "first", "b": strings.Repeat("x", 5000)}[file])
				}
			}
		})
	}
}

func (g extractCases) OwnersAreKeptForRootOnly(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	file := regular("file", "x")
	file.Mode, file.Uid, file.Gid = 0o6755, 54321, 12345
	header := into(dir + "/mine")
	header.User = g.OtherUser
	g.unpack(t, header, craft(t, file))
	if info := g.stat(t, dir+"/mine/file"); info.Uid == 54321 || info.Owner != g.OtherUser || info.Mode != 0o755 {
		t.Errorf("a user's is %v", info)
	}
	header = into(dir + "/kept")
	header.User, header.KeepOwners = g.owner(), true
	g.unpack(t, header, craft(t, file))
	if info := g.stat(t, dir+"/kept/file"); info.Uid != 54321 || info.Gid != 12345 || info.Mode != 0o6755 {
		t.Errorf("root's is %v", info)
	}
	header.User = g.OtherUser
	_, err := g.extract(within(t), header, craft(t, file))
	wantRefusal(t, err, badField("keep_owners"))
}

func (g extractCases) RepeatedRequestIDIsUnpackedOnce(t *testing.T) {
	dir := g.folder(t)
	header := into(dir)
	header.RequestId, header.NoReplace = fmt.Sprintf("extract-%d", time.Now().UnixNano()), true
	first := g.unpack(t, header, craft(t, regular("a", "x")))
	again := g.unpack(t, header, craft(t, regular("a", "x")))
	if again.Entries != first.Entries || again.Bytes != first.Bytes {
		t.Errorf("first %v, then %v", first, again)
	}
}

func (g extractCases) MalformedCallIsRefused(t *testing.T) {
	dir := g.folder(t)
	_, err := g.extract(within(t), into(""), nil)
	wantRefusal(t, err, badField("path"))
	header := into(dir)
	header.Compression = 77
	_, err = g.extract(within(t), header, nil)
	wantRefusal(t, err, badField("compression"))
	call, err := g.file.Extract(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := call.Send(&pb.ExtractRequest{Request: &pb.ExtractRequest_Data{Data: []byte("x")}}); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	_, err = call.CloseAndRecv()
	wantRefusal(t, err, badField("header"))
	g.put(t, dir+"/file", "x")
	_, err = g.extract(within(t), into(dir+"/file"), craft(t))
	wantRefusal(t, err, notADirectory())
}
