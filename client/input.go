package client

import (
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// inputWindowBytes is how much input may be under way: read from the user and not yet given to the
// program. It is less than a stream's window and no more than guestd holds for a program that
// does not read, so that input never blocks the signals and acknowledgements behind it.
const inputWindowBytes = 1 << 20

// inputBlock is how much is read at a time, at most.
const inputBlock = chunkBytes

// minInputRead is the least room that a read is given; below it a new block is begun.
const minInputRead = 4 << 10

// inputWindow is the part of a process's input that may have to be sent again. The outbox's mutex
// guards it.
type inputWindow struct {
	// pieces hold the bytes from accepted on.
	pieces []inputPiece
	// given is what the program has, accepted what guestd has, sent what was sent on this link, end
	// what was read so far: offsets in the input.
	given, accepted, sent, end uint64
	eof, eofSent               bool
	// closed: the program reads no more.
	closed bool
	// room is signalled when given or closed has changed.
	room sync.Cond
}

// inputPiece is input that was read at once. It is part of a block that others may hold, too: pieces
// around it, and grpc, which sends it without a copy. The block is used again once nobody does.
type inputPiece struct {
	data  []byte
	block mem.Buffer
}

func newInputWindow(mu *sync.Mutex) *inputWindow {
	w := &inputWindow{}
	w.room.L = mu
	return w
}

// begin makes the first byte read from the user the one at offset: others have written what is before
// it, and guestd tells how much of that the program has not read.
func (w *inputWindow) begin(offset uint64) { w.accepted, w.sent, w.end = offset, offset, offset }

// rewind prepares for a new link to a guestd that has the input up to offset.
func (w *inputWindow) rewind(offset uint64) error {
	if err := w.accept(offset); err != nil {
		return err
	}
	w.sent, w.eofSent = w.accepted, false
	return nil
}

// accept drops what guestd has. An offset behind what it had said is old news; one beyond the
// input's end is a lie.
func (w *inputWindow) accept(offset uint64) error {
	if offset > w.end {
		return fmt.Errorf("guestd has taken %d bytes of input of which %d were sent", offset, w.end)
	}
	for w.accepted < offset {
		first := &w.pieces[0]
		n := min(uint64(len(first.data)), offset-w.accepted)
		if first.data = first.data[n:]; len(first.data) == 0 {
			first.block.Free()
			w.pieces = w.pieces[1:]
		}
		w.accepted += n
	}
	w.sent = max(w.sent, w.accepted)
	return nil
}

// give notes that the program has the input up to offset.
func (w *inputWindow) give(offset uint64) error {
	if err := w.accept(offset); err != nil {
		return err
	}
	w.given = max(w.given, offset)
	w.room.Broadcast()
	return nil
}

// close ends the input from the program's side.
func (w *inputWindow) close() {
	w.closed = true
	for _, piece := range w.pieces {
		piece.block.Free()
	}
	w.pieces = nil
	w.accepted, w.sent = w.end, w.end
	w.room.Broadcast()
}

// next takes what is to be sent next, a piece of input or its end; nil is nothing.
func (w *inputWindow) next() (*guestdv1.ProcessRequest, *wire.Piece) {
	if w.closed {
		return nil, nil
	}
	if w.sent < w.end {
		piece := w.pieceAt(w.sent)
		message := piece.message(w.sent)
		w.sent += uint64(len(piece.data))
		return nil, message
	}
	if w.eof && !w.eofSent {
		w.eofSent = true
		return &guestdv1.ProcessRequest{Request: &guestdv1.ProcessRequest_CloseInput{
			CloseInput: &guestdv1.ProcessCloseInput{Offset: w.end},
		}}, nil
	}
	return nil, nil
}

// pieceAt gives the rest of the piece that holds the byte at offset, which is before the end.
func (w *inputWindow) pieceAt(offset uint64) inputPiece {
	i, start := 0, w.accepted
	for offset >= start+uint64(len(w.pieces[i].data)) {
		start += uint64(len(w.pieces[i].data))
		i++
	}
	return inputPiece{w.pieces[i].data[offset-start:], w.pieces[i].block}
}

// inputPath leads from ExecRequest and from AttachRequest to ProcessInput: request, input.
var inputPath = []protowire.Number{1, 3}

// The fields of ProcessInput.
const (
	inputOffset protowire.Number = 1
	inputData   protowire.Number = 2
)

// message is the ExecRequest or AttachRequest with a piece; it holds the block until it is sent.
func (p inputPiece) message(offset uint64) *wire.Piece {
	var fields []byte
	if offset > 0 { // as for every field, 0 is left out
		fields = protowire.AppendTag(make([]byte, 0, 16), inputOffset, protowire.VarintType)
		fields = protowire.AppendVarint(fields, offset)
	}
	p.block.Ref()
	return &wire.Piece{Path: inputPath, Fields: fields, Number: inputData, Data: p.data, Release: p.block.Free}
}

// pumpInput reads the user's input into the window until its end, its error, or the program's
// closing of it. The error that it returns is the reader's.
func (o *outbox) pumpInput(r io.Reader) error {
	var block mem.Buffer
	var room []byte // of block, not read into yet
	defer func() {
		if block != nil {
			block.Free()
		}
	}()
	for {
		most := o.awaitInputRoom()
		if most == 0 {
			return nil
		}
		if len(room) < minInputRead {
			if block != nil {
				block.Free()
			}
			buf := wire.Pool.Get(inputBlock)
			block, room = mem.NewBuffer(buf, wire.Pool), *buf
		}
		n, err := r.Read(room[:min(len(room), most)])
		o.addInput(inputPiece{room[:n:n], block}, err != nil)
		room = room[n:]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the input: %w", err)
		}
	}
}

// awaitInputRoom waits until more input may be read, and returns how much; 0 when none is wanted any
// more.
func (o *outbox) awaitInputRoom() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.input.closed {
		ahead := o.input.end - o.input.given
		if ahead <= inputWindowBytes-minInputRead {
			return inputWindowBytes - int(ahead)
		}
		o.input.room.Wait()
	}
	return 0
}

// addInput adds a piece, if there is anything in it, of a block that stays the caller's.
func (o *outbox) addInput(piece inputPiece, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.input.closed || o.leaving {
		return
	}
	if len(piece.data) > 0 {
		piece.block.Ref()
		o.input.pieces = append(o.input.pieces, piece)
		o.input.end += uint64(len(piece.data))
	}
	o.input.eof = o.input.eof || last
	o.wakeLocked()
}

// accepted is how much of the input guestd has.
func (o *outbox) accepted() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.input == nil {
		return 0
	}
	return o.input.accepted
}

// inputStatus notes how far guestd has given the input to the program.
func (o *outbox) inputStatus(s *guestdv1.ProcessInputStatus) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.input == nil {
		return nil
	}
	if s.GetClosed() {
		o.input.close()
		return nil
	}
	if err := o.input.give(s.GetAcceptedOffset()); err != nil {
		return err
	}
	o.wakeLocked()
	return nil
}

// closeInput lets the reader of input end; what it still reads is dropped.
func (o *outbox) closeInput() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.input != nil {
		o.input.close()
	}
}
