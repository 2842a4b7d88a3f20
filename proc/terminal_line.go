package proc

import (
	"bytes"
	"unicode"

	"golang.org/x/sys/unix"
)

// maxLine is how much of a line a terminal takes (N_TTY_BUF_SIZE).
const maxLine = 4096

// keepLine returns what was typed since the last end of a line, once data was typed
// behind line.
func keepLine(line, data []byte) []byte {
	if i := bytes.LastIndexAny(data, "\r\n"); i >= 0 {
		line, data = line[:0], data[i+1:]
	}
	line = append(line, data...)
	return line[max(0, len(line)-maxLine):]
}

// endOfFile returns what has to be typed behind line for the program to read an end of
// file: VEOF ends the read of what the line has so far, and is the end of file only where
// that is nothing.
func (t *terminal) endOfFile(line []byte) []byte {
	termios := &unix.Termios{}
	termios.Cc[unix.VEOF] = 4
	_ = t.control(func(fd int) error {
		got, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			termios = got
		}
		return err
	})
	veof := termios.Cc[unix.VEOF]
	if termios.Lflag&unix.ICANON != 0 && len(edit(line, termios)) > 0 {
		return []byte{veof, veof}
	}
	return []byte{veof}
}

// edit returns what a terminal in canonical mode keeps of a line that is typed: without
// what special characters have erased, ended or thrown away.
func edit(line []byte, t *unix.Termios) []byte {
	is := func(c byte, flag uint32, names ...int) bool {
		for _, name := range names {
			if t.Lflag&flag == flag && c != 0 && c == t.Cc[name] {
				return true
			}
		}
		return false
	}
	var kept []byte
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case is(c, unix.ISIG, unix.VINTR, unix.VQUIT, unix.VSUSP):
			if t.Lflag&unix.NOFLSH == 0 {
				kept = nil
			}
		case is(c, 0, unix.VKILL, unix.VEOF, unix.VEOL), is(c, unix.IEXTEN, unix.VEOL2):
			kept = nil
		case is(c, 0, unix.VERASE):
			kept = eraseCharacter(kept, t.Iflag&unix.IUTF8 != 0)
		case is(c, unix.IEXTEN, unix.VWERASE):
			kept = eraseWord(kept)
		case is(c, unix.IEXTEN, unix.VLNEXT):
			if i++; i < len(line) {
				kept = append(kept, line[i])
			}
		default:
			kept = append(kept, c)
		}
	}
	return kept
}

func eraseCharacter(line []byte, utf8 bool) []byte {
	n := len(line)
	for n--; utf8 && n > 0 && line[n]&0xc0 == 0x80; n-- {
	}
	return line[:max(n, 0)]
}

// eraseWord erases the last word and what is behind it.
func eraseWord(line []byte) []byte {
	inWord := func(r rune) bool { // to n_tty every other character is a letter
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z' || r > unicode.MaxASCII
	}
	line = bytes.TrimRightFunc(line, func(r rune) bool { return !inWord(r) })
	return bytes.TrimRightFunc(line, inWord)
}
