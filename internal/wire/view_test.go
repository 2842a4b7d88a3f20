package wire

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

func outputData(m *guestdv1.ExecResponse) *[]byte {
	if output := m.GetEvent().GetOutput(); output != nil {
		return &output.Data
	}
	return nil
}

func writeData(m *guestdv1.WriteRequest) *[]byte {
	if data, ok := m.GetRequest().(*guestdv1.WriteRequest_Data); ok {
		return &data.Data
	}
	return nil
}

// The two shapes that there are: data below messages, and data right in a oneof.
func outputView() *View[*guestdv1.ExecResponse] {
	return NewView(&guestdv1.ExecResponse{}, outputData, 1, 3, 3)
}

func writeView() *View[*guestdv1.WriteRequest] {
	return NewView(&guestdv1.WriteRequest{}, writeData, 2)
}

func output(offset uint64, data []byte) *guestdv1.ExecResponse {
	return &guestdv1.ExecResponse{Event: &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_Output{
		Output: &guestdv1.ProcessOutput{Stream: guestdv1.OutputStream_OUTPUT_STREAM_STDERR, Offset: offset, Data: data}}}}
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	encoded, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// receive decodes as grpc does: from buffers of which a frame has filled each.
func receive(t testing.TB, encoded []byte, into any) {
	t.Helper()
	const frame = 16 << 10
	var slice mem.BufferSlice
	for len(encoded) > 0 {
		n := min(len(encoded), frame)
		slice = append(slice, mem.SliceBuffer(encoded[:n]))
		encoded = encoded[n:]
	}
	if err := (Codec{}).Unmarshal(slice, into); err != nil {
		t.Fatal(err)
	}
}

func TestViewIsTheMessage(t *testing.T) {
	view := outputView()
	defer view.Free()
	for _, size := range []int{0, 1, copyBelow - 40, copyBelow, PieceSize, 1 << 20} {
		want := output(uint64(size)<<20, bytes.Repeat([]byte{byte(size), 1}, size/2))
		receive(t, marshal(t, want), view)
		if !proto.Equal(want, view.Message()) {
			t.Fatalf("%d bytes: not the message that was sent", size)
		}
		if borrowed := view.buf != nil; borrowed != (size >= copyBelow) {
			t.Errorf("%d bytes: in the view's own buffer: %v", size, borrowed)
		}
	}
	// Messages of other kinds come through the same view.
	want := &guestdv1.ExecResponse{Event: &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_Exited{
		Exited: &guestdv1.ProcessExit{}}}}
	receive(t, marshal(t, want), view)
	if !proto.Equal(want, view.Message()) || view.buf != nil {
		t.Errorf("got %v, want %v", view.Message(), want)
	}
}

func TestViewOfOneof(t *testing.T) {
	view := writeView()
	want := &guestdv1.WriteRequest{Request: &guestdv1.WriteRequest_Data{Data: bytes.Repeat([]byte("ab"), 1<<17)}}
	receive(t, marshal(t, want), view)
	if !proto.Equal(want, view.Message()) || view.buf == nil {
		t.Errorf("not the message, or copied: %v", view.buf)
	}
	view.Free()
}

// A piece is lent until the next message or Free; whoever keeps the message finds
// it empty afterwards, and not with another's bytes.
func TestViewEndsWithTheNextMessage(t *testing.T) {
	view := outputView()
	receive(t, marshal(t, output(1, bytes.Repeat([]byte("1"), PieceSize))), view)
	kept := view.Message().GetEvent().GetOutput()
	receive(t, marshal(t, output(2, bytes.Repeat([]byte("2"), PieceSize))), view)
	if kept.GetOffset() != 1 || len(kept.GetData()) != 0 {
		t.Errorf("the message before is at %d with %d bytes, want 1 and none", kept.GetOffset(), len(kept.GetData()))
	}
	kept = view.Message().GetEvent().GetOutput()
	view.Free()
	view.Free()
	if kept.GetOffset() != 2 || len(kept.GetData()) != 0 {
		t.Errorf("after Free: at %d with %d bytes, want 2 and none", kept.GetOffset(), len(kept.GetData()))
	}
}

