package wire

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// A Piece is a message that carries a piece of a stream. SendMsg takes it in place of
// the generated type, and what goes over the wire is the same, but Data is not
// copied on its way there.
type Piece struct {
	// Path are the numbers of the message fields that lead to the message with
	// the data, outermost first.
	Path []protowire.Number
	// Fields are that message's fields before the data, encoded.
	Fields []byte
	// Number is the field of the data, which is bytes and the message's last field
	// that is set.
	Number protowire.Number
	// Data must not change before Release is called.
	Data []byte
	// Release, if not nil, is called once, from any goroutine, when Data is no longer
	// used. It is not called where SendMsg fails before it encodes.
	Release func()
}

// copyBelow is the size of data up to which copying costs less than keeping track.
const copyBelow = 4 << 10

// marshal returns the encoded message and takes Data over.
func (p *Piece) marshal() mem.BufferSlice {
	header := header(p.Path, p.Fields, p.Number, len(p.Data))
	if len(p.Data) < copyBelow {
		buf := Pool.Get(len(header) + len(p.Data))
		copy((*buf)[copy(*buf, header):], p.Data)
		if p.Release != nil {
			p.Release()
		}
		return mem.BufferSlice{mem.NewBuffer(buf, Pool)}
	}
	data := p.Data
	return mem.BufferSlice{mem.SliceBuffer(header), mem.NewBuffer(&data, borrowed{p.Release})}
}

// header encodes all of a message that comes before dataSize bytes of data: the
// tags and sizes of path, fields, and the tag and size of the data.
func header(path []protowire.Number, fields []byte, number protowire.Number, dataSize int) []byte {
	size := len(fields) + protowire.SizeTag(number) + protowire.SizeBytes(dataSize)
	sizes := make([]int, len(path)) // of the message in each field of the path
	for i := len(path) - 1; i >= 0; i-- {
		sizes[i] = size
		size += protowire.SizeTag(path[i]) + protowire.SizeVarint(uint64(size))
	}
	encoded := make([]byte, 0, size-dataSize)
	for i, number := range path {
		encoded = protowire.AppendTag(encoded, number, protowire.BytesType)
		encoded = protowire.AppendVarint(encoded, uint64(sizes[i]))
	}
	encoded = append(encoded, fields...)
	encoded = protowire.AppendTag(encoded, number, protowire.BytesType)
	return protowire.AppendVarint(encoded, uint64(dataSize))
}

// borrowed is the pool of one buffer that belongs to somebody else: putting it back
// tells the owner.
type borrowed struct{ release func() }

// Get implements mem.BufferPool; nobody calls it.
func (borrowed) Get(n int) *[]byte { return Pool.Get(n) }

// Put implements mem.BufferPool.
func (b borrowed) Put(*[]byte) {
	if b.release != nil {
		b.release()
	}
}
