package codec

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"guestd.internal/internal/wire"
)

// Fault says what is wrong with a message that came in.
type Fault struct {
	// Size is the message's size in bytes where it is larger than MaxMessage, and 0
	// otherwise.
	Size int
	// Field is the path of the field at fault, for example "spec.env[2].name"; ""
	// where the message as a whole does not parse.
	Field string
	// Detail says what is wrong, for people.
	Detail string
}

// Error implements error.
func (f *Fault) Error() string {
	switch {
	case f.Size > 0:
		return fmt.Sprintf("the message has %d bytes; the limit is %d", f.Size, MaxMessage)
	case f.Field == "":
		return "malformed message: " + f.Detail
	default:
		return f.Field + ": " + f.Detail
	}
}

// A fault travels in the message itself, which costs nothing while there is
// none and cannot leak: as an unknown field with the highest number there is.
// The nonce keeps a sender from making one.
const markNumber = protowire.MaxValidNumber

var markNonce = func() (nonce [16]byte) {
	rand.Read(nonce[:])
	return nonce
}()

// mark empties m and leaves f in it.
func mark(m proto.Message, f *Fault) {
	value := append([]byte(nil), markNonce[:]...)
	value = protowire.AppendVarint(value, uint64(f.Size))
	value = protowire.AppendString(value, f.Field)
	value = protowire.AppendString(value, f.Detail)
	unknown := protowire.AppendTag(nil, markNumber, protowire.BytesType)
	unknown = protowire.AppendBytes(unknown, value)
	proto.Reset(m)
	m.ProtoReflect().SetUnknown(unknown)
}

// FaultOf tells what is wrong with a request that Codec has decoded, into a message
// or a wire.View; nil where nothing is. Every handler's request must have passed
// through it: a faulty one looks like an empty message otherwise.
func FaultOf(request any) *Fault {
	m := wire.MessageOf(request)
	if m == nil {
		return nil
	}
	unknown := m.ProtoReflect().GetUnknown()
	if len(unknown) == 0 {
		return nil
	}
	number, _, n := protowire.ConsumeTag(unknown)
	if n < 0 || number != markNumber {
		return nil
	}
	value, n := protowire.ConsumeBytes(unknown[n:])
	if n < 0 || len(value) < len(markNonce) || [16]byte(value[:len(markNonce)]) != markNonce {
		return nil
	}
	value = value[len(markNonce):]
	size, n := protowire.ConsumeVarint(value)
	field, k := protowire.ConsumeString(value[n:])
	detail, _ := protowire.ConsumeString(value[n+k:])
	return &Fault{Size: int(size), Field: field, Detail: detail}
}

// maxDepth bounds how deep locate follows nested messages; guestd's own
// messages nest six deep at most.
const maxDepth = 64

// locate finds the field at which data stops being a message of type desc; cause
// is what proto.Unmarshal said, which names no path.
func locate(data []byte, desc protoreflect.MessageDescriptor, cause error) *Fault {
	if f := scan(data, desc, "", maxDepth); f != nil {
		return f
	}
	return &Fault{Detail: cause.Error()}
}

// scan walks one message's fields; prefix is its own path with a dot behind it.
func scan(data []byte, desc protoreflect.MessageDescriptor, prefix string, depth int) *Fault {
	if depth == 0 {
		return &Fault{Field: trimDot(prefix), Detail: "nested too deeply"}
	}
	seen := make(map[protowire.Number]int) // entries of repeated fields so far
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return &Fault{Field: trimDot(prefix), Detail: protowire.ParseError(n).Error()}
		}
		data = data[n:]
		size := protowire.ConsumeFieldValue(number, kind, data)
		path, field := prefix+strconv.Itoa(int(number)), desc.Fields().ByNumber(number)
		if field != nil {
			path = prefix + string(field.Name())
			if field.IsList() || field.IsMap() {
				path += "[" + strconv.Itoa(seen[number]) + "]"
				seen[number]++
			}
		}
		if size < 0 {
			return &Fault{Field: path, Detail: protowire.ParseError(size).Error()}
		}
		if field != nil && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(data)
			if f := scanValue(value, field, path, depth); f != nil {
				return f
			}
		}
		data = data[size:]
	}
	return nil
}

// scanValue looks into the value of a string or message field.
func scanValue(value []byte, field protoreflect.FieldDescriptor, path string, depth int) *Fault {
	switch field.Kind() {
	case protoreflect.StringKind:
		if !utf8.Valid(value) {
			return &Fault{Field: path, Detail: "not valid UTF-8"}
		}
	case protoreflect.MessageKind:
		return scan(value, field.Message(), path+".", depth-1)
	}
	return nil
}

func trimDot(prefix string) string {
	if prefix == "" {
		return ""
	}
	return prefix[:len(prefix)-1]
}
