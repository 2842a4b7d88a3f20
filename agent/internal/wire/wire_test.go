package wire

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec to compare with
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

func decode(t testing.TB, data []byte, m proto.Message) *Fault {
	t.Helper()
	if err := (Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, m); err != nil {
		t.Fatalf("Unmarshal = %v; a bad message is to be reported through FaultOf", err)
	}
	return FaultOf(m)
}

// field appends a length-delimited field.
func field(data []byte, number protowire.Number, value string) []byte {
	data = protowire.AppendTag(data, number, protowire.BytesType)
	return protowire.AppendString(data, value)
}

func TestCodecMatchesGRPC(t *testing.T) {
	theirs := encoding.GetCodecV2("proto")
	for _, size := range []int{0, 1, 1 << 10, 256 << 10, 1<<20 + 1, 5 << 20} {
		want := &guestdv1.WriteInputRequest{ProcessId: "p-x", Data: bytes.Repeat([]byte{7}, size)}
		ours, err := Codec{}.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		reference, err := theirs.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(ours.Materialize(), reference.Materialize()) {
			t.Errorf("%d bytes: marshalled differently", size)
		}
		got := new(guestdv1.WriteInputRequest)
		if err := (Codec{}).Unmarshal(reference, got); err != nil || FaultOf(got) != nil {
			t.Fatalf("%d bytes: %v, %v", size, err, FaultOf(got))
		}
		if !proto.Equal(got, want) {
			t.Errorf("%d bytes: not the same after a round trip", size)
		}
		ours.Free()
		reference.Free()
	}
}

func TestFaultNamesField(t *testing.T) {
	env := field(field(nil, 1, "A"), 2, "b")
	label := field(field(nil, 1, "key"), 2, "\xff")
	for _, tt := range []struct {
		name, field, detail string
		data                []byte
		m                   proto.Message
	}{
		{"text", "process_id", "UTF-8", field(nil, 1, "\xff\xfe"), &guestdv1.GetRequest{}},
		{"nested", "spec.user", "UTF-8", field(nil, 2, string(field(nil, 4, "\xc3("))), &guestdv1.RunRequest{}},
		{"map", "spec.labels[0].value", "UTF-8", field(nil, 2, string(field(field(nil, 6, string(env)), 17, string(label)))), &guestdv1.RunRequest{}},
		{"cut short", "process_id", "EOF", []byte{0x0a, 5, 'a'}, &guestdv1.GetRequest{}},
		{"bad nested", "spec.env[1]", "EOF", field(nil, 2, string(field(field(nil, 6, string(env)), 6, "\x0a"))), &guestdv1.RunRequest{}},
		{"no tag", "", "", []byte{0}, &guestdv1.GetRequest{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := decode(t, tt.data, tt.m)
			if f == nil {
				t.Fatal("no fault found")
			}
			if !strings.HasPrefix(f.Field, tt.field) || !strings.Contains(f.Detail, tt.detail) {
				t.Errorf("fault = %q: %q, want field %q and detail %q", f.Field, f.Detail, tt.field, tt.detail)
			}
			if f.Size != 0 {
				t.Errorf("size = %d in a message of ordinary size", f.Size)
			}
		})
	}
}

func TestFaultTooLarge(t *testing.T) {
	data := field(nil, 3, string(make([]byte, MaxMessage)))
	f := decode(t, data, &guestdv1.WriteInputRequest{})
	if f == nil || f.Size != len(data) {
		t.Fatalf("fault = %+v, want size %d", f, len(data))
	}
}

func TestNoFaultFromSender(t *testing.T) {
	// Unknown fields are kept and harmless, also one with the mark's own number.
	data := field(nil, 1, "p-x")
	data = field(data, markNumber, strings.Repeat("x", 64))
	m := &guestdv1.GetRequest{}
	if f := decode(t, data, m); f != nil || m.ProcessId != "p-x" {
		t.Fatalf("fault = %v, process_id = %q", f, m.ProcessId)
	}
}

func TestPool(t *testing.T) {
	for _, n := range []int{0, 1, 256, 257, 4096, 1 << 20, 1<<20 + 1, 1 << 23, 1<<23 + 1} {
		buf := Pool.Get(n)
		if len(*buf) != n {
			t.Errorf("Get(%d) has length %d", n, len(*buf))
		}
		if size := cap(*buf); n <= 1<<maxShift && (size < 1<<minShift || size&(size-1) != 0 || n > 1<<minShift && size >= 2*n) {
			t.Errorf("Get(%d) has capacity %d, want the next power of two", n, size)
		}
		*buf = (*buf)[:0]
		Pool.Put(buf)
	}
	// A stranger's buffer must never come back from a class it is too small for.
	stranger := make([]byte, 300)
	Pool.Put(&stranger)
	if buf := Pool.Get(512); cap(*buf) < 512 {
		t.Errorf("Get(512) has capacity %d", cap(*buf))
	}
}

// FuzzUnmarshal checks that no bytes make the codec panic or fail, and that it
// finds a fault exactly where proto.Unmarshal does.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte{})
	f.Add(field(nil, 1, "\xff"))
	f.Add(field(nil, 2, string(field(nil, 4, "root"))))
	f.Add([]byte{0x0b, 0x0b, 0x0c, 0x0c})
	f.Add(field(nil, markNumber, strings.Repeat("x", 64)))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &guestdv1.RunRequest{}
		fault := decode(t, data, m)
		err := proto.Unmarshal(data, &guestdv1.RunRequest{})
		if (fault != nil) != (err != nil) {
			t.Fatalf("fault = %v, proto.Unmarshal = %v", fault, err)
		}
	})
}
