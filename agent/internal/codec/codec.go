package codec

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"guestd.internal/internal/wire"
)

// MaxMessage is the largest request that is taken, in bytes.
const MaxMessage = 8 << 20

// HardLimit is what grpc.MaxRecvMsgSize is to be set to. A message between
// MaxMessage and this is read to its end and refused with a reason that a
// program can read; beyond it grpc refuses by itself, without one.
const HardLimit = 2 * MaxMessage

// Codec is the server's codec, for grpc.ForceServerCodecV2: a wire.Codec that makes
// faults of what it cannot decode.
type Codec struct{ wire.Codec }

var _ encoding.CodecV2 = Codec{}

// Unmarshal implements encoding.CodecV2. Data that does not parse, or is larger
// than MaxMessage, is no error here: the message is then empty but for the mark
// that FaultOf reads.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m := wire.MessageOf(v)
	if m == nil {
		return fmt.Errorf("unmarshalling into a %T: not a protobuf message", v)
	}
	if size := data.Len(); size > MaxMessage {
		mark(m, &Fault{Size: size})
		return nil
	}
	if err := c.Codec.Unmarshal(data, v); err != nil {
		buf := data.MaterializeToBuffer(wire.Pool)
		defer buf.Free()
		mark(m, locate(buf.ReadOnlyData(), m.ProtoReflect().Descriptor(), err))
	}
	return nil
}
