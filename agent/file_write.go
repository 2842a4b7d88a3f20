package agent

import (
	"errors"
	"fmt"
	"io"

	"guestd.internal/fsapi"
	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// Write implements guestdv1.FileServiceServer. The end of the request stream
// commits; a stream that breaks before aborts.
func (s *fileService) Write(stream guestdv1.FileService_WriteServer) error {
	m, err := stream.Recv()
	if err != nil {
		return firstMessageError(err, "header")
	}
	header := m.GetHeader()
	if header == nil {
		return invalid("header", "must be the first message of Write")
	}
	opts, err := writeOptions(header)
	if err != nil {
		return err
	}
	answer, err := s.writes.do(stream.Context(), header.GetRequestId(), header, func() (*guestdv1.WriteResponse, error) {
		return s.write(stream, header, opts)
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(answer)
}

// write takes the contents and makes them the file's.
func (s *fileService) write(stream guestdv1.FileService_WriteServer, header *guestdv1.WriteHeader, opts fsapi.WriteOptions) (*guestdv1.WriteResponse, error) {
	h, err := s.files.OpenWrite(stream.Context(), header.GetUser(), string(header.GetPath()), opts)
	if err != nil {
		return nil, err
	}
	defer h.Abort()
	if err := receive(stream, h); err != nil {
		return nil, err
	}
	result, err := h.Commit()
	if err != nil {
		return nil, err
	}
	return &guestdv1.WriteResponse{
		Info:         fileInfo(result.Info),
		BytesWritten: result.BytesWritten,
		Created:      result.Created,
		InPlace:      result.InPlace,
	}, nil
}

// receive writes what comes behind the header.
func receive(stream guestdv1.FileService_WriteServer, to io.Writer) error {
	view := wire.NewView(&guestdv1.WriteRequest{}, writeRequestData, 2)
	defer view.Free()
	for {
		err := stream.RecvMsg(view)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		data := writeRequestData(view.Message())
		if data == nil {
			return invalid("request", "must be data behind the header")
		}
		if _, err := to.Write(*data); err != nil {
			return err
		}
	}
}

// writeRequestData is the piece in a message, nil where it has none.
func writeRequestData(m *guestdv1.WriteRequest) *[]byte {
	if data, ok := m.GetRequest().(*guestdv1.WriteRequest_Data); ok {
		return &data.Data
	}
	return nil
}

// writeOptions converts a header; what fsapi checks itself is not checked here.
func writeOptions(m *guestdv1.WriteHeader) (fsapi.WriteOptions, error) {
	opts := fsapi.WriteOptions{
		Mode:           m.Mode,
		CreateParents:  m.CreateParents == nil || m.GetCreateParents(),
		Exclusive:      m.GetExclusive(),
		Fsync:          m.GetFsync(),
		ExpectedSize:   m.ExpectedSize,
		ExpectedSHA256: m.GetExpectedSha256(),
	}
	switch m.GetPlacement() {
	case guestdv1.WritePlacement_WRITE_PLACEMENT_UNSPECIFIED, guestdv1.WritePlacement_WRITE_PLACEMENT_REPLACE:
	case guestdv1.WritePlacement_WRITE_PLACEMENT_APPEND:
		opts.Append = true
	case guestdv1.WritePlacement_WRITE_PLACEMENT_AT_OFFSET:
		offset := m.GetOffset()
		opts.Offset = &offset
		return opts, inPlaceOptions(m)
	default:
		return opts, checkEnums("", m)
	}
	if m.GetOffset() != 0 {
		return opts, invalid("offset", fmt.Sprintf("is %d without WRITE_PLACEMENT_AT_OFFSET", m.GetOffset()))
	}
	if opts.Append {
		return opts, inPlaceOptions(m)
	}
	return opts, nil
}

// inPlaceOptions refuses what only an atomic replacement can promise.
func inPlaceOptions(m *guestdv1.WriteHeader) error {
	if m.GetExclusive() {
		return invalid("exclusive", "goes with WRITE_PLACEMENT_REPLACE only")
	}
	if len(m.GetExpectedSha256()) > 0 {
		return invalid("expected_sha256", "goes with WRITE_PLACEMENT_REPLACE only: the bytes are in the file before the sum is known")
	}
	return nil
}
