package client

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/iotest"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// The guestd of these tests is plain gRPC with generated code: what the client sends and takes
// without copying must be the API's messages to anybody.

// plainGuestd keeps one file in memory, and echoes a process's input to its output.
func plainGuestd(file *[]byte) *fakeGuestd {
	return &fakeGuestd{
		write: func(s guestdv1.FileService_WriteServer) error {
			var requests []*guestdv1.WriteRequest // looked at only when all are there
			for {
				m, err := s.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return err
				}
				requests = append(requests, m)
			}
			*file = nil
			for _, m := range requests[1:] {
				*file = append(*file, m.GetData()...)
			}
			return s.SendAndClose(&guestdv1.WriteResponse{BytesWritten: uint64(len(*file))})
		},
		read: func(_ *guestdv1.ReadRequest, s guestdv1.FileService_ReadServer) error {
			err := s.Send(&guestdv1.ReadResponse{Event: &guestdv1.ReadResponse_Header{Header: &guestdv1.ReadHeader{}}})
			size := 1
			for at := 0; at < len(*file) && err == nil; size = size*3%700_001 + 1 {
				piece := (*file)[at:min(at+size, len(*file))]
				err = s.Send(&guestdv1.ReadResponse{Event: &guestdv1.ReadResponse_Data{
					Data: &guestdv1.FileData{Offset: uint64(at), Data: piece}}})
				at += len(piece)
			}
			return err
		},
		exec: echo,
	}
}

// echo sends a process's input back as its output.
func echo(s guestdv1.ProcessService_ExecServer) error {
	send := func(event *guestdv1.ProcessEvent) error { return s.Send(&guestdv1.ExecResponse{Event: event}) }
	if err := send(started()); err != nil {
		return err
	}
	var taken uint64
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		input := m.GetRequest().GetInput()
		if input == nil {
			if m.GetRequest().GetCloseInput() != nil {
				return send(exited(0))
			}
			continue
		}
		if input.GetOffset() != taken {
			return errors.New("input with a hole")
		}
		err = send(&guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_Output{Output: &guestdv1.ProcessOutput{
			Stream: guestdv1.OutputStream_OUTPUT_STREAM_STDOUT, Offset: taken, Data: input.GetData()}}})
		if taken += uint64(len(input.GetData())); err == nil {
			err = send(inputTaken(taken))
		}
		if err != nil {
			return err
		}
	}
}

func randomBytes(size int) []byte {
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(size)}).Read(data)
	return data
}

func TestFilesWithAPlainGuestd(t *testing.T) {
	var file []byte
	c, _ := serveFake(t, plainGuestd(&file))
	want := randomBytes(5<<20 + 17)
	for name, source := range map[string]io.Reader{
		"all at once": bytes.NewReader(want),
		"in halves":   iotest.HalfReader(bytes.NewReader(want)),
		"with EOF":    iotest.DataErrReader(bytes.NewReader(want)),
		"by Write":    struct{ io.Reader }{bytes.NewReader(want)},
	} {
		w, err := c.Create(t.Context(), "/file", nil)
		if err != nil {
			t.Fatal(err)
		}
		var to io.Writer = w
		if name == "by Write" {
			to = struct{ io.Writer }{w}
		}
		if n, err := io.Copy(to, source); err != nil || n != int64(len(want)) {
			t.Fatalf("%s: %d bytes, %v", name, n, err)
		}
		if _, err := w.Commit(); err != nil || !bytes.Equal(file, want) {
			t.Errorf("%s: %d bytes came, %v; want %d, the same", name, len(file), err, len(want))
		}
	}
	if got, err := c.ReadFile(t.Context(), "/file", nil); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, %v; want %d, the same", len(got), err, len(want))
	}
	r, err := c.Open(t.Context(), "/file", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(iotest.HalfReader(r)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes piecemeal, %v; want %d, the same", len(got), err, len(want))
	}
}

