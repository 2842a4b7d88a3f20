package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/creack/pty"
)

func TestEscapes(t *testing.T) {
	for _, c := range []struct {
		escape, typed, guest, said string
		detaches                   bool
	}{
		{"~", "ls\r", "ls\r", "", false},
		{"~", "~.", "", "", true},
		{"~", "make\r~.lost", "make\r", "", true},
		{"~", "a\x03~.", "a\x03", "", true}, // Ctrl-C ends a line, too
		{"~", "cd ~.\r", "cd ~.\r", "", false},
		{"~", "~~.\r", "~.\r", "", false},
		{"~", "~~~.\r", "~~.\r", "", false},
		{"~", "~/bin/x\r~\r", "~/bin/x\r~\r", "", false},
		{"~", "a~\r", "a~\r", "", false},
		{"~", "~?x", "x", "~. detaches", false},
		{"~", "a\r~?~.", "a\r", "~. detaches", true},
		{"^]", "~.\r\x1d.", "~.\r", "", true},
		{"^]", "\x1d?", "", "^]. detaches", false},
		{"%", "%%\r%.", "%\r", "", true},
		{"none", "~.\r~?", "~.\r~?", "", false},
	} {
		for name, chunks := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "key by key": iotest.OneByteReader,
		} {
			var flag escapeFlag
			if err := flag.Set(c.escape); err != nil {
				t.Fatal(err)
			}
			guest, said, detached := typeKeys(t, flag, chunks(strings.NewReader(c.typed)))
			if guest != c.guest || detached != c.detaches || !strings.Contains(said, c.said) || (c.said == "") != (said == "") {
				t.Errorf("%q with %s, %s: the guest got %q, guestctl said %q, detached %v", c.typed, c.escape, name, guest, said, detached)
			}
		}
	}
}

// typeKeys has a terminalKeys read what is typed up to its end, and returns what the guest got.
func typeKeys(t *testing.T, flag escapeFlag, typed io.Reader) (guest, said string, detached bool) {
	t.Helper()
	var got, told bytes.Buffer
	end := make(chan struct{}, 2)
	a := &app{stderr: nil, connection: &connectionWatch{}}
	k := a.terminalKeys(flag)
	k.from = io.MultiReader(typed, endReader(end))
	k.say = func(format string, args ...any) { told.WriteString(args[0].(string)) }
	k.detach = func() { detached = true; end <- struct{}{} }
	go io.Copy(&got, k) // for ever: it has no end
	<-end
	return got.String(), told.String(), detached
}

// endReader tells when all before it has been read.
type endReader chan struct{}

func (e endReader) Read([]byte) (int, error) {
	e <- struct{}{}
	return 0, io.EOF
}

func TestEscapeFlag(t *testing.T) {
	for _, text := range []string{"", "~~", "é", ".", "?", " ", "^", "^a", "^M", "^C", "^J", "^@", "\x1b", "NONE"} {
		flag := escapeFlag('x')
		if err := flag.Set(text); (err == nil) != (text == "^") || err != nil && flag != 'x' {
			t.Errorf("%q: %v, %s", text, err, flag.String())
		}
	}
	for _, text := range []string{"~", "^]", "^A", "none", "%"} {
		var flag escapeFlag
		if err := flag.Set(text); err != nil || flag.String() != text {
			t.Errorf("%q: %v, %s", text, err, flag.String())
		}
	}
}

// What was left goes on, with all that was typed before, and can be come back to.
func TestDetachFromATerminal(t *testing.T) {
	g := startGuest(t)
	size := pty.Winsize{Rows: 24, Cols: 80}
	s := startSession(t, size, "--target", g.target, "exec", "-it", "--", "sh", "-c", "echo ready; while read line; do echo got $line; [ $line = end ] && exit 8; done")
	s.await(t, "ready")
	s.keys(t, "hello\r~.")
	s.await(t, "guestctl attach p-")
	s.end(t, 0)
	_, id, _ := strings.Cut(s.shown(), "guestctl attach ")
	id = strings.TrimSpace(id)
	if !strings.Contains(s.shown(), plainScreen) {
		t.Errorf("the screen is left as the program had it: %q", s.shown())
	}
	for range 2 {
		s = startSession(t, size, "--target", g.target, "attach", id)
		s.await(t, "got hello")
		s.keys(t, "~?")
		s.await(t, "~. detaches")
		s.keys(t, "~.")
		s.end(t, 0)
	}
	s = startSession(t, size, "--target", g.target, "attach", "--escape", "none", id)
	s.await(t, "got hello")
	s.keys(t, "~.\r")
	s.await(t, "got ~.")
	s.keys(t, "end\r")
	s.end(t, 8)
}

// A guest that ends with guestctl has nothing to come back to.
func TestDetachFromAPrivateGuest(t *testing.T) {
	s := startSession(t, pty.Winsize{Rows: 24, Cols: 80}, "shell")
	s.keys(t, "echo $((6 * 7))-\r")
	s.await(t, "42-")
	s.keys(t, "~.")
	s.end(t, 129)
}
