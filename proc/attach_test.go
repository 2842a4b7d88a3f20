package proc

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"guestd.internal/internal/outlog"
)

func TestMalformedAttachmentsNameTheirField(t *testing.T) {
	table := newTable(t)
	p, err := table.Start(t.Context(), shell("sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	negative := -time.Second
	for field, o := range map[string]AttachOptions{
		"ReaderID":       {ReaderID: "a\n"},
		"StallTimeout":   {StallTimeout: -1},
		"ReconnectGrace": {ReconnectGrace: &negative},
		"Offsets":        {Offsets: []StreamOffset{{Terminal, 0}}},
	} {
		_, err := p.Attach(o)
		var invalid *InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	var past *outlog.OffsetError
	if _, err := p.Attach(AttachOptions{Offsets: []StreamOffset{{Stderr, 1}}}); !errors.As(err, &past) {
		t.Errorf("got %v", err)
	}
	if n := p.Info().Readers; n != 0 {
		t.Errorf("%d readers are attached", n)
	}
	a, err := p.Attach(AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Ack(Stdout, 1); !errors.As(err, &past) {
		t.Errorf("got %v", err)
	}
	a.Close()
	if _, err := a.Next(t.Context()); !errors.Is(err, ErrDetached) {
		t.Errorf("got %v", err)
	}
}

// TestReadersComeAndGo lets readers of all kinds attach, supersede each other,
// detach and close at random while a lossless one reads everything.
func TestReadersComeAndGo(t *testing.T) {
	table := newTable(t)
	spec := shell("i=0; while [ $i -lt 3000 ]; do echo line $i; echo error $i >&2; i=$((i+1)); done; seq 1 300000")
	spec.LogLimit = MinLogLimit
	p, a, err := table.Exec(t.Context(), spec, AttachOptions{ReaderID: "main"})
	if err != nil {
		t.Fatal(err)
	}
	var others sync.WaitGroup
	for seed := range uint64(4) {
		others.Go(func() { comeAndGo(p, rand.New(rand.NewPCG(seed, 0))) })
	}
	h := listen(t, a)
	others.Wait()
	want := sha256.New()
	for i := range 3000 {
		fmt.Fprintf(want, "line %d\n", i)
	}
	for i := range 300000 {
		fmt.Fprintln(want, i+1)
	}
	if got := sha256.Sum256(h.output[Stdout].Bytes()); string(got[:]) != string(want.Sum(nil)) {
		t.Fatalf("%d bytes of something else", h.output[Stdout].Len())
	}
	if h.gaps[Stdout]+h.gaps[Stderr] != 0 {
		t.Fatal("a lossless reader was told of gaps")
	}
}

func comeAndGo(p *Process, rnd *rand.Rand) {
	grace := time.Millisecond
	for !p.hasEnded() {
		a, err := p.Attach(AttachOptions{ReaderID: fmt.Sprint(rnd.IntN(3)), Mode: outlog.Mode(rnd.IntN(2)),
			FromNow: rnd.IntN(2) == 0, StallTimeout: time.Millisecond, ReconnectGrace: &grace})
		if err != nil {
			continue
		}
		for range rnd.IntN(20) {
			event, err := a.poll()
			if err != nil {
				break
			}
			if out, ok := event.(Output); ok && rnd.IntN(2) == 0 {
				_ = a.Ack(out.Stream, out.Offset+uint64(len(out.Data)))
				out.Release()
			}
		}
		if rnd.IntN(2) == 0 {
			a.Detach()
		} else {
			a.Close()
		}
	}
}
