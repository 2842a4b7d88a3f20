package id

import (
	"regexp"
	"testing"
)

func TestNewHasTheDocumentedShape(t *testing.T) {
	shape := regexp.MustCompile(`^x-[a-z2-7]{13}$`)
	for range 1000 {
		if got := New("x"); !shape.MatchString(got) {
			t.Fatalf("New(\"x\") = %q, want %v", got, shape)
		}
	}
}

func TestNewDoesNotRepeat(t *testing.T) {
	seen := make(map[string]bool)
	for range 100_000 {
		got := New("p")
		if seen[got] {
			t.Fatalf("%q was drawn twice", got)
		}
		seen[got] = true
	}
}

// Every character must be random: a constant one would betray an encoder fed
// with too few bytes.
func TestEveryCharacterVaries(t *testing.T) {
	var seen [length]map[byte]bool
	for i := range seen {
		seen[i] = make(map[byte]bool)
	}
	for range 2000 {
		for i, c := range []byte(New("p")[2:]) {
			seen[i][c] = true
		}
	}
	for i, chars := range seen {
		if len(chars) != 32 {
			t.Errorf("character %d takes %d values, want 32", i, len(chars))
		}
	}
}
