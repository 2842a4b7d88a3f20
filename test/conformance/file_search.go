package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "guestd.internal/proto/guestd/v1"
)

// searchCases are the contract of FileService.Search.
type searchCases struct{ *guest }

// findings is what a Search answered.
type findings struct {
	root    *pb.FileInfo
	matches []*pb.SearchMatch
	summary *pb.SearchSummary
}

// search searches, and holds the answers against the contract.
func (g *guest) search(ctx context.Context, request *pb.SearchRequest) (*findings, error) {
	stream, err := g.file.Search(ctx, request)
	if err != nil {
		return nil, err
	}
	f := &findings{}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) && f.summary != nil {
			return f, nil
		}
		if err != nil {
			return f, err
		}
		if err := f.take(response); err != nil {
			return f, err
		}
	}
}

func (f *findings) take(response *pb.SearchResponse) error {
	switch e := response.GetEvent().(type) {
	case *pb.SearchResponse_Header:
		if f.root != nil {
			return errors.New("a second header")
		}
		f.root = e.Header.GetRoot()
	case *pb.SearchResponse_Match:
		f.matches = append(f.matches, e.Match)
	case *pb.SearchResponse_Summary:
		f.summary = e.Summary
		if f.summary.Matches != uint64(len(f.matches)) {
			return fmt.Errorf("the summary tells %d matches, and %d came", f.summary.Matches, len(f.matches))
		}
		return nil
	default:
		return fmt.Errorf("an answer that does not belong here: %v", response)
	}
	if f.root == nil || f.summary != nil {
		return fmt.Errorf("%v before the header or behind the summary", response)
	}
	return nil
}

