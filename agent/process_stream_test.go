package agent

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"guestd.internal/internal/wire"
	"guestd.internal/proc"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// What goes over the wire without being copied is what the generated code would send,
// to the byte, for both calls.
func TestOutputPieceIsTheMessage(t *testing.T) {
	for stream, name := range streams {
		for _, offset := range []uint64{0, 1, 127, 128, 1 << 20, 1<<64 - 1} {
			for _, size := range []int{1, 100, 4095, 4096, 16 << 10, 256 << 10, 1 << 20} {
				out := proc.Output{Stream: stream, Offset: offset, Data: bytes.Repeat([]byte{0xa5}, size)}
				encoded, err := wire.Codec{}.Marshal(outputPiece(out))
				if err != nil {
					t.Fatal(err)
				}
				event := &guestdv1.ProcessEvent{Event: &guestdv1.ProcessEvent_Output{
					Output: &guestdv1.ProcessOutput{Stream: name, Offset: offset, Data: out.Data}}}
				for _, message := range []proto.Message{
					&guestdv1.ExecResponse{Event: event}, &guestdv1.AttachResponse{Event: event},
				} {
					want, err := proto.Marshal(message)
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(encoded.Materialize(), want) {
						t.Errorf("%v at %d, %d bytes: not what %T is", stream, offset, size, message)
					}
				}
				encoded.Free()
			}
		}
	}
}

// Data stays untouched until grpc has let go of it, and is given back once.
func TestPieceIsReleasedOnce(t *testing.T) {
	for _, size := range []int{1, 5000, 256 << 10} {
		released := 0
		piece := &wire.Piece{Path: outputPath, Number: outputData, Data: make([]byte, size),
			Release: func() { released++ }}
		encoded, err := wire.Codec{}.Marshal(piece)
		if err != nil {
			t.Fatal(err)
		}
		if copied := len(encoded) == 1; (released == 1) != copied {
			t.Errorf("%d bytes: released %d times, %d buffers", size, released, len(encoded))
		}
		encoded.Ref()
		reader := encoded.Reader()
		encoded.Free()
		encoded.Free()
		if err := reader.Close(); err != nil || released != 1 {
			t.Errorf("%d bytes: released %d times after all, %v", size, released, err)
		}
	}
}
