package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// defaultEscape begins what is for guestctl itself among the keys that go to a terminal of the guest, at
// the start of a line, as with ssh.
const defaultEscape = '~'

// escapeFlag is the value of --escape: a character, or none.
type escapeFlag byte

func addEscapeFlag(flags *pflag.FlagSet, into *escapeFlag) {
	*into = defaultEscape
	flags.Var(into, "escape", "`CHAR` begins what is for guestctl itself, at the start of a line in a terminal: \"~.\" detaches; none switches that off")
}

// Set implements pflag.Value.
func (e *escapeFlag) Set(text string) error {
	switch {
	case text == "none":
		*e = 0
	case len(text) == 1 && text[0] > ' ' && text[0] < 0x7f && text[0] != '.' && text[0] != '?':
		*e = escapeFlag(text[0])
	case len(text) == 2 && text[0] == '^' && text[1] > '@' && text[1] <= '_' && !strings.ContainsRune("CJM", rune(text[1])):
		*e = escapeFlag(text[1] - '@')
	default:
		return errors.New(`want a character such as "~", a control character such as "^]", or none`)
	}
	return nil
}

// String implements pflag.Value.
func (e *escapeFlag) String() string {
	switch {
	case *e == 0:
		return "none"
	case *e < ' ':
		return "^" + string(rune(*e+'@'))
	}
	return string(rune(*e))
}

// Type implements pflag.Value.
func (e *escapeFlag) Type() string { return "char" }

// escapes takes out of what is typed what is for guestctl. It begins at a line's start.
type escapes struct {
	char    byte // 0: nothing is taken out
	inLine  bool // something was typed since the last line end
	pending bool // the escape character was, and its meaning is not known yet
}

// Keys of a terminal in raw mode.
const (
	keyCtrlC = 3
	keyEnter = '\r'
)

// What follows the escape character.
const (
	escapeDetach = '.'
	escapeHelp   = '?'
)

// filter splits what was typed into what is the guest's and, where there is one, the first command to
// guestctl. The rest was typed behind that.
func (e *escapes) filter(typed []byte) (forGuest []byte, command byte, rest []byte) {
	if e.char == 0 {
		return typed, 0, nil
	}
	for i, key := range typed {
		switch {
		case e.pending && (key == escapeDetach || key == escapeHelp):
			e.pending = false
			return forGuest, key, typed[i+1:]
		case e.pending:
			e.pending, e.inLine = false, true
			if key != e.char { // twice is the character itself
				forGuest = append(forGuest, e.char)
			}
		case key == e.char && !e.inLine:
			e.pending = true
			continue
		}
		e.inLine = key != keyEnter && key != '\n' && key != keyCtrlC
		forGuest = append(forGuest, key)
	}
	return forGuest, 0, nil
}

func (e *escapes) help() string {
	char := (*escapeFlag)(&e.char).String()
	return strings.ReplaceAll("at the start of a line: ~. detaches and lets the command go on; ~~ types ~; ~? is this", "~", char)
}

// terminalKeys is what is typed into a terminal of the guest. Ctrl-C is the guest's own unless it is out
// of reach. It has no end: that of a raw terminal is its window's, of which SIGHUP tells, and no Ctrl-D.
// It is for one goroutine.
type terminalKeys struct {
	from       io.Reader
	connection *connectionWatch
	escapes    escapes
	say        func(format string, args ...any)
	// detach ends guestctl's part. It is called once, when all that was typed before has been read.
	detach func()

	forGuest, rest []byte
	command        byte
}

func (a *app) terminalKeys(escape escapeFlag) *terminalKeys {
	return &terminalKeys{from: a.stdin, connection: a.connection, escapes: escapes{char: byte(escape)}, say: a.notice}
}

// Read implements io.Reader.
func (k *terminalKeys) Read(p []byte) (int, error) {
	for len(k.forGuest) == 0 {
		switch k.command {
		case escapeDetach:
			k.detach()
			select {} // this goroutine's last word, until guestctl ends
		case escapeHelp:
			k.say("%s", k.escapes.help())
		}
		typed := k.rest
		if len(typed) == 0 {
			n, err := k.from.Read(p)
			if n == 0 && err != nil {
				select {}
			}
			typed = bytes.Clone(p[:n])
		}
		k.forGuest, k.command, k.rest = k.escapes.filter(typed)
	}
	n := copy(p, k.forGuest)
	if bytes.IndexByte(p[:n], keyCtrlC) >= 0 {
		k.connection.giveUp(signalError(syscall.SIGINT))
	}
	k.forGuest = k.forGuest[n:]
	return n, nil
}