// text is the matches, with blanks between them: each one's path below dir, and of a line its number,
// its text, what of it matches in brackets, and the numbers of its context.
func (f *findings) text(dir string) string {
	var all []string
	for _, m := range f.matches {
		text := strings.TrimPrefix(string(m.Path), dir+"/")
		if m.Binary {
			text += "(binary)"
		}
		if line := m.Line; line != nil {
			text += fmt.Sprintf(":%d:%s", line.Number, line.Text)
			for _, r := range m.Ranges {
				text += "[" + string(line.Text[r.Start:r.End]) + "]"
			}
		}
		for _, line := range m.Before {
			text += fmt.Sprintf("-%d", line.Number)
		}
		for _, line := range m.After {
			text += fmt.Sprintf("+%d", line.Number)
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// want fails the case unless the search finds that, and all could be read.
func (g searchCases) want(t *testing.T, dir string, request *pb.SearchRequest, want string) *findings {
	t.Helper()
	if request.Path == nil {
		request.Path = []byte(dir)
	}
	f, err := g.search(within(t), request)
	if err != nil {
		t.Fatalf("Search: %v", err)
	}
	wantText(t, "what is found", f.text(dir), want)
	if f.summary.FailureCount != 0 {
		t.Errorf("failures %v, want none", f.summary)
	}
	return f
}

func (g searchCases) refuse(t *testing.T, request *pb.SearchRequest, want refusal) {
	t.Helper()
	_, err := g.search(within(t), request)
	wantRefusal(t, err, want)
}

// lines asks for lines that match.
func lines(pattern string) *pb.SearchRequest { return &pb.SearchRequest{Pattern: &pattern} }

func globs(texts ...string) [][]byte {
	var out [][]byte
	for _, text := range texts {
		out = append(out, []byte(text))
	}
	return out
}

func (g searchCases) NamesAreFoundByGlobs(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -p a/b .h && : >a/x.go && : >a/b/y.go && : >.h/z.go && : >top.txt && ln -s a link && mkfifo fifo`, dir)
	all := g.want(t, dir, &pb.SearchRequest{}, ".h .h/z.go a a/b a/b/y.go a/x.go fifo link top.txt")
	if all.root.GetType() != pb.FileType_FILE_TYPE_DIRECTORY || string(all.root.GetPath()) != dir || all.matches[7].Type != pb.FileType_FILE_TYPE_SYMLINK {
		t.Errorf("root %v, link %v", all.root, all.matches[7])
	}
	g.want(t, dir, &pb.SearchRequest{Include: globs("*.go")}, ".h/z.go a/b/y.go a/x.go")
	g.want(t, dir, &pb.SearchRequest{Include: globs("a/**/*.go", "fifo")}, "a/b/y.go a/x.go fifo")
	g.want(t, dir, &pb.SearchRequest{Exclude: globs("b", "*.txt"), SkipHidden: true}, "a a/x.go fifo link")
	limited := g.want(t, dir, &pb.SearchRequest{MaxMatches: 2}, ".h .h/z.go")
	if !limited.summary.LimitReached || all.summary.LimitReached {
		t.Error("the limit is not told, or without one")
	}
}

func (g searchCases) LinesAreFoundWithNumbersAndPlaces(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir sub && printf 'one\ntwo\r\nThree two two' >a && printf 'two\n' >sub/b && ln -s a link && mkfifo fifo`, dir)
	f := g.want(t, dir, lines("two"), "a:2:two[two] a:3:Three two two[two][two] sub/b:1:two[two]")
	if f.summary.Files != 2 {
		t.Errorf("%d files were looked at, want the 2 regular ones", f.summary.Files)
	}
	ignore := lines("^three")
	ignore.IgnoreCase = true
	g.want(t, dir, ignore, "a:3:Three two two[Three]")
	g.want(t, dir, lines("four"), "")
	one := lines("one|^$")
	one.Path = []byte(dir + "/link")
	f = g.want(t, dir, one, "link:1:one[one]")
	if string(f.root.GetPath()) != dir+"/link" {
		t.Errorf("the root is %v", f.root)
	}
}

func (g searchCases) LinesThatDoNotMatchAreFoundOnRequest(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && printf 'one\ntwo\nthree\n' >a && printf '\0two' >binary`, dir)
	request := lines("two")
	request.Invert, request.Binary, request.BeforeLines = true, true, 1
	g.want(t, dir, request, "a:1:one a:3:three-2")
}

func (g searchCases) LongLinesAreSearchedToTheirEnd(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && head -c 2500000 /dev/zero | tr '\0' x >long && printf ' two\nthree' >>long`, dir)
	for _, pattern := range []string{"two", "^x.* two$"} {
		request := lines(pattern)
		request.Path = []byte(dir)
		f, err := g.search(within(t), request)
		if err != nil || len(f.matches) != 1 {
			t.Fatalf("%q: %+v, %v", pattern, f, err)
		}
		if line := f.matches[0].GetLine(); line.GetNumber() != 1 || !line.GetTruncated() || len(line.GetText()) > 64<<10 {
			t.Errorf("%q: line %d with %d bytes, truncated %v", pattern, line.GetNumber(), len(line.GetText()), line.GetTruncated())
		}
	}
}

func (g searchCases) EachLineIsToldOnce(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `printf '1\n2\nx\n4\nx\nx\n7\n8\n9\n10\nx\n' >"$1/file"`, dir)
	request := lines("x")
	request.BeforeLines, request.AfterLines = 2, 1
	g.want(t, dir, request, "file:3:x[x]-1-2+4 file:5:x[x] file:6:x[x]+7 file:11:x[x]-9-10")
	request.MaxMatchesPerFile = 1
	g.want(t, dir, request, "file:3:x[x]-1-2+4")
	request.MaxMatches, request.MaxMatchesPerFile = 3, 0
	if f := g.want(t, dir, request, "file:3:x[x]-1-2+4 file:5:x[x] file:6:x[x]+7"); !f.summary.LimitReached {
		t.Error("the limit is not told")
	}
}

func (g searchCases) BinaryAndLargeFilesAreLeftOutOnRequest(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && printf '\0two\ntwo\n' >binary && printf 'two\n' >small && printf 'two\n\n' >large`, dir)
	g.want(t, dir, lines("two"), "large:1:two[two] small:1:two[two]")
	request := lines("two")
	request.Binary, request.MaxFileBytes = true, proto.Uint64(4)
	g.want(t, dir, request, "small:1:two[two]")
	request.MaxFileBytes = nil
	g.want(t, dir, request, "binary(binary) large:1:two[two] small:1:two[two]")
}

func (g searchCases) GitignoreIsRespectedOnRequest(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -p .git out sub && echo out/ >.gitignore && echo '!kept.log' >sub/.gitignore && echo '*.log' >>.gitignore &&
		: >.git/x && : >out/x && : >a.log && : >sub/b.log && : >sub/kept.log`, dir)
	request := &pb.SearchRequest{RespectGitignore: true, SkipHidden: true}
	g.want(t, dir, request, "sub sub/kept.log")
	// Those above the root count too, within the work tree.
	g.want(t, dir, &pb.SearchRequest{RespectGitignore: true, SkipHidden: true, Path: []byte(dir + "/sub")}, "sub/kept.log")
	g.want(t, dir, &pb.SearchRequest{SkipHidden: true}, "a.log out out/x sub sub/b.log sub/kept.log")
}

