package agent

import (
	"context"
	"errors"
	"io"

	"guestd.internal/fsapi"
	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

const (
	// archivePiece is how much of a tar stream one message of Archive carries.
	archivePiece = wire.PieceSize
	// maxExtractOutcomes is how many outcomes of Extract are remembered: one may name
	// a hundred files.
	maxExtractOutcomes = 100
)

// compressions pairs the API's kinds of compression with those of fsapi.
var compressions = map[guestdv1.Compression]fsapi.Compression{
	guestdv1.Compression_COMPRESSION_UNSPECIFIED: fsapi.CompressionAuto,
	guestdv1.Compression_COMPRESSION_NONE:        fsapi.CompressionNone,
	guestdv1.Compression_COMPRESSION_GZIP:        fsapi.CompressionGzip,
	guestdv1.Compression_COMPRESSION_ZSTD:        fsapi.CompressionZstd,
}

// Archive implements guestdv1.FileServiceServer.
func (s *fileService) Archive(req *guestdv1.ArchiveRequest, stream guestdv1.FileService_ArchiveServer) error {
	if err := checkEnums("", req); err != nil {
		return err
	}
	ctx := stream.Context()
	h, err := s.files.OpenArchive(ctx, req.GetUser(), string(req.GetPath()), fsapi.ArchiveOptions{
		Compression: compressions[req.GetCompression()],
		Include:     toStrings(req.GetInclude()),
		Exclude:     toStrings(req.GetExclude()),
	})
	if err != nil {
		return err
	}
	defer h.Close()
	err = stream.Send(&guestdv1.ArchiveResponse{Event: &guestdv1.ArchiveResponse_Header{
		Header: &guestdv1.ArchiveHeader{Root: fileInfo(h.Info)}}})
	if err != nil {
		return err
	}
	result, err := h.Stream(&archiveSender{stream: stream})
	if err != nil {
		return err
	}
	return stream.Send(&guestdv1.ArchiveResponse{Event: &guestdv1.ArchiveResponse_Summary{
		Summary: treeSummary(ctx, result)}})
}

// archiveSender sends a tar stream as it is written.
type archiveSender struct {
	stream guestdv1.FileService_ArchiveServer
	offset uint64
}

// Write implements io.Writer.
func (s *archiveSender) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		piece := p[:min(len(p), archivePiece)]
		// Send has encoded the message when it returns, so the writer may use p again.
		err := s.stream.Send(&guestdv1.ArchiveResponse{Event: &guestdv1.ArchiveResponse_Data{
			Data: &guestdv1.FileData{Offset: s.offset, Data: piece}}})
		if err != nil {
			return written, err
		}
		s.offset += uint64(len(piece))
		written += len(piece)
		p = p[len(piece):]
	}
	return written, nil
}

// Extract implements guestdv1.FileServiceServer.
func (s *fileService) Extract(stream guestdv1.FileService_ExtractServer) error {
	m, err := stream.Recv()
	if err != nil {
		return firstMessageError(err, "header")
	}
	header := m.GetHeader()
	if header == nil {
		return invalid("header", "must be the first message of Extract")
	}
	if err := checkEnums("", header); err != nil {
		return err
	}
	answer, err := s.extracts.do(stream.Context(), header.GetRequestId(), header, func() (*guestdv1.ExtractResponse, error) {
		return s.extract(stream, header)
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(answer)
}

func newExtractOutcomes() *outcomes[*guestdv1.ExtractResponse] {
	o := newOutcomes[*guestdv1.ExtractResponse]()
	o.table.Max = maxExtractOutcomes
	return o
}

// extract unpacks what comes behind the header.
func (s *fileService) extract(stream guestdv1.FileService_ExtractServer, header *guestdv1.ExtractHeader) (*guestdv1.ExtractResponse, error) {
	ctx := stream.Context()
	receiver := &extractReceiver{stream: stream, view: wire.NewView(&guestdv1.ExtractRequest{}, extractRequestData, 2)}
	result, err := s.files.Extract(ctx, header.GetUser(), string(header.GetPath()), fsapi.ExtractOptions{
		Compression: compressions[header.GetCompression()],
		KeepOwners:  header.GetKeepOwners(),
		NoReplace:   header.GetNoReplace(),
		Include:     toStrings(header.GetInclude()),
		Exclude:     toStrings(header.GetExclude()),
		MaxBytes:    header.MaxBytes,
		MaxEntries:  header.MaxEntries,
	}, receiver)
	if err != nil {
		return nil, err
	}
	return &guestdv1.ExtractResponse{Summary: treeSummary(ctx, result)}, nil
}

// extractReceiver reads the pieces of a tar stream. What it has at the end is left to
// the garbage collector: whoever unpacks may have a goroutine that reads ahead.
type extractReceiver struct {
	stream guestdv1.FileService_ExtractServer
	view   *wire.View[*guestdv1.ExtractRequest]
	rest   []byte // of the last piece, in view
}

// Read implements io.Reader.
func (r *extractReceiver) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		err := r.stream.RecvMsg(r.view)
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
		data := extractRequestData(r.view.Message())
		if data == nil {
			return 0, invalid("request", "must be data behind the header")
		}
		r.rest = *data
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// extractRequestData is the piece in a message, nil where it has none.
func extractRequestData(m *guestdv1.ExtractRequest) *[]byte {
	if data, ok := m.GetRequest().(*guestdv1.ExtractRequest_Data); ok {
		return &data.Data
	}
	return nil
}

func treeSummary(ctx context.Context, result fsapi.TreeResult) *guestdv1.TreeSummary {
	m := &guestdv1.TreeSummary{Entries: result.Entries, Bytes: result.Bytes, FailureCount: result.FailureCount}
	for _, failure := range result.Failures {
		m.Failures = append(m.Failures, fileFailure(ctx, failure.Path, failure.Err))
	}
	return m
}
