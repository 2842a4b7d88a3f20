package codec

import (
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"guestd.internal/internal/wire"
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

// A view that had a good message before shows the fault of the next, and nothing of
// the one before.
func TestFaultInAView(t *testing.T) {
	data := func(m *guestdv1.WriteRequest) *[]byte {
		if data, ok := m.GetRequest().(*guestdv1.WriteRequest_Data); ok {
			return &data.Data
		}
		return nil
	}
	view := wire.NewView(&guestdv1.WriteRequest{}, data, 2)
	defer view.Free()
	good := field(nil, 2, strings.Repeat("x", 1<<20))
	for name, bad := range map[string][]byte{
		"cut short": good[:len(good)-1],
		"too large": field(nil, 2, string(make([]byte, MaxMessage))),
		"header":    field(nil, 1, "\x0a"),
	} {
		for _, tt := range []struct {
			encoded []byte
			faulty  bool
		}{{good, false}, {bad, true}, {good, false}} {
			if err := (Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(tt.encoded)}, view); err != nil {
				t.Fatal(err)
			}
			if fault := FaultOf(view); (fault != nil) != tt.faulty || (data(view.Message()) == nil) != tt.faulty {
				t.Errorf("%s: fault %v, data %v", name, fault, data(view.Message()) != nil)
			}
		}
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