func (g searchCases) NamesAndLinesNeedNotBeText(t *testing.T) {
	dir := g.folder(t)
	name := "\xff\x01\n("
	g.sh(t, `printf 'a\377two\n' >"$1/$2"`, dir, name)
	g.want(t, dir, lines("two"), name+":1:a\xfftwo[two]")
}

func (g searchCases) LongLinesAreCut(t *testing.T) {
	dir := g.folder(t)
	g.put(t, dir+"/file", "two"+strings.Repeat("x", 1<<20)+"\nnext\n")
	request := lines("two|next")
	request.Path = []byte(dir)
	f, err := g.search(within(t), request)
	if err != nil || len(f.matches) != 2 {
		t.Fatalf("Search: %v, %v", f, err)
	}
	if line := f.matches[0].Line; len(line.Text) != 64<<10 || !line.Truncated || f.matches[1].Line.Truncated {
		t.Errorf("a line of %d bytes, truncated %t, want 64 KiB", len(line.Text), line.Truncated)
	}
}

func (g searchCases) MalformedRequestsAreRefused(t *testing.T) {
	dir := []byte(g.folder(t))
	for field, request := range map[string]*pb.SearchRequest{
		"pattern":      lines("("),
		"include":      {Include: globs("[")},
		"exclude":      {Exclude: globs("")},
		"before_lines": {BeforeLines: 101},
		"after_lines":  {AfterLines: 1 << 31},
	} {
		request.Path = dir
		t.Run(field, func(t *testing.T) { g.refuse(t, request, badField(field)) })
	}
}

func (g searchCases) WhatCannotBeSearchedIsTold(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `mkfifo "$1/fifo"`, dir)
	g.refuse(t, &pb.SearchRequest{Path: []byte(dir + "/missing")}, noFile(dir+"/missing"))
	fifo := lines("x")
	fifo.Path = []byte(dir + "/fifo") // nobody writes to it: it is not to be waited for
	g.refuse(t, fifo, refusal{code: codes.FailedPrecondition})
}

func (g searchCases) GuestsPermissionsDecide(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -m 700 closed && echo two >closed/x && echo two >open && echo two >secret && chmod 600 secret`, dir)
	g.shAs(t, g.OtherUser, `ln -s closed "$1/door" && ln -s closed/x "$1/link"`, dir)
	request := lines("two")
	request.User, request.Path = g.OtherUser, []byte(dir)
	f, err := g.search(within(t), request)
	if err != nil {
		t.Fatalf("Search: %v", err)
	}
	wantText(t, "what is found", f.text(dir), "open:1:two[two]")
	if f.summary.FailureCount != 2 || len(f.summary.Failures) != 2 {
		t.Fatalf("failures %v, want 2", f.summary)
	}
	for i, name := range []string{"/closed", "/secret"} {
		if failure := f.summary.Failures[i]; string(failure.Path) != dir+name || failure.Errno != "EACCES" || failure.Message == "" {
			t.Errorf("failure %v, want EACCES of %s", failure, name)
		}
	}
	for _, name := range []string{"/door", "/link", "/door/x"} {
		request.Path = []byte(dir + name)
		g.refuse(t, request, denied())
	}
}

func (g searchCases) CancelledSearchEndsAndLeavesTheFileAlone(t *testing.T) {
	dir := g.folder(t)
	// A terabyte of nothing: whoever goes on reading it is not done with it when the case's time is over.
	g.sh(t, `echo two >"$1/a" && dd of="$1/b" bs=1 count=0 seek=1099511627776 2>/dev/null`, dir)
	ctx, cancel := context.WithCancelCause(within(t))
	request := lines("two")
	request.Path, request.Binary = []byte(dir), true
	stream, err := g.file.Search(ctx, request)
	if err != nil {
		t.Fatalf("Search: %v", err)
	}
	for range 2 { // the header and the first match come though the search goes on
		if _, err := stream.Recv(); err != nil {
			t.Fatalf("Search: %v", err)
		}
	}
	cancel(errCallEnded)
	_, err = stream.Recv()
	wantCode(t, err, codes.Canceled)
	// Where nobody may see guestd's files this is true in any case.
	const readers = `ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c -F -- "-> $1/b" || :`
	eventually(t, "nobody has the large file open", func() bool { return g.ownerSh(t, readers, dir) == "0" })
}
