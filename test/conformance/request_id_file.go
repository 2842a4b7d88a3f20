package conformance

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "guestd.internal/proto/guestd/v1"
)

// addFileCalls adds the calls that change files, each with files of its own.
func (g requestIDCases) addFileCalls(t *testing.T, calls map[string]repeatable) {
	t.Helper()
	dir := g.folder(t)
	for _, name := range []string{"removed", "moved", "original", "attributes"} {
		g.put(t, dir+"/"+name, name)
	}
	at := func(name string) []byte { return []byte(dir + "/" + name) }
	g.addUploads(t, calls, at)
	calls[pb.FileService_MakeDir_FullMethodName] = func(ctx context.Context, id string, other bool) (string, error) {
		return encoded(g.file.MakeDir(ctx, &pb.MakeDirRequest{RequestId: id, Path: at("made"), Parents: other}))
	}
	calls[pb.FileService_Remove_FullMethodName] = func(ctx context.Context, id string, other bool) (string, error) {
		return encoded(g.file.Remove(ctx, &pb.RemoveRequest{RequestId: id, Path: at("removed"), Recursive: other}))
	}
	calls[pb.FileService_Move_FullMethodName] = func(ctx context.Context, id string, other bool) (string, error) {
		request := &pb.MoveRequest{RequestId: id, Source: at("moved"), Destination: at("moved-to"), NoReplace: other}
		return encoded(g.file.Move(ctx, request))
	}
	calls[pb.FileService_Copy_FullMethodName] = func(ctx context.Context, id string, other bool) (string, error) {
		request := &pb.CopyRequest{RequestId: id, Source: at("original"), Destination: at("copy"), NoReplace: true, Preserve: other}
		return encoded(g.file.Copy(ctx, request))
	}
	calls[pb.FileService_Link_FullMethodName] = func(ctx context.Context, id string, other bool) (string, error) {
		return encoded(g.file.Link(ctx, &pb.LinkRequest{RequestId: id, Target: []byte("x"), Path: at("link"), Replace: other}))
	}
	calls[pb.FileService_SetAttributes_FullMethodName] = func(ctx context.Context, id string, other bool) (string, error) {
		request := &pb.SetAttributesRequest{RequestId: id, Path: at("attributes"), Mode: proto.Uint32(0o600), NoFollow: other}
		return encoded(g.file.SetAttributes(ctx, request)) // each has its own time of change
	}
}

// addUploads adds the calls whose requests are streams.
func (g requestIDCases) addUploads(t *testing.T, calls map[string]repeatable, at func(name string) []byte) {
	t.Helper()
	archive := craft(t, regular("a", "x"))
	calls[pb.FileService_Write_FullMethodName] = func(ctx context.Context, id string, other bool) (string, error) {
		header := &pb.WriteHeader{RequestId: id, Path: at("written"), Exclusive: true, Fsync: other}
		return encoded(g.writeFile(ctx, header, pattern(g.amount(3<<20))))
	}
	calls[pb.FileService_Extract_FullMethodName] = func(ctx context.Context, id string, other bool) (string, error) {
		header := &pb.ExtractHeader{RequestId: id, Path: at("unpacked"), NoReplace: true}
		if other {
			header.MaxEntries = proto.Uint64(9)
		}
		return encoded(g.extract(ctx, header, archive))
	}
}
