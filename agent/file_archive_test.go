package agent

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// archiveAll reads a whole archive, and holds the order of the answers against
// the contract.
func archiveAll(ctx context.Context, t *testing.T, files guestdv1.FileServiceClient, req *guestdv1.ArchiveRequest) (*guestdv1.FileInfo, []byte, *guestdv1.TreeSummary) {
	t.Helper()
	stream, err := files.Archive(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	var root *guestdv1.FileInfo
	var data []byte
	var summary *guestdv1.TreeSummary
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) && summary != nil {
			return root, data, summary
		}
		if err != nil || summary != nil {
			t.Fatalf("%v after the summary %v, %v", m, summary, err)
		}
		switch e := m.GetEvent().(type) {
		case *guestdv1.ArchiveResponse_Header:
			if root = e.Header.GetRoot(); root == nil || data != nil {
				t.Fatalf("header %v", m)
			}
		case *guestdv1.ArchiveResponse_Data:
			if n := len(e.Data.GetData()); root == nil || n == 0 || n > archivePiece || e.Data.GetOffset() != uint64(len(data)) {
				t.Fatalf("%d bytes at %d after %d", n, e.Data.GetOffset(), len(data))
			}
			data = append(data, e.Data.GetData()...)
		case *guestdv1.ArchiveResponse_Summary:
			summary = e.Summary
		}
	}
}

// extractAll sends an archive in small pieces.
func extractAll(ctx context.Context, t *testing.T, files guestdv1.FileServiceClient, header *guestdv1.ExtractHeader, data []byte) (*guestdv1.TreeSummary, error) {
	t.Helper()
	stream, err := files.Extract(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&guestdv1.ExtractRequest{Request: &guestdv1.ExtractRequest_Header{Header: header}})
	for len(data) > 0 && err == nil {
		n := min(len(data), 1000)
		err = stream.Send(&guestdv1.ExtractRequest{Request: &guestdv1.ExtractRequest_Data{Data: data[:n]}})
		data = data[n:]
	}
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	answer, err := stream.CloseAndRecv()
	return answer.GetSummary(), err
}

func TestArchiveAndExtractOverTheAPI(t *testing.T) {
	files, ctx := startAgent(t, Config{}).fileCalls(), within(t)
	dir := t.TempDir()
	writeFiles(t, dir, "from/a", "from/sub/b.txt", "from/skip/c.txt")
	large := bytes.Repeat([]byte("large"), archivePiece)
	if err := os.WriteFile(dir+"/from/large.txt", large, 0o640); err != nil {
		t.Fatal(err)
	}
	for _, compression := range []guestdv1.Compression{
		guestdv1.Compression_COMPRESSION_UNSPECIFIED, guestdv1.Compression_COMPRESSION_NONE,
		guestdv1.Compression_COMPRESSION_GZIP, guestdv1.Compression_COMPRESSION_ZSTD,
	} {
		root, data, packed := archiveAll(ctx, t, files, &guestdv1.ArchiveRequest{
			User: self(), Path: []byte(dir + "/from"), Compression: compression,
			Include: [][]byte{[]byte("*.txt")}, Exclude: [][]byte{[]byte("skip")},
		})
		if string(root.GetPath()) != dir+"/from" || packed.GetEntries() != 4 || packed.GetFailureCount() != 0 {
			t.Errorf("%v: root %v, summary %v", compression, root, packed)
		}
		to := dir + "/" + compression.String()
		unpacked, err := extractAll(ctx, t, files, &guestdv1.ExtractHeader{User: self(), Path: []byte(to)}, data)
		if err != nil || unpacked.GetEntries() != packed.GetEntries() || unpacked.GetBytes() != packed.GetBytes() {
			t.Errorf("%v: packed %v, unpacked %v, %v", compression, packed, unpacked, err)
		}
		if got, err := os.ReadFile(to + "/large.txt"); err != nil || !bytes.Equal(got, large) {
			t.Errorf("%v: %d bytes, %v", compression, len(got), err)
		}
		if _, err := os.Stat(to + "/a"); err == nil {
			t.Errorf("%v: what was not to be included is there", compression)
		}
	}
}

