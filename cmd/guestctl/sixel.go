package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/color/palette"
	"image/draw"
	"image/png"
	"strings"
)

const (
	// sixelHeight is how many rows of pixels one row of sixels has.
	sixelHeight = 6
	// maxSixelPixels bounds what is decoded and drawn: a larger picture fits no terminal.
	maxSixelPixels = 4 << 20
)

// sixelPicture is a PNG as sixels, DEC's graphics of the VT340 (VT330/VT340 Programmer Reference Manual,
// volume 2, chapter 14), on white and in 256 colours. It is empty for what is no PNG, or too large.
func sixelPicture(data []byte) string {
	header, err := png.DecodeConfig(bytes.NewReader(data))
	if err != nil || header.Width <= 0 || header.Height <= 0 || header.Width > maxSixelPixels/header.Height {
		return ""
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return ""
	}
	size := image.Rect(0, 0, header.Width, header.Height)
	onWhite := image.NewRGBA(size)
	draw.Draw(onWhite, size, image.White, image.Point{}, draw.Src)
	draw.Draw(onWhite, size, picture, picture.Bounds().Min, draw.Over)
	indexed := image.NewPaletted(size, palette.Plan9)
	draw.FloydSteinberg.Draw(indexed, size, onWhite, image.Point{})

	var b strings.Builder
	fmt.Fprintf(&b, "\x1bP0;1q\"1;1;%d;%d", size.Dx(), size.Dy())
	for i, c := range indexed.Palette {
		writeSixelColour(&b, i, c)
	}
	for top := 0; top < size.Dy(); top += sixelHeight {
		writeSixelRow(&b, indexed, top)
	}
	return b.String() + "\x1b\\\n"
}

// writeSixelColour defines a colour register, whose parts are percentages.
func writeSixelColour(b *strings.Builder, register int, c color.Color) {
	const most = 0xffff
	red, green, blue, _ := c.RGBA()
	percent := func(part uint32) uint32 { return (part*100 + most/2) / most }
	fmt.Fprintf(b, "#%d;2;%d;%d;%d", register, percent(red), percent(green), percent(blue))
}

// writeSixelRow draws one row of sixels: each colour that is in it over the ones before.
func writeSixelRow(b *strings.Builder, picture *image.Paletted, top int) {
	var used [256]bool
	bottom := min(top+sixelHeight, picture.Rect.Dy())
	for y := top; y < bottom; y++ {
		for _, index := range picture.Pix[y*picture.Stride : y*picture.Stride+picture.Rect.Dx()] {
			used[index] = true
		}
	}
	for index, is := range used {
		if !is {
			continue
		}
		fmt.Fprintf(b, "#%d", index)
		var run sixelRun
		for x := range picture.Rect.Dx() {
			var bits byte
			for y := top; y < bottom; y++ {
				if picture.Pix[y*picture.Stride+x] == uint8(index) {
					bits |= 1 << (y - top)
				}
			}
			run.add(b, bits)
		}
		if run.bits != 0 { // nothing needs not be drawn
			run.flush(b)
		}
		b.WriteByte('$') // back to the row's start
	}
	b.WriteByte('-')
}

// sixelRun is a number of equal sixels.
type sixelRun struct {
	bits  byte
	count int
}

func (r *sixelRun) add(b *strings.Builder, bits byte) {
	if bits != r.bits {
		r.flush(b)
		*r = sixelRun{bits: bits}
	}
	r.count++
}

func (r *sixelRun) flush(b *strings.Builder) {
	const shortest = 4 // from here on the repeat is shorter
	sixel := '?' + r.bits
	if r.count >= shortest {
		fmt.Fprintf(b, "!%d%c", r.count, sixel)
		return
	}
	for range r.count {
		b.WriteByte(sixel)
	}
}