// Receiving leaves next to nothing behind: buffers go back to the pool, each once.
func TestViewLeavesNoGarbage(t *testing.T) {
	encoded := marshal(t, output(0, make([]byte, PieceSize)))
	view := outputView()
	defer view.Free()
	var before, after runtime.MemStats
	const messages = 200
	runtime.ReadMemStats(&before)
	for range messages {
		receive(t, encoded, view)
	}
	runtime.ReadMemStats(&after)
	// The race detector makes a sync.Pool lose a quarter of what it is given.
	if garbage := (after.TotalAlloc - before.TotalAlloc) / messages; garbage > PieceSize/2 {
		t.Errorf("%d bytes of garbage for a message of %d", garbage, len(encoded))
	}
}

// What is not of the shape is decoded all the same.
func TestViewOfUnusualShapes(t *testing.T) {
	data := bytes.Repeat([]byte("x"), copyBelow)
	piece := protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), data)
	offset := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 7)
	unknown := protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), data)
	event := func(fields ...[]byte) []byte {
		inner := protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), bytes.Join(fields, nil))
		return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), inner)
	}
	for name, encoded := range map[string][]byte{
		"data first":          event(piece, offset),
		"data twice":          event(piece, piece),
		"much in front":       event(unknown, piece),
		"unknown behind":      append(event(offset, piece), unknown...),
		"two events":          append(event(offset), event(piece)...),
		"offset after offset": event(offset, offset, piece),
		"unknown number":      event(protowire.AppendVarint(protowire.AppendTag(nil, 98, protowire.VarintType), 1), piece),
	} {
		want := &guestdv1.ExecResponse{}
		if err := proto.Unmarshal(encoded, want); err != nil {
			t.Fatal(err)
		}
		view := outputView()
		receive(t, encoded, view)
		if diff := cmp.Diff(want, view.Message(), protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		view.Free()
	}
}

func TestMessageOf(t *testing.T) {
	view, message := writeView(), &guestdv1.WriteRequest{}
	if MessageOf(view) != proto.Message(view.Message()) || MessageOf(message) != proto.Message(message) || MessageOf(7) != nil {
		t.Error("not the message that is received into")
	}
	if err := (Codec{}).Unmarshal(nil, 7); err == nil {
		t.Error("received into a number")
	}
}

// FuzzView checks that a view takes what proto.Unmarshal takes, and makes the same of
// it; for messages of every size, also those that a view leaves to proto.Unmarshal.
func FuzzView(f *testing.F) {
	f.Add([]byte{})
	f.Add(marshal(f, output(3, []byte("data"))))
	f.Add(marshal(f, &guestdv1.WriteRequest{Request: &guestdv1.WriteRequest_Data{Data: []byte("data")}}))
	f.Add([]byte{0x0a, 0x06, 0x1a, 0x04, 0x08, 0x80, 0x1a, 0x00})
	f.Add([]byte{0x0a, 0x04, 0x1a, 0x02, 0x1b, 0x1c}) // a group where the data should be
	f.Add([]byte{0x12, 0x81, 0x00, 'x'})              // a size with a byte too many
	f.Fuzz(func(t *testing.T, encoded []byte) {
		compare(t, encoded, outputView(), &guestdv1.ExecResponse{})
		compare(t, encoded, writeView(), &guestdv1.WriteRequest{})
	})
}

// compare decodes in all ways, want by proto.Unmarshal.
func compare[M proto.Message](t *testing.T, encoded []byte, view *View[M], want M) {
	wantErr := proto.Unmarshal(encoded, want)
	if view.alias(encoded) {
		if wantErr != nil {
			t.Fatalf("taken, though %v", wantErr)
		}
		if !proto.Equal(want, view.Message()) || !bytes.Equal(marshal(t, want), marshal(t, view.Message())) {
			t.Fatalf("got %v, want %v", view.Message(), want)
		}
		if field := view.data(view.Message()); len(*field) > 0 && &(*field)[0] != &encoded[len(encoded)-len(*field)] {
			t.Fatal("the data was copied")
		}
	}
	err := view.take(mem.SliceBuffer(encoded))
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("error %v, want %v", err, wantErr)
	}
	if err == nil && !proto.Equal(want, view.Message()) {
		t.Fatalf("got %v, want %v", view.Message(), want)
	}
	view.Free()
}
