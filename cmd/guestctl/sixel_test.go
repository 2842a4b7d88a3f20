package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"strconv"
	"strings"
	"testing"
)

// drawSixels is what a terminal makes of sixels: its pixels, as percentages of red, green and blue.
func drawSixels(t *testing.T, text string) map[image.Point][3]int {
	t.Helper()
	text, found := strings.CutPrefix(text, "\x1bP0;1q")
	text, whole := strings.CutSuffix(text, "\x1b\\\n")
	if !found || !whole {
		t.Fatalf("not framed: %.40q", text)
	}
	pixels := make(map[image.Point][3]int)
	colours := make(map[int][3]int)
	colour, x, top := 0, 0, 0
	for i := 0; i < len(text); {
		start := i
		i++
		switch c := text[start]; {
		case c == '"', c == '#', c == '!':
			for i < len(text) && (text[i] == ';' || text[i] >= '0' && text[i] <= '9') {
				i++
			}
			var numbers []int
			for field := range strings.SplitSeq(text[start+1:i], ";") {
				n, err := strconv.Atoi(field)
				if err != nil {
					t.Fatalf("at %d: %v", start, err)
				}
				numbers = append(numbers, n)
			}
			switch {
			case c == '#' && len(numbers) == 5:
				colours[numbers[0]] = [3]int(numbers[2:])
			case c == '#':
				colour = numbers[0]
			case c == '!':
				for range numbers[0] {
					paint(pixels, colours[colour], x, top, text[i])
					x++
				}
				i++
			}
		case c == '$':
			x = 0
		case c == '-':
			x, top = 0, top+6
		default:
			paint(pixels, colours[colour], x, top, c)
			x++
		}
	}
	return pixels
}

func paint(pixels map[image.Point][3]int, colour [3]int, x, top int, sixel byte) {
	for bit := range 6 {
		if (sixel-'?')>>bit&1 == 1 {
			pixels[image.Pt(x, top+bit)] = colour
		}
	}
}

func TestSixels(t *testing.T) {
	const width, height = 23, 20
	picture := image.NewNRGBA(image.Rect(0, 0, width, height))
	want := make(map[image.Point][3]int)
	for y := range height {
		for x := range width {
			c, percent := color.NRGBA{R: 0xff, A: 0xff}, [3]int{100, 0, 0}
			switch {
			case x < 10:
				c, percent = color.NRGBA{}, [3]int{100, 100, 100} // nothing, on white
			case (x+y)%3 == 0:
				c, percent = color.NRGBA{B: 0xff, A: 0xff}, [3]int{0, 0, 100}
			}
			picture.SetNRGBA(x, y, c)
			want[image.Pt(x, y)] = percent
		}
	}
	var encoded bytes.Buffer
	if err := png.Encode(&encoded, picture); err != nil {
		t.Fatal(err)
	}
	if got := drawSixels(t, sixelPicture(encoded.Bytes())); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%d pixels, want %d", len(got), len(want))
	}
	var huge bytes.Buffer
	if err := png.Encode(&huge, image.NewGray(image.Rect(0, 0, 5000, 1000))); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"no PNG": []byte("x"), "half a PNG": encoded.Bytes()[:60], "a huge one": huge.Bytes()} {
		if got := sixelPicture(data); got != "" {
			t.Errorf("%s is drawn with %d bytes", name, len(got))
		}
	}
}
