package client

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/proto"

	"guestd.internal/client/hosttree"
	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

func TestArchiveAndExtract(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	ctx, dir := t.Context(), t.TempDir()
	from := filepath.Join(dir, "from")
	for _, err := range []error{
		os.MkdirAll(from+"/sub", 0o755),
		os.WriteFile(from+"/sub/large.txt", bytes.Repeat([]byte("large"), 200_000), 0o640),
		os.WriteFile(from+"/other", []byte("other"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, compression := range []Compression{AutoCompression, NoCompression, Gzip, Zstd} {
		r, err := c.Archive(ctx, from, &ArchiveOptions{Compression: compression, Include: []string{"*.txt"}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Root().Path != from || !r.Root().IsDir() || r.Summary() != nil {
			t.Errorf("the root is %+v, the summary %+v", r.Root(), r.Summary())
		}
		stream, err := io.ReadAll(iotest.OneByteReader(io.LimitReader(r, 100)))
		if err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		stream = append(stream, rest...)
		packed := r.Summary()
		r.Close()
		w, err := c.Extract(ctx, filepath.Join(dir, "to", string(rune('a'+compression))), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := w.Write(stream); n != len(stream) || err != nil {
			t.Errorf("%d bytes were sent, %v", n, err)
		}
		unpacked, err := w.Commit()
		if err != nil || packed.Entries != 3 || packed.Bytes != 1_000_000 || unpacked.Entries != 3 || unpacked.Bytes != packed.Bytes {
			t.Errorf("packed %+v, unpacked %+v, %v", packed, unpacked, err)
		}
		w.Abort() // does nothing
		if _, err := w.Write(stream); err == nil {
			t.Error("it can be written to after the commit")
		}
	}
}

// TestHostTreeThroughAGuest carries a tree into a guest and back.
func TestHostTreeThroughAGuest(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	ctx, dir := t.Context(), t.TempDir()
	from, there, back := dir+"/from", dir+"/there", dir+"/back"
	if err := os.MkdirAll(from+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(from+"/sub/file", []byte("contents"), 0o640); err != nil {
		t.Fatal(err)
	}
	w, err := c.Extract(ctx, there, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if _, err := hosttree.Pack(ctx, w, from, hosttree.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	r, err := c.Archive(ctx, there, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := hosttree.Unpack(ctx, r, back, hosttree.Options{}); err != nil {
		t.Fatal(err)
	}
	if r.Summary() == nil {
		t.Error("unpacking did not read to the end")
	}
	if got, err := os.ReadFile(back + "/sub/file"); err != nil || string(got) != "contents" {
		t.Errorf("back comes %q, %v", got, err)
	}
}

func TestArchiveAndExtractErrors(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	ctx, dir := t.Context(), t.TempDir()
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := tar.NewWriter(&out).WriteHeader(&tar.Header{Name: "file", Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	unended := out.Bytes()
	whole := append(bytes.Clone(unended), make([]byte, 1024)...)
	archive := func(path string, o *ArchiveOptions) error {
		_, err := c.Archive(ctx, path, o)
		return err
	}
	extract := func(path string, stream []byte, o *ExtractOptions) error {
		w, err := c.Extract(ctx, path, o)
		if err != nil {
			return err
		}
		defer w.Abort()
		if _, err := w.Write(stream); err != nil {
			return err
		}
		_, err = w.Commit()
		return err
	}
	one := uint64(0)
	for name, c := range map[string]struct{ err, want error }{
		"archive nothing":      {archive(dir+"/nothing", nil), fs.ErrNotExist},
		"archive as nobody":    {archive(dir, &ArchiveOptions{User: "no-such-user"}), ErrUserNotFound},
		"a bad glob":           {archive(dir, &ArchiveOptions{Include: []string{"["}}), ErrInvalid},
		"a bad compression":    {archive(dir, &ArchiveOptions{Compression: 9}), ErrInvalid},
		"extract into a file":  {extract(dir+"/file", whole, nil), syscall.ENOTDIR},
		"extract half":         {extract(dir, unended, nil), ErrArchive},
		"extract without":      {extract(dir, whole, &ExtractOptions{NoReplace: true}), fs.ErrExist},
		"a user of no text":    {extract(dir, whole, &ExtractOptions{User: "\xff"}), ErrInvalid},
		"more than is allowed": {extract(dir, whole, &ExtractOptions{MaxEntries: &one}), nil},
	} {
		if c.err == nil || c.want != nil && !errors.Is(c.err, c.want) {
			t.Errorf("%s: got %v, want %v", name, c.err, c.want)
		}
	}
	// A stream without an end is refused while it is sent.
	w, err := c.Extract(ctx, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if _, err := io.Copy(w, strings.NewReader(strings.Repeat("no archive ", 10<<20))); !errors.Is(err, ErrArchive) {
		t.Errorf("no archive gives %v", err)
	}
}

func TestArchiveReaderDistrustsGuestd(t *testing.T) {
	header := &guestdv1.ArchiveResponse{Event: &guestdv1.ArchiveResponse_Header{Header: &guestdv1.ArchiveHeader{Root: &guestdv1.FileInfo{}}}}
	data := func(offset uint64) *guestdv1.ArchiveResponse {
		return &guestdv1.ArchiveResponse{Event: &guestdv1.ArchiveResponse_Data{Data: &guestdv1.FileData{Offset: offset, Data: []byte("abc")}}}
	}
	for name, c := range map[string]struct {
		events []*guestdv1.ArchiveResponse
		want   string
	}{
		"no header":   {[]*guestdv1.ArchiveResponse{data(0)}, "instead of a header"},
		"a gap":       {[]*guestdv1.ArchiveResponse{header, {}, data(0), data(4)}, "from byte 4 on where 3 was due"},
		"no summary":  {[]*guestdv1.ArchiveResponse{header, data(0)}, "without its summary"},
		"header only": {[]*guestdv1.ArchiveResponse{header}, "without its summary"},
	} {
		r := newArchiveReader()
		r.ctx, r.cancel, r.stream = t.Context(), func(error) {}, &cannedArchive{events: c.events}
		err := r.readHeader()
		if err == nil {
			_, err = io.ReadAll(r)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || r.Summary() != nil {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// cannedArchive is a stream of prepared answers.
type cannedArchive struct {
	guestdv1.FileService_ArchiveClient
	events []*guestdv1.ArchiveResponse
}

// RecvMsg implements grpc.ClientStream, for a view and without lending anything.
func (c *cannedArchive) RecvMsg(into any) error {
	event, err := c.Recv()
	if err == nil {
		m := into.(*wire.View[*guestdv1.ArchiveResponse]).Message()
		proto.Reset(m)
		proto.Merge(m, event)
	}
	return err
}

func (c *cannedArchive) Recv() (*guestdv1.ArchiveResponse, error) {
	if len(c.events) == 0 {
		return nil, io.EOF
	}
	event := c.events[0]
	c.events = c.events[1:]
	return event, nil
}