// A writer may use its bytes again as soon as Write has returned.
func TestWriteTakesACopy(t *testing.T) {
	var file []byte
	c, _ := serveFake(t, plainGuestd(&file))
	w, err := c.Create(t.Context(), "/file", nil)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	piece := make([]byte, chunkBytes)
	for i := range 20 {
		for j := range piece {
			piece[j] = byte(i)
		}
		want = append(want, piece...)
		if _, err := w.Write(piece); err != nil {
			t.Fatal(err)
		}
		clear(piece)
	}
	if _, err := w.Commit(); err != nil || !bytes.Equal(file, want) {
		t.Errorf("other bytes came, or %v", err)
	}
}

func TestInputAndOutputWithAPlainGuestd(t *testing.T) {
	c, _ := serveFake(t, plainGuestd(nil))
	var commands sync.WaitGroup
	for _, size := range []int{1, 100_000, 3 << 20, 5<<20 + 1} { // at once, so that buffers go around
		commands.Go(func() {
			want := randomBytes(size)
			for name, source := range map[string]io.Reader{
				"all at once": bytes.NewReader(want),
				"in halves":   iotest.HalfReader(bytes.NewReader(want)),
			} {
				cmd := c.Command("cat")
				cmd.Stdin = source
				if got, err := cmd.Output(t.Context()); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: %d bytes came back, %v; want %d, the same", name, len(got), err, size)
				}
			}
		})
	}
	commands.Wait()
}

// What is sent without copying is what the generated code would send, to the byte.
func TestPiecesAreTheMessages(t *testing.T) {
	encode := func(p *wire.Piece) []byte {
		encoded, err := wire.Codec{}.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		defer encoded.Free()
		return encoded.Materialize()
	}
	check := func(got []byte, message proto.Message) {
		t.Helper()
		if want, err := proto.Marshal(message); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, %v: not what %T is", len(got), err, message)
		}
	}
	for _, size := range []int{1, 4095, 4096, chunkBytes} {
		data := randomBytes(size)
		buf := wire.Pool.Get(chunkBytes)
		copy(*buf, data)
		check(encode(dataPiece(buf, size)), &guestdv1.WriteRequest{Request: &guestdv1.WriteRequest_Data{Data: data}})
		for _, offset := range []uint64{0, 1, 128, 1<<64 - 1} {
			input := inputPiece{data, mem.SliceBuffer(data)}
			request := &guestdv1.ProcessRequest{Request: &guestdv1.ProcessRequest_Input{
				Input: &guestdv1.ProcessInput{Offset: offset, Data: data}}}
			check(encode(input.message(offset)), &guestdv1.ExecRequest{Request: request})
			check(encode(input.message(offset)), &guestdv1.AttachRequest{Request: request})
		}
	}
}

// A block of input goes back once nobody holds it: neither the window, nor its reader, nor grpc.
func TestInputBlocksGoBack(t *testing.T) {
	returned := 0
	pool := countingPool{&returned}
	data := make([]byte, 100<<10)
	block := mem.NewBuffer(&data, pool)
	var mu sync.Mutex
	o := newOutbox()
	o.input = newInputWindow(&mu)
	o.addInput(inputPiece{data[:50<<10], block}, false)
	o.addInput(inputPiece{data[50<<10:], block}, false)
	block.Free() // the reader has filled it
	_, first := o.input.next()
	sent, err := wire.Codec{}.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	for _, offset := range []uint64{10, 50 << 10, 100 << 10} {
		if err := o.input.accept(offset); err != nil {
			t.Fatal(err)
		}
	}
	if returned != 0 {
		t.Fatal("the block went back while grpc was sending it")
	}
	sent.Free()
	if returned != 1 {
		t.Errorf("the block went back %d times", returned)
	}
}

type countingPool struct{ returned *int }

func (p countingPool) Get(n int) *[]byte { buf := make([]byte, n); return &buf }
func (p countingPool) Put(*[]byte)       { *p.returned++ }
