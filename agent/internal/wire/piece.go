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
	header := p.header()
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

// header returns all that comes before the data.
func (p *Piece) header() []byte {
	size := len(p.Fields) + protowire.SizeTag(p.Number) + protowire.SizeBytes(len(p.Data))
	sizes := make([]int, len(p.Path)) // of the message in each field of the path
	for i := len(p.Path) - 1; i >= 0; i-- {
		sizes[i] = size
		size += protowire.SizeTag(p.Path[i]) + protowire.SizeVarint(uint64(size))
	}
	header := make([]byte, 0, size-len(p.Data))
	for i, number := range p.Path {
		header = protowire.AppendTag(header, number, protowire.BytesType)
		header = protowire.AppendVarint(header, uint64(sizes[i]))
	}
	header = append(header, p.Fields...)
	header = protowire.AppendTag(header, p.Number, protowire.BytesType)
	return protowire.AppendVarint(header, uint64(len(p.Data)))
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
