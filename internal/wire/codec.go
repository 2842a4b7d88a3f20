package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Codec is a codec for grpc.ForceCodecV2 that also takes *Piece and *View. It is
// called "proto", and its messages are those of grpc's codec of that name.
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

// Unmarshal implements encoding.CodecV2, for messages and for *View.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	buf := data.MaterializeToBuffer(Pool)
	if view, ok := v.(view); ok {
		return view.take(buf)
	}
	defer buf.Free()
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("unmarshalling into a %T: not a protobuf message", v)
	}
	return proto.Unmarshal(buf.ReadOnlyData(), m)
}
