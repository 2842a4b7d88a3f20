package fsapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// pieces is a lineReader of a text that comes in pieces of at most so many bytes.
func pieces(text string, limit, size int) *lineReader {
	var r lineReader
	r.reset(limit, func(p []byte) (int, error) {
		n := copy(p[:min(len(p), size)], text)
		if text = text[n:]; n == 0 {
			return 0, io.EOF
		}
		return n, nil
	})
	return &r
}

// matching are the numbers of the lines that match, long ones as search matches
// them.
func matching(t *testing.T, p *linePattern, lines *lineReader) []uint64 {
	t.Helper()
	var numbers []uint64
	for {
		s := searcher{pattern: p, lines: *lines}
		line, truncated, err := s.lines.next()
		if errors.Is(err, io.EOF) {
			return numbers
		}
		must(t, err)
		if _, wanted, err := s.matchLine(line, truncated); err != nil {
			t.Fatal(err)
		} else if wanted {
			numbers = append(numbers, s.lines.number)
		}
		*lines = s.lines
	}
}

// TestLongLinesMatchAsShortOnes: it makes no difference how much of a line is in
// memory, nor in which pieces the rest comes.
func TestLongLinesMatchAsShortOnes(t *testing.T) {
	parts := []string{"a", "b", "ab", "é", "K", "\r", "\xff", "\xe2\x82", " ", "\uFFFD", "\n", "\r\n", "\n\n"}
	random := rand.New(rand.NewPCG(1, 2))
	patterns := []string{
		"abab", "(?i)ABA", "(?i)kb", "é", "éab", `\x{FFFD}`, "a\rb", "\r", "b\r$", "^a", "b$", `\bab\b`, "^$", "", "(ab)+", "(ab){2}", "(?:aba){1,2}",
		"^[^b]*$", "a.*é", `^a.*b$`, "^(?:ab|K)+$", `\Aa`, `b\z`, "a b", "K*b",
	}
	for range 40 {
		var text strings.Builder
		for range 60 {
			text.WriteString(parts[random.IntN(len(parts))])
		}
		for _, pattern := range patterns {
			p, err := compilePattern(pattern, false)
			must(t, err)
			want := fmt.Sprint(matching(t, p, pieces(text.String(), maxMatchedLine, 1000)))
			for _, limit := range []int{1, 2, 3, 5, 8} {
				size := 1 + random.IntN(6)
				if got := fmt.Sprint(matching(t, p, pieces(text.String(), limit, size))); got != want {
					t.Errorf("%q in %q, cut at %d, in pieces of %d: lines %s, want %s", pattern, text.String(), limit, size, got, want)
				}
			}
		}
	}
}

// TestSearchBehindTheFirstMebibyte: a match is found wherever it is in a line.
func TestSearchBehindTheFirstMebibyte(t *testing.T) {
	f := newFixture(t)
	long := strings.Repeat("0123456789abcdef", 5*maxMatchedLine/64)
	f.put("long", "first\n"+long+"needle\r\n"+long+"\n"+long+"needle "+long+"\nlast needle")
	f.put("zeros", "\x00"+long+"needle")
	for _, c := range []struct {
		opts SearchOptions
		want string
	}{
		{SearchOptions{Pattern: ptr("needle")}, "2 4 5"},
		{SearchOptions{Pattern: ptr("NEEDLE"), IgnoreCase: true}, "2 4 5"},
		{SearchOptions{Pattern: ptr("needle$")}, "2 5"},
		{SearchOptions{Pattern: ptr("^0.*needle 0")}, "4"},
		{SearchOptions{Pattern: ptr(`\bneedle\b`)}, "5"},
		{SearchOptions{Pattern: ptr("needle"), Invert: true}, "1 3"},
		{SearchOptions{Pattern: ptr("f$"), Invert: true}, "1 2 5"},
		{SearchOptions{Pattern: ptr("needle"), Before: 1, After: 1, MaxMatches: 1}, "2"},
	} {
		matches, _ := f.search("long", c.opts)
		var got []string
		for _, m := range matches {
			got = append(got, fmt.Sprint(m.Line.Number))
			if long := m.Line.Number > 1 && m.Line.Number < 5; m.Line.Truncated != long || long && len(m.Line.Text) != maxLineText || long && len(m.Ranges) > 0 && !strings.HasPrefix(*c.opts.Pattern, "^") {
				t.Errorf("%q: line %d has %d bytes and %v, truncated %v", *c.opts.Pattern, m.Line.Number, len(m.Line.Text), m.Ranges, m.Line.Truncated)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q, inverted %v: lines %v, want %s", *c.opts.Pattern, c.opts.Invert, got, c.want)
		}
	}
	if matches, _ := f.search("zeros", SearchOptions{Pattern: ptr("needle"), Binary: true}); len(matches) != 1 || !matches[0].Binary {
		t.Errorf("a binary file: %+v", matches)
	}
}

// TestLongLineFailures: a line that cannot be read to its end has not been searched.
func TestLongLineFailures(t *testing.T) {
	for _, pattern := range []string{"needle", "need.*le", "$"} {
		p, err := compilePattern(pattern, false)
		must(t, err)
		lines := pieces(strings.Repeat("x", 200), 10, 3)
		whole, broken := lines.read, errors.New("broken")
		reads := 0
		lines.read = func(b []byte) (int, error) {
			if reads++; reads > 20 {
				return 0, broken
			}
			return whole(b)
		}
		s := searcher{ctx: context.Background(), pattern: p, lines: *lines}
		line, truncated, err := s.lines.next()
		must(t, err)
		_, wanted, err := s.matchLine(line, truncated)
		if wanted || !errors.Is(err, broken) {
			t.Errorf("%q: wanted %v, %v", pattern, wanted, err)
		}
	}
}

// BenchmarkSearchLongLine is for what matching costs where a line is not in memory.
func BenchmarkSearchLongLine(b *testing.B) {
	line := strings.Repeat("0123456789abcdef", 8<<20/16)
	for _, pattern := range []string{"needle", `\bneedle\b`, "ne+dle|thread"} {
		p, err := compilePattern(pattern, false)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(pattern, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				s := searcher{pattern: p, lines: *pieces(line, maxMatchedLine, searchRead)}
				head, truncated, err := s.lines.next()
				if err != nil {
					b.Fatal(err)
				}
				if _, wanted, err := s.matchLine(head, truncated); wanted || err != nil {
					b.Fatal(wanted, err)
				}
			}
		})
	}
}
