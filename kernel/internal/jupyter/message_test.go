package jupyter

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func encode(t *testing.T, c *Codec, content any, parent *Header) [][]byte {
	t.Helper()
	_, frames, err := c.Encode(TypeStream, content, parent)
	if err != nil {
		t.Fatal(err)
	}
	return frames
}

func TestRoundTrip(t *testing.T) {
	c := NewCodec("secret")
	parent := &Header{MsgID: "p", MsgType: TypeExecuteRequest}
	id, frames, err := c.Encode(TypeStream, Stream{Name: "stdout", Text: "é\u2028<"}, parent)
	if err != nil {
		t.Fatal(err)
	}
	for name, identities := range map[string][][]byte{
		"no identity": nil, "a topic": {[]byte("stream")}, "eight": bytes.Split([]byte("a,b,c,d,e,f,g,h"), []byte(",")),
	} {
		msg, err := c.Decode(append(identities, frames...), 0)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var content Stream
		if err := msg.DecodeContent(&content); err != nil || content.Text != "é\u2028<" {
			t.Errorf("%s: %+v, %v", name, content, err)
		}
		if msg.Header.MsgID != id || msg.Parent.MsgID != "p" || msg.Header.Version != "5.3" {
			t.Errorf("%s: %+v %+v", name, msg.Header, msg.Parent)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	c := NewCodec("secret")
	with := func(i int, frame []byte) [][]byte {
		frames := encode(t, c, struct{}{}, nil)
		frames[i] = frame
		return frames
	}
	signed := func(i int, frame []byte) [][]byte {
		frames := with(i, frame)
		frames[1] = []byte(c.sign(frames[2:6]))
		return frames
	}
	many := append(make([][]byte, maxIdentities+1), encode(t, c, struct{}{}, nil)...)
	for name, test := range map[string]struct {
		frames [][]byte
		want   error
	}{
		"nothing":             {nil, ErrMalformed},
		"no delimiter":        {with(0, []byte("x")), ErrMalformed},
		"too many before it":  {many, ErrMalformed},
		"cut short":           {encode(t, c, struct{}{}, nil)[:5], ErrMalformed},
		"no signature":        {with(1, nil), ErrSignature},
		"short signature":     {with(1, []byte("ab")), ErrSignature},
		"no hexadecimal":      {with(1, bytes.Repeat([]byte("zz"), 32)), ErrSignature},
		"another signature":   {with(1, bytes.Repeat([]byte("00"), 32)), ErrSignature},
		"another key's":       {encode(t, NewCodec("other"), struct{}{}, nil), ErrSignature},
		"changed content":     {with(5, []byte(`{"a":1}`)), ErrSignature},
		"header no JSON":      {signed(2, []byte("{")), ErrMalformed},
		"header no object":    {signed(2, []byte("[]")), ErrMalformed},
		"header without type": {signed(2, []byte("{}")), ErrMalformed},
		"header not UTF-8":    {signed(2, []byte("{\"msg_type\":\"\xff\"}")), ErrMalformed},
		"large header":        {signed(2, []byte(`{"msg_type":"`+strings.Repeat("x", MaxHeader)+`"}`)), ErrMalformed},
		"large parent":        {signed(3, []byte(`{"msg_type":"`+strings.Repeat("x", MaxHeader)+`"}`)), ErrMalformed},
		"deep parent":         {signed(3, []byte(`{"x":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)+`}`)), ErrMalformed},
	} {
		if msg, err := c.Decode(test.frames, 0); !errors.Is(err, test.want) {
			t.Errorf("%s: %+v, %v", name, msg, err)
		}
	}
}

func TestDeepContent(t *testing.T) {
	msg := &Message{Content: []byte(`{"data":{"application/json":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}}`)}
	if err := msg.DecodeContent(new(Display)); !errors.Is(err, ErrMalformed) {
		t.Errorf("%v", err)
	}
}

func TestEmptyKeyTurnsSignaturesOff(t *testing.T) {
	c := NewCodec("")
	frames := encode(t, c, struct{}{}, nil)
	if len(frames[1]) != 0 {
		t.Errorf("signature %q", frames[1])
	}
	if _, err := c.Decode(frames, 0); err != nil {
		t.Error(err)
	}
}

func TestSkippedContentIsNotVerified(t *testing.T) {
	c := NewCodec("secret")
	frames := encode(t, c, Stream{Text: "long"}, &Header{MsgID: "p"})
	frames[5] = nil
	msg, err := c.Decode(frames, 1<<30)
	if err != nil || msg.Skipped != 1<<30 || msg.Parent.MsgID != "p" {
		t.Errorf("%+v, %v", msg, err)
	}
}

// The reference implementation accepts our signature, and we accept its.
func TestAgainstJupyterClient(t *testing.T) {
	c := NewCodec("0123")
	frames := encode(t, c, Stream{Name: "stdout", Text: "é"}, nil)
	script := `
import json, sys
from jupyter_client.session import Session
s = Session(key=b'0123')
frames = [bytes.fromhex(f) for f in json.load(sys.stdin)]
_, rest = s.feed_identities(frames)
m = s.deserialize(rest)
assert m['content'] == {'name': 'stdout', 'text': 'é'}, m
print(json.dumps([bytes(f).hex() for f in s.serialize(s.msg('status', {'execution_state': 'idle'}, parent=m['header']))]))`
	var in, out []string
	for _, frame := range frames {
		in = append(in, hexOf(frame))
	}
	input, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/python3", "-c", script)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v (Debian's python3-jupyter-client is needed)", err)
	}
	if err := json.Unmarshal(output, &out); err != nil {
		t.Fatal(err)
	}
	var answer [][]byte
	for _, frame := range out {
		answer = append(answer, bytesOf(t, frame))
	}
	msg, err := c.Decode(answer, 0)
	if err != nil {
		t.Fatal(err)
	}
	if msg.State() != StateIdle || msg.Parent.MsgType != TypeStream {
		t.Errorf("%+v", msg)
	}
}

func FuzzDecode(f *testing.F) {
	c := NewCodec("k")
	_, frames, err := c.Encode(TypeStream, Stream{Name: "stdout", Text: "x"}, &Header{MsgID: "p"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Join(frames, []byte{0}), uint64(0), true)
	f.Add([]byte("<IDS|MSG>\x00\x00{\"msg_type\":\"status\"}\x00{}\x00{}\x00{\"execution_state\":\"idle\"}"), uint64(0), true)
	f.Add([]byte("topic\x00<IDS|MSG>\x00ab\x00[]\x00null\x00{}\x00"), uint64(9), false)
	f.Fuzz(func(t *testing.T, data []byte, skipped uint64, sign bool) {
		frames := bytes.Split(data, []byte{0})
		if at := delimiterIndex(frames); sign && at >= 0 && len(frames) > at+5 {
			frames[at+1] = []byte(c.sign(frames[at+2 : at+6]))
		}
		msg, err := c.Decode(frames, skipped)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrSignature) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		if msg.Header.MsgType == "" {
			t.Fatal("a message without a type")
		}
		var display Display
		if msg.DecodeContent(&display) == nil {
			Parts(display.Data)
		}
		_ = msg.DecodeContent(new(ExecuteReply))
		msg.State()
	})
}
