package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc/codes"

	pb "guestd.internal/proto/guestd/v1"
)

// writeFile sends a file in pieces of at most a mebibyte and commits it.
func (g *guest) writeFile(ctx context.Context, header *pb.WriteHeader, data []byte) (*pb.WriteResponse, error) {
	stream, err := g.beginWrite(ctx, header)
	if err != nil {
		return nil, err
	}
	if err := sendData(stream, data); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream.CloseAndRecv()
}

// writeStream is the request side of a Write.
type writeStream interface {
	Send(*pb.WriteRequest) error
	CloseAndRecv() (*pb.WriteResponse, error)
}

// beginWrite opens a Write and sends its header.
func (g *guest) beginWrite(ctx context.Context, header *pb.WriteHeader) (writeStream, error) {
	stream, err := g.file.Write(ctx)
	if err != nil {
		return nil, err
	}
	err = stream.Send(&pb.WriteRequest{Request: &pb.WriteRequest_Header{Header: header}})
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream, nil
}

// sendData sends contents; io.EOF means that the call has ended already.
func sendData(stream writeStream, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), maxPayload)
		if err := stream.Send(&pb.WriteRequest{Request: &pb.WriteRequest_Data{Data: data[:n]}}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// write is writeFile that must succeed.
func (g *guest) write(t *testing.T, header *pb.WriteHeader, data []byte) *pb.WriteResponse {
	t.Helper()
	response, err := g.writeFile(within(t), header, data)
	if err != nil {
		t.Fatalf("writing %q: %v", header.Path, err)
	}
	if response.Info == nil {
		t.Fatalf("writing %q: the answer does not describe the file", header.Path)
	}
	return response
}

// put writes a file as whoever owns the case's folder.
func (g *guest) put(t *testing.T, path, contents string) {
	t.Helper()
	g.write(t, &pb.WriteHeader{Path: []byte(path)}, []byte(contents))
}

// readFile reads a file's head and contents, and holds the answers against the
// contract.
func (g *guest) readFile(ctx context.Context, request *pb.ReadRequest) (*pb.FileInfo, []byte, error) {
	stream, err := g.file.Read(ctx, request)
	if err != nil {
		return nil, nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	info := first.GetHeader().GetInfo()
	if info == nil {
		return nil, nil, fmt.Errorf("the first answer is no header: %v", first)
	}
	var data []byte
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return info, data, nil
		}
		if err != nil {
			return info, data, err
		}
		piece := response.GetData()
		if n := len(piece.GetData()); n == 0 || n > maxPayload || piece.Offset != request.Offset+uint64(len(data)) {
			return info, data, fmt.Errorf("a piece of %d bytes at %d, want 1 to %d at %d", n, piece.GetOffset(), maxPayload, request.Offset+uint64(len(data)))
		}
		data = append(data, piece.Data...)
	}
}

// contents reads a whole file, as a user that may read everything.
func (g *guest) contents(t *testing.T, path string) []byte {
	t.Helper()
	_, data, err := g.readFile(within(t), &pb.ReadRequest{User: g.owner(), Path: []byte(path)})
	if err != nil {
		t.Fatalf("reading %q: %v", path, err)
	}
	return data
}

// wantContents fails the case unless the file has the contents.
func (g *guest) wantContents(t *testing.T, path, want string) {
	t.Helper()
	wantText(t, path, string(g.contents(t, path)), want)
}

// stat describes a file that must be there.
func (g *guest) stat(t *testing.T, path string) *pb.FileInfo {
	t.Helper()
	response, err := g.file.Stat(within(t), &pb.StatRequest{User: g.owner(), Path: []byte(path)})
	if err != nil {
		t.Fatalf("Stat %q: %v", path, err)
	}
	if response.Info == nil {
		t.Fatalf("Stat %q describes nothing", path)
	}
	return response.Info
}

// listing is what a List answered.
type listing struct {
	directory *pb.FileInfo
	entries   map[string]*pb.FileInfo // by path
	order     []string
	failures  []*pb.FileFailure
}

// list reads a directory.
func (g *guest) list(ctx context.Context, request *pb.FileServiceListRequest) (*listing, error) {
	stream, err := g.file.List(ctx, request)
	if err != nil {
		return nil, err
	}
	l := &listing{entries: make(map[string]*pb.FileInfo)}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) && l.directory != nil {
			return l, nil
		}
		if err != nil {
			return l, err
		}
		if err := l.take(response); err != nil {
			return l, err
		}
	}
}

func (l *listing) take(response *pb.FileServiceListResponse) error {
	if l.directory == nil {
		l.directory = response.GetDirectory()
		if l.directory == nil {
			return fmt.Errorf("the first answer is no directory: %v", response)
		}
		return nil
	}
	switch e := response.GetEvent().(type) {
	case *pb.FileServiceListResponse_Entries:
		if len(e.Entries.Entries) == 0 {
			return errors.New("an empty batch of entries")
		}
		for _, entry := range e.Entries.Entries {
			path := string(entry.Path)
			if l.entries[path] != nil {
				return fmt.Errorf("%q is listed twice", path)
			}
			l.entries[path] = entry
			l.order = append(l.order, path)
		}
	case *pb.FileServiceListResponse_Failure:
		l.failures = append(l.failures, e.Failure)
	default:
		return fmt.Errorf("an answer that does not belong here: %v", response)
	}
	return nil
}

// The refusals that many file calls share.
func noFile(path string) refusal {
	return refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_FILE_NOT_FOUND, path: path, errno: "ENOENT"}
}

func notADirectory() refusal {
	return refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY}
}

func isADirectory() refusal {
	return refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_IS_A_DIRECTORY}
}

func fileExists() refusal {
	return refusal{code: codes.AlreadyExists, reason: pb.ErrorReason_ERROR_REASON_FILE_EXISTS}
}

func denied() refusal {
	return refusal{code: codes.PermissionDenied, reason: pb.ErrorReason_ERROR_REASON_PERMISSION_DENIED}
}
