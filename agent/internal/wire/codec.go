package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// MaxMessage is the largest request that is taken, in bytes.
const MaxMessage = 8 << 20

// HardLimit is what grpc.MaxRecvMsgSize is to be set to. A message between
// MaxMessage and this is read to its end and refused with a reason that a
// program can read; beyond it grpc refuses by itself, without one.
const HardLimit = 2 * MaxMessage

// Codec is the server's codec, for grpc.ForceServerCodecV2. It is called
// "proto", and its messages are those of grpc's codec of that name.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name implements encoding.CodecV2.
func (Codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2, for messages and for *Piece.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	if p, ok := v.(*Piece); ok {
		return p.marshal(), nil
	}
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("marshalling a %T: not a protobuf message", v)
	}
	size := proto.Size(m)
	options := proto.MarshalOptions{UseCachedSize: true}
	if mem.IsBelowBufferPoolingThreshold(size) {
		data, err := options.Marshal(m)
		if err != nil {
			return nil, err
		}
		return mem.BufferSlice{mem.SliceBuffer(data)}, nil
	}
	buf := Pool.Get(size)
	if _, err := options.MarshalAppend((*buf)[:0], m); err != nil {
		Pool.Put(buf)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(buf, Pool)}, nil
}

// Unmarshal implements encoding.CodecV2. Data that does not parse, or is larger
// than MaxMessage, is no error here: v is then empty but for the mark that
// FaultOf reads.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("unmarshalling into a %T: not a protobuf message", v)
	}
	if size := data.Len(); size > MaxMessage {
		mark(m, &Fault{Size: size})
		return nil
	}
	buf := data.MaterializeToBuffer(Pool)
	defer buf.Free()
	if err := proto.Unmarshal(buf.ReadOnlyData(), m); err != nil {
		mark(m, locate(buf.ReadOnlyData(), m.ProtoReflect().Descriptor(), err))
	}
	return nil
}
