package wire

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec to compare with
	"google.golang.org/protobuf/proto"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

func TestCodecMatchesGRPC(t *testing.T) {
	theirs := encoding.GetCodecV2("proto")
	for _, size := range []int{0, 1, 1 << 10, 256 << 10, 1<<20 + 1, 5 << 20} {
		want := &guestdv1.WriteInputRequest{ProcessId: "p-x", Data: bytes.Repeat([]byte{7}, size)}
		ours, err := Codec{}.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		reference, err := theirs.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(ours.Materialize(), reference.Materialize()) {
			t.Errorf("%d bytes: marshalled differently", size)
		}
		got := new(guestdv1.WriteInputRequest)
		if err := (Codec{}).Unmarshal(reference, got); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if !proto.Equal(got, want) {
			t.Errorf("%d bytes: not the same after a round trip", size)
		}
		ours.Free()
		reference.Free()
	}
}
