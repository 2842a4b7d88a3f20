package agent

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"guestd.internal/fsapi"
	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

const (
	// listBatch is how many entries one message of List carries at most, and
	// listBatchBytes about how many bytes of them.
	listBatch      = 256
	listBatchBytes = 256 << 10
)

// fileService serves guestd.v1.FileService from package fsapi.
type fileService struct {
	guestdv1.UnimplementedFileServiceServer
	files *fsapi.FS

	// What changes with a request id have answered.
	writes     *outcomes[*guestdv1.WriteResponse]
	makeDirs   *outcomes[*guestdv1.MakeDirResponse]
	removes    *outcomes[*guestdv1.RemoveResponse]
	moves      *outcomes[*guestdv1.MoveResponse]
	copies     *outcomes[*guestdv1.CopyResponse]
	links      *outcomes[*guestdv1.LinkResponse]
	attributes *outcomes[*guestdv1.SetAttributesResponse]
	extracts   *outcomes[*guestdv1.ExtractResponse]
}

func newFileService(files *fsapi.FS) *fileService {
	return &fileService{
		files:      files,
		writes:     newOutcomes[*guestdv1.WriteResponse](),
		makeDirs:   newOutcomes[*guestdv1.MakeDirResponse](),
		removes:    newOutcomes[*guestdv1.RemoveResponse](),
		moves:      newOutcomes[*guestdv1.MoveResponse](),
		copies:     newOutcomes[*guestdv1.CopyResponse](),
		links:      newOutcomes[*guestdv1.LinkResponse](),
		attributes: newOutcomes[*guestdv1.SetAttributesResponse](),
		extracts:   newExtractOutcomes(),
	}
}

// Stat implements guestdv1.FileServiceServer.
func (s *fileService) Stat(ctx context.Context, req *guestdv1.StatRequest) (*guestdv1.StatResponse, error) {
	info, err := s.files.Stat(ctx, req.GetUser(), string(req.GetPath()), req.GetFollowLinks())
	if err != nil {
		return nil, err
	}
	return &guestdv1.StatResponse{Info: fileInfo(info)}, nil
}

// List implements guestdv1.FileServiceServer.
func (s *fileService) List(req *guestdv1.FileServiceListRequest, stream guestdv1.FileService_ListServer) error {
	ctx, path := stream.Context(), string(req.GetPath())
	root, err := s.files.Stat(ctx, req.GetUser(), path, true)
	if err != nil {
		return err
	}
	batch := &listBatcher{stream: stream, root: root}
	if err := s.files.List(ctx, req.GetUser(), path, listOptions(req), batch.add); err != nil {
		return err
	}
	return batch.flush()
}

// listBatcher gathers a listing's entries into messages. The header goes out
// with the first of them, so that a folder that cannot be listed is an error
// before anything was said.
type listBatcher struct {
	stream  guestdv1.FileService_ListServer
	root    fsapi.Info
	begun   bool
	entries []*guestdv1.FileInfo
	bytes   int
}

func (b *listBatcher) add(e fsapi.Entry) error {
	if e.Err != nil {
		if e.Info.Inode != 0 { // its attributes are known: a folder that cannot be read
			b.entries = append(b.entries, fileInfo(e.Info))
		}
		if err := b.flush(); err != nil {
			return err
		}
		return b.stream.Send(&guestdv1.FileServiceListResponse{Event: &guestdv1.FileServiceListResponse_Failure{
			Failure: fileFailure(b.stream.Context(), e.Info.Path, e.Err)}})
	}
	b.entries = append(b.entries, fileInfo(e.Info))
	b.bytes += len(e.Info.Path) + len(e.Info.LinkTarget) + 64
	if len(b.entries) < listBatch && b.bytes < listBatchBytes {
		return nil
	}
	return b.flush()
}

func (b *listBatcher) flush() error {
	if !b.begun {
		b.begun = true
		err := b.stream.Send(&guestdv1.FileServiceListResponse{Event: &guestdv1.FileServiceListResponse_Directory{
			Directory: fileInfo(b.root)}})
		if err != nil {
			return err
		}
	}
	if len(b.entries) == 0 {
		return nil
	}
	entries := b.entries
	b.entries, b.bytes = nil, 0
	return b.stream.Send(&guestdv1.FileServiceListResponse{Event: &guestdv1.FileServiceListResponse_Entries{
		Entries: &guestdv1.FileEntries{Entries: entries}}})
}

// Read implements guestdv1.FileServiceServer.
func (s *fileService) Read(req *guestdv1.ReadRequest, stream guestdv1.FileService_ReadServer) error {
	h, err := s.files.OpenRead(stream.Context(), req.GetUser(), string(req.GetPath()), req.GetOffset(), req.Length)
	if err != nil {
		return err
	}
	defer h.Close()
	err = stream.Send(&guestdv1.ReadResponse{Event: &guestdv1.ReadResponse_Header{
		Header: &guestdv1.ReadHeader{Info: fileInfo(h.Info)}}})
	if err != nil {
		return err
	}
	offset := req.GetOffset()
	for {
		buf := wire.Pool.Get(wire.PieceSize)
		n, err := io.ReadFull(h, *buf)
		if n > 0 {
			if err := stream.SendMsg(fileDataPiece(offset, buf, n)); err != nil {
				return err
			}
			offset += uint64(n)
		} else {
			wire.Pool.Put(buf)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// fileDataPath leads from ReadResponse and from ArchiveResponse to FileData.
var fileDataPath = []protowire.Number{2}

// The fields of FileData.
const (
	fileDataOffset protowire.Number = 1
	fileDataData   protowire.Number = 2
)

// fileDataPiece is a ReadResponse or ArchiveResponse with the first n bytes of a buffer
// from wire.Pool, which goes back there when it is sent.
func fileDataPiece(offset uint64, buf *[]byte, n int) *wire.Piece {
	var fields []byte
	if offset > 0 { // as for every field, 0 is left out
		fields = protowire.AppendTag(make([]byte, 0, 16), fileDataOffset, protowire.VarintType)
		fields = protowire.AppendVarint(fields, offset)
	}
	return &wire.Piece{Path: fileDataPath, Fields: fields, Number: fileDataData,
		Data: (*buf)[:n], Release: func() { wire.Pool.Put(buf) }}
}
