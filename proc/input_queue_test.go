package proc

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
)

// Whatever is added comes out, in order, however it is cut.
func TestInputQueueKeepsOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var q inputQueue
	var want, got []byte
	for range 2000 {
		data := make([]byte, random.IntN(2*inputPiece))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		want = append(want, data...)
		if random.IntN(4) == 0 {
			q.lend(data)
		} else {
			q.add(data)
			clear(data) // a copy was taken
		}
		for random.IntN(3) > 0 && !q.empty() {
			piece := q.next(1 + random.IntN(inputPiece))
			got = append(got, piece...)
			q.drop(len(piece))
		}
		if len(want) > 1<<20 {
			for !q.empty() {
				piece := q.next(inputPiece)
				got = append(got, piece...)
				q.drop(len(piece))
			}
			if !bytes.Equal(got, want) {
				t.Fatal("what came out is not what was put in")
			}
			got, want = got[:0], want[:0]
		}
	}
	if q.clear(); !q.empty() || q.next(1) != nil {
		t.Error("something is left")
	}
}

// A piece that is being written stays as it is while more is added behind it.
func TestInputQueuePieceStays(t *testing.T) {
	var q inputQueue
	q.add([]byte("first"))
	piece := q.next(inputPiece)
	q.add([]byte("second"))
	q.drop(2)
	if string(piece) != "first" || string(q.next(inputPiece)) != "rstsecond" {
		t.Errorf("piece %q, then %q", piece, q.next(inputPiece))
	}
}

func TestInputQueueLeavesNoGarbage(t *testing.T) {
	var q inputQueue
	data := make([]byte, 3*inputPiece+1)
	var before, after runtime.MemStats
	const rounds = 100
	runtime.ReadMemStats(&before)
	for range rounds {
		q.add(data)
		for !q.empty() {
			q.drop(len(q.next(inputPiece)))
		}
	}
	runtime.ReadMemStats(&after)
	// The race detector makes a sync.Pool lose a quarter of what it is given.
	if garbage := (after.TotalAlloc - before.TotalAlloc) / rounds; garbage > uint64(len(data)/2) {
		t.Errorf("%d bytes of garbage for %d bytes of input", garbage, len(data))
	}
}
