package wire

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A View is a message to receive into again and again. RecvMsg takes it in place of
// the generated type, and the message is then what it would be otherwise, but the
// piece that it carries may lie in a buffer that belongs to the View: it is gone
// with the next RecvMsg and with Free, and who wants it for longer copies it. All
// else in the message may be kept.
//
// A View is for one goroutine.
type View[M proto.Message] struct {
	message M
	data    func(M) *[]byte
	path    []protowire.Number // of the data's field, itself last
	buf     mem.Buffer         // that the data is part of; nil where it is not
}

// NewView makes a View of a message whose pieces are in the field that data gives:
// nil where the message at hand has none. The field is bytes; path leads to it, its
// own number last, through fields that are messages and neither lists nor maps.
func NewView[M proto.Message](message M, data func(M) *[]byte, path ...protowire.Number) *View[M] {
	return &View[M]{message: message, data: data, path: path}
}

// Message is the message that was received last.
func (v *View[M]) Message() M { return v.message }

// Free gives the piece's buffer back, and empties the piece's field.
func (v *View[M]) Free() {
	if v.buf == nil {
		return
	}
	if field := v.data(v.message); field != nil {
		*field = nil
	}
	v.buf.Free()
	v.buf = nil
}

// view is a View of any message.
type view interface {
	// take decodes an encoded message, which it owns.
	take(encoded mem.Buffer) error
	target() proto.Message
}

// MessageOf gives the message that RecvMsg into v fills, v itself or that of a View;
// nil where v is neither.
func MessageOf(v any) proto.Message {
	if view, ok := v.(view); ok {
		return view.target()
	}
	m, _ := v.(proto.Message)
	return m
}

func (v *View[M]) target() proto.Message { return v.message }

func (v *View[M]) take(encoded mem.Buffer) error {
	v.Free()
	data := encoded.ReadOnlyData()
	if len(data) >= copyBelow && v.alias(data) {
		v.buf = encoded
		return nil
	}
	defer encoded.Free()
	return proto.Unmarshal(data, v.message)
}

// alias decodes a message whose last field is the piece, and makes that a part of
// encoded. It says whether it did; a message of another shape, or one that does
// not parse, is left to proto.Unmarshal.
func (v *View[M]) alias(encoded []byte) bool {
	rest, piece, ok := split(encoded, v.path)
	if !ok || proto.Unmarshal(rest, v.message) != nil {
		return false
	}
	field := v.data(v.message)
	if field == nil {
		return false
	}
	*field = piece
	return true
}

// maxFields is how many bytes of other fields there may be in front of a piece.
// guestd's messages have two numbers there.
const maxFields = 64

// split takes a message apart that has nothing besides the field at path but fields
// in front of it: into the same message with the field empty, and the field's bytes.
func split(encoded []byte, path []protowire.Number) (rest, piece []byte, ok bool) {
	parents, number := path[:len(path)-1], path[len(path)-1]
	message := encoded
	for _, parent := range parents {
		if message, ok = only(message, parent); !ok {
			return nil, nil, false
		}
	}
	for at := 0; at <= maxFields; {
		field, kind, n := protowire.ConsumeTag(message[at:])
		if n < 0 {
			return nil, nil, false
		}
		size := protowire.ConsumeFieldValue(field, kind, message[at+n:])
		if size < 0 {
			return nil, nil, false
		}
		if at+n+size < len(message) {
			at += n + size
			continue
		}
		if field != number || kind != protowire.BytesType {
			return nil, nil, false
		}
		piece, _ = protowire.ConsumeBytes(message[at+n:])
		return header(parents, message[:at], number, 0), piece, true
	}
	return nil, nil, false
}

// only gives the value of a message's only field, if that is the one with number.
func only(message []byte, number protowire.Number) (value []byte, ok bool) {
	field, kind, n := protowire.ConsumeTag(message)
	if n < 0 || field != number || kind != protowire.BytesType {
		return nil, false
	}
	value, size := protowire.ConsumeBytes(message[n:])
	return value, size >= 0 && n+size == len(message)
}
