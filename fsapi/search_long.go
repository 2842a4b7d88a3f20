package fsapi

import (
	"bytes"
	"errors"
	"io"
	"unicode/utf8"
)

// longLine is a line that lineReader has cut: what it has handed out, and then the
// rest as it is read. Of all of it only a window is in memory.
type longLine struct {
	lines *lineReader
	buf   []byte // the window's memory, used again
	rest  []byte // what of the window is not taken yet
	end   bool   // there is no more of the line
	err   error  // what reading it has failed with
	// carriage says that a CR is held back: it is the line's last byte, and no part
	// of it, unless more comes.
	carriage bool
}

// begin makes it the line that begins with head.
func (l *longLine) begin(head []byte, lines *lineReader) {
	*l = longLine{lines: lines, buf: l.buf}
	l.take(head)
}

// take puts a piece behind the window's rest.
func (l *longLine) take(piece []byte) {
	l.buf = append(l.buf[:0], l.rest...)
	if l.carriage {
		l.buf = append(l.buf, '\r')
	}
	piece, l.carriage = bytes.CutSuffix(piece, []byte("\r"))
	l.buf = append(l.buf, piece...)
	l.rest = l.buf
}

// more makes the window's rest longer, unless the line ends.
func (l *longLine) more() {
	piece, err := l.lines.more()
	if err != nil {
		l.end = true
		if !errors.Is(err, io.EOF) {
			l.err = err
		}
		return
	}
	l.take(piece)
}

// ReadRune implements io.RuneReader, for package regexp.
func (l *longLine) ReadRune() (rune, int, error) {
	for len(l.rest) < utf8.UTFMax && !l.end {
		l.more()
	}
	if len(l.rest) == 0 {
		return 0, 0, io.EOF
	}
	char, size := utf8.DecodeRune(l.rest)
	l.rest = l.rest[size:]
	return char, size, nil
}

// contains says whether a literal is in the line.
func (l *longLine) contains(text literal) bool {
	for {
		if text.in(l.rest) {
			return true
		}
		if l.end {
			return false
		}
		// It may begin in the last bytes of what is there.
		l.rest = l.rest[max(len(l.rest)-len(text.text)+1, 0):]
		l.more()
	}
}

// matchLong says whether a line matches, however long it is.
func (p *linePattern) matchLong(line *longLine) (bool, error) {
	matches := false
	if p.literal.whole {
		matches = line.contains(p.literal)
	} else {
		matches = p.re.MatchReader(line)
	}
	if line.err != nil {
		return false, line.err
	}
	return matches, nil
}