// tarOf is an archive of files with their own names as contents.
func tarOf(t *testing.T, names ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(name))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestExtractTellsWhatItLeftOut(t *testing.T) {
	files, ctx := startAgent(t, Config{}).fileCalls(), within(t)
	dir := t.TempDir()
	summary, err := extractAll(ctx, t, files, &guestdv1.ExtractHeader{User: self(), Path: []byte(dir + "/out")}, tarOf(t, "../evil", "good"))
	if err != nil || summary.GetEntries() != 1 || summary.GetBytes() != 4 || summary.GetFailureCount() != 1 {
		t.Fatalf("%v, %v", summary, err)
	}
	failure := summary.GetFailures()[0]
	if string(failure.GetPath()) != dir+"/out/../evil" || !strings.Contains(failure.GetMessage(), "leads out") || strings.Contains(failure.GetMessage(), "internal") ||
		failure.GetReason() != guestdv1.ErrorReason_ERROR_REASON_OUTSIDE_DIRECTORY {
		t.Errorf("the failure is %v", failure)
	}
}

func TestExtractWithARequestID(t *testing.T) {
	files, ctx := startAgent(t, Config{}).fileCalls(), within(t)
	dir := t.TempDir()
	header := &guestdv1.ExtractHeader{RequestId: "one", User: self(), Path: []byte(dir), NoReplace: true}
	for range 2 { // the second would find the file there
		summary, err := extractAll(ctx, t, files, header, tarOf(t, "a"))
		if err != nil || summary.GetEntries() != 1 {
			t.Errorf("%v, %v", summary, err)
		}
	}
	_, err := extractAll(ctx, t, files, &guestdv1.ExtractHeader{RequestId: "one", User: self(), Path: []byte(dir + "/other")}, nil)
	wantCode(t, err, codes.AlreadyExists, "REQUEST_ID_REUSED")
	header.RequestId = ""
	_, err = extractAll(ctx, t, files, header, tarOf(t, "a"))
	wantCode(t, err, codes.AlreadyExists, "FILE_EXISTS")
}

func TestArchiveAndExtractErrorsOverTheAPI(t *testing.T) {
	files, ctx := startAgent(t, Config{}).fileCalls(), within(t)
	dir := t.TempDir()
	whole := tarOf(t, "a", "b")
	one := uint64(1)
	at := func(change func(*guestdv1.ExtractHeader)) *guestdv1.ExtractHeader {
		header := &guestdv1.ExtractHeader{User: self(), Path: []byte(dir + "/out")}
		change(header)
		return header
	}
	for name, c := range map[string]struct {
		header *guestdv1.ExtractHeader
		data   []byte
		code   codes.Code
		reason string
	}{
		"no header":           {nil, nil, codes.InvalidArgument, "INVALID_FIELD"},
		"no path":             {at(func(h *guestdv1.ExtractHeader) { h.Path = nil }), whole, codes.InvalidArgument, "INVALID_FIELD"},
		"unknown compression": {at(func(h *guestdv1.ExtractHeader) { h.Compression = 77 }), whole, codes.InvalidArgument, "INVALID_FIELD"},
		"truncated":           {at(func(*guestdv1.ExtractHeader) {}), whole[:700], codes.DataLoss, "ARCHIVE_DAMAGED"},
		"too many bytes":      {at(func(h *guestdv1.ExtractHeader) { h.MaxBytes = &one }), whole, codes.ResourceExhausted, "LIMIT_REACHED"},
		"too many entries":    {at(func(h *guestdv1.ExtractHeader) { h.MaxEntries = &one }), whole, codes.ResourceExhausted, "LIMIT_REACHED"},
	} {
		_, err := extractAll(ctx, t, files, c.header, c.data)
		if err == nil {
			t.Errorf("%s: it succeeded", name)
			continue
		}
		wantCode(t, err, c.code, c.reason)
	}
	for _, req := range []*guestdv1.ArchiveRequest{
		{User: self()}, {User: self(), Path: []byte(dir), Compression: 77}, {User: self(), Path: []byte(dir), Include: [][]byte{[]byte("[")}},
	} {
		stream, err := files.Archive(ctx, req)
		if err == nil {
			_, err = stream.Recv()
		}
		wantCode(t, err, codes.InvalidArgument, "INVALID_FIELD")
	}
}
