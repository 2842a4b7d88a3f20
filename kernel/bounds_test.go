package kernel

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"guestd.internal/kernel/internal/jupyter"
)

func TestErrorsAreBounded(t *testing.T) {
	small := boundedError(jupyter.ErrorContent{Name: "<class 'E'>", Value: "v", Traceback: []string{"\x1b[0;31ma\x1b[0m", "b"}})
	if small.Name != "E" || small.Value != "v" || fmt.Sprint(small.Traceback) != "[a b]" {
		t.Errorf("%+v", small)
	}
	long := strings.Repeat("é", 1<<20)
	e := boundedError(jupyter.ErrorContent{Name: "E", Value: "begin" + long + "end", Traceback: []string{"first", long, "last"}})
	for what, text := range map[string]string{"begin end": e.Value, "first last": strings.Join(e.Traceback, "")} {
		begin, end, _ := strings.Cut(what, " ")
		if !strings.HasPrefix(text, begin) || !strings.HasSuffix(text, end) || !strings.Contains(text, "bytes left out") || !utf8.ValidString(text) {
			t.Errorf("%d bytes, from %.20q to %q", len(text), text, text[len(text)-20:])
		}
	}
	if n := e.size(); n > maxErrorValue+maxTraceback {
		t.Errorf("it has %d bytes", n)
	}
}

func TestPartsOverTheLimitAreMarked(t *testing.T) {
	value, err := json.Marshal(strings.Repeat("x", MaxResult+1))
	if err != nil {
		t.Fatal(err)
	}
	got := parts(map[string]json.RawMessage{"text/plain": value, "text/html": json.RawMessage(`"short"`)})
	if len(got) != 2 || string(got[0].Data) != "short" || got[0].Truncated != 0 || got[1].Truncated != MaxResult+1 || got[1].Data != nil {
		t.Errorf("%d parts", len(got))
	}
}

func TestTextIsDecodedInPieces(t *testing.T) {
	const bytes = "a\xff\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x8d\xe2\x82z\xc3"
	const want = "a\uFFFDé€🐍\uFFFD\uFFFDz\uFFFD"
	for size := 1; size <= len(bytes); size++ {
		var d textDecoder
		var got string
		for rest := bytes; rest != ""; {
			n := min(size, len(rest))
			piece := d.decode([]byte(rest[:n]))
			if !utf8.ValidString(piece) {
				t.Errorf("in pieces of %d: %q", size, piece)
			}
			got += piece
			rest = rest[n:]
		}
		if got += d.rest(); got != want {
			t.Errorf("in pieces of %d: %q, want %q", size, got, want)
		}
	}
}

// Over the limit of a frame not even the types of a value are known.
func TestLargeResults(t *testing.T) {
	cs := newContexts(t)
	for _, test := range []struct {
		size      int
		truncated bool
	}{{50_000_000, false}, {MaxResult + 1, true}, {100 << 20, true}} {
		out := mustOK(t, cs, fmt.Sprintf("'x' * %d", test.size-2)) // and its quotes
		if len(out.results) != 1 || len(out.results[0].Parts) != 1 {
			t.Fatalf("%d bytes: %d results", test.size, len(out.results))
		}
		part := out.results[0].Parts[0]
		if whole := len(part.Data) == test.size; whole == test.truncated || (part.Truncated >= uint64(test.size)) != test.truncated || out.results[0].Kind != Main {
			t.Errorf("%d bytes: %s has %d and lacks %d", test.size, part.MIME, len(part.Data), part.Truncated)
		}
	}
	out := mustOK(t, cs, "from IPython.display import display\ndisplay(1); display(2); 3")
	for i, result := range out.results {
		if result.Number != uint32(i+1) {
			t.Errorf("result %d is numbered %d", i+1, result.Number)
		}
	}
	if out := execute(t, cs, "raise ValueError('x' * 1_000_000)"); out.err == nil || len(out.err.Value) > maxErrorValue+100 || !strings.Contains(out.err.Value, "bytes left out") {
		t.Errorf("%+v", out.finished)
	}
}
