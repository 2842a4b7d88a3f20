package agent

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// The clients of these tests are plain gRPC with generated code: what guestd sends
// and takes without copying must be the API's messages to anybody.

// pieces cuts random bytes into pieces of all kinds of sizes, below and above what
// guestd copies, and more than it sends at once.
func pieces(seed uint64) (all []byte, cut [][]byte) {
	random := rand.New(rand.NewPCG(seed, 1))
	for _, size := range []int{1, 100, 4095, 4096, 4100, 64 << 10, wire.PieceSize, wire.PieceSize + 1, 256 << 10, 700_001, 1 << 20, 3} {
		piece := make([]byte, size)
		for i := range piece {
			piece[i] = byte(random.Uint32())
		}
		all = append(all, piece...)
		cut = append(cut, piece)
	}
	return all, cut
}

func TestFilesWithAPlainClient(t *testing.T) {
	a := startAgent(t, Config{})
	files := guestdv1.NewFileServiceClient(a.client)
	var clients sync.WaitGroup
	for seed := range uint64(4) { // at once, so that buffers go around
		path := filepath.Join(t.TempDir(), "file")
		clients.Go(func() {
			all, cut := pieces(seed)
			if err := writePlainly(t, files, path, cut); err != nil {
				t.Error(err)
				return
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, all) {
				t.Errorf("the file has %d bytes, %v; want %d, the same", len(got), err, len(all))
			}
			if got, err := readPlainly(t, files, path); err != nil || !bytes.Equal(got, all) {
				t.Errorf("read %d bytes, %v; want %d, the same", len(got), err, len(all))
			}
		})
	}
	clients.Wait()
}

func writePlainly(t *testing.T, files guestdv1.FileServiceClient, path string, cut [][]byte) error {
	stream, err := files.Write(within(t))
	if err != nil {
		return err
	}
	err = stream.Send(&guestdv1.WriteRequest{Request: &guestdv1.WriteRequest_Header{
		Header: &guestdv1.WriteHeader{Path: []byte(path)}}})
	for _, piece := range cut {
		if err == nil {
			err = stream.Send(&guestdv1.WriteRequest{Request: &guestdv1.WriteRequest_Data{Data: piece}})
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err = stream.CloseAndRecv()
	return err
}

// readPlainly keeps all messages until the end before it looks into them.
func readPlainly(t *testing.T, files guestdv1.FileServiceClient, path string) ([]byte, error) {
	stream, err := files.Read(within(t), &guestdv1.ReadRequest{Path: []byte(path)})
	if err != nil {
		return nil, err
	}
	var responses []*guestdv1.ReadResponse
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		responses = append(responses, m)
	}
	if responses[0].GetHeader() == nil {
		return nil, errors.New("no header")
	}
	var got []byte
	for _, m := range responses[1:] {
		if m.GetData().GetOffset() != uint64(len(got)) {
			return nil, errors.New("a hole")
		}
		got = append(got, m.GetData().GetData()...)
	}
	return got, nil
}

func TestInputAndOutputWithAPlainClient(t *testing.T) {
	a := startAgent(t, Config{})
	var clients sync.WaitGroup
	for seed := range uint64(3) {
		clients.Go(func() {
			all, cut := pieces(seed)
			stream, err := a.processCalls().Exec(within(t))
			if err != nil {
				t.Error(err)
				return
			}
			// The sender ends before the test: the stream is received to its end.
			go sendPlainly(stream, cut)
			var got []byte
			for {
				m, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Error(err)
					return
				}
				if output := m.GetEvent().GetOutput(); output != nil {
					got = append(got, output.GetData()...)
				}
			}
			if !bytes.Equal(got, all) {
				t.Errorf("%d bytes came back, want %d, the same", len(got), len(all))
			}
		})
	}
	clients.Wait()
}

// sendPlainly starts cat and sends it input, each byte but the first ones twice.
func sendPlainly(stream guestdv1.ProcessService_ExecClient, cut [][]byte) {
	send := func(m *guestdv1.ProcessRequest) { _ = stream.Send(&guestdv1.ExecRequest{Request: m}) }
	send(&guestdv1.ProcessRequest{Request: &guestdv1.ProcessRequest_Start{Start: &guestdv1.ExecStart{
		Spec: &guestdv1.ProcessSpec{
			Command: &guestdv1.ProcessSpec_Arguments{Arguments: &guestdv1.Arguments{Values: [][]byte{[]byte("cat")}}},
			Stdin:   guestdv1.StdinMode_STDIN_MODE_PIPE}}}})
	var offset uint64
	for _, piece := range cut {
		for range 2 {
			send(&guestdv1.ProcessRequest{Request: &guestdv1.ProcessRequest_Input{
				Input: &guestdv1.ProcessInput{Offset: offset, Data: piece}}})
		}
		offset += uint64(len(piece))
	}
	send(&guestdv1.ProcessRequest{Request: &guestdv1.ProcessRequest_CloseInput{
		CloseInput: &guestdv1.ProcessCloseInput{Offset: offset}}})
}

// A piece of a file is what the generated code would send, to the byte.
func TestFileDataPieceIsTheMessage(t *testing.T) {
	for _, offset := range []uint64{0, 1, 128, 1<<64 - 1} {
		for _, size := range []int{1, 4095, 4096, wire.PieceSize} {
			buf := wire.Pool.Get(wire.PieceSize)
			for i := range *buf {
				(*buf)[i] = 0x5a
			}
			data := bytes.Clone((*buf)[:size])
			encoded, err := wire.Codec{}.Marshal(fileDataPiece(offset, buf, size))
			if err != nil {
				t.Fatal(err)
			}
			for _, message := range []proto.Message{
				&guestdv1.ReadResponse{Event: &guestdv1.ReadResponse_Data{Data: &guestdv1.FileData{Offset: offset, Data: data}}},
				&guestdv1.ArchiveResponse{Event: &guestdv1.ArchiveResponse_Data{Data: &guestdv1.FileData{Offset: offset, Data: data}}},
			} {
				if want, err := proto.Marshal(message); err != nil || !bytes.Equal(encoded.Materialize(), want) {
					t.Errorf("%d bytes at %d: not what %T is, %v", size, offset, message, err)
				}
			}
			encoded.Free()
		}
	}
}
