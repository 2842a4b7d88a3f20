package kernel

import (
	"slices"
	"unicode/utf8"
)

// textDecoder makes text of a stream's bytes, in pieces as they come. What is not
// UTF-8 becomes U+FFFD; a character that is cut off by a piece's end waits for the
// rest.
type textDecoder struct {
	cut []byte // the start of a character
}

// decode returns the text up to the last whole character.
func (d *textDecoder) decode(p []byte) string {
	data := slices.Concat(d.cut, p)
	end := len(data) - incomplete(data)
	d.cut = append([]byte(nil), data[end:]...)
	return validText(data[:end])
}

// rest returns what waited for more, because nothing more comes.
func (d *textDecoder) rest() string {
	rest := validText(d.cut)
	d.cut = nil
	return rest
}

// validText is bytes as text, each one that is not UTF-8 replaced.
func validText(p []byte) string {
	if utf8.Valid(p) {
		return string(p)
	}
	return string([]rune(string(p)))
}

// incomplete is how many bytes at the end are the start of a character.
func incomplete(data []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if last := data[len(data)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}
