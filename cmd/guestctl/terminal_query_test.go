package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

func TestAttributesInWhatATerminalSays(t *testing.T) {
	for said, want := range map[string]struct {
		sixels bool
		typed  string
	}{
		"":                             {false, ""},
		"\x1b[?62;4;22c":               {true, ""},
		"\x1b[?63;1;2;4c":              {true, ""},
		"\x1b[?4;6c":                   {false, ""}, // 4 is the kind of terminal: a VT132
		"\x1b[?64;14;24;44c":           {false, ""},
		"\x1b[?6c":                     {false, ""},
		"bob\n\x1b[?62;4cann\n":        {true, "bob\nann\n"},
		"\x1b[A\x1b[?1;2c":             {false, "\x1b[A"},
		"\x1b[?62;4":                   {false, "\x1b[?62;4"},
		"no answer":                    {false, "no answer"},
		"\x1b[?1u\x1b[?62;4c":          {true, "\x1b[?1u"},
		"\x1b[?9999999999999999999;4c": {true, ""},
	} {
		if sixels, typed := attributesIn([]byte(said)); sixels != want.sixels || string(typed) != want.typed {
			t.Errorf("%q: %t, %q, want %t, %q", said, sixels, typed, want.sixels, want.typed)
		}
	}
}

func TestTerminalsThatCanBeAsked(t *testing.T) {
	for _, c := range []struct {
		vars map[string]string
		can  bool
	}{
		{map[string]string{"TERM": "xterm-256color"}, true},
		{map[string]string{"TERM": "screen-256color"}, false},
		{map[string]string{"TERM": "xterm", "TMUX": "x"}, false},
		{map[string]string{"TERM": "dumb"}, false},
		{nil, false},
	} {
		if can := canBeAsked(func(name string) string { return c.vars[name] }); can != c.can {
			t.Errorf("with %v it can be asked: %t", c.vars, can)
		}
	}
}

// Nothing is asked but of one terminal that is both.
func TestOnlyOneTerminalIsAsked(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	_, other, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	// The slave itself is not this process's controlling terminal: it is in nobody's foreground.
	for name, in := range map[string]*os.File{"a pipe": in, "another terminal": other, "not in the foreground": slave} {
		if can, typed := asksForSixels(in, slave, time.Hour); can || typed != nil {
			t.Errorf("%s: %t, %q", name, can, typed)
		}
		poll := []unix.PollFd{{Fd: int32(master.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 0); n != 0 || err != nil {
			t.Errorf("%s: the terminal was written to (%d, %v)", name, n, err)
		}
	}
}

func TestRunAsksTheTerminalForSixels(t *testing.T) {
	g := startGuestWithPython(t)
	for _, name := range []string{"TMUX", "KITTY_WINDOW_ID", "TERM_PROGRAM"} {
		t.Setenv(name, "")
	}
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("SSH_CONNECTION", "so that there is time enough to answer")
	// input() waits until the terminal was asked.
	const code = `
import base64, os, time
from IPython.display import Image, display
picture = Image(base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='))
display(picture); display(picture)
while not os.path.exists(%q): time.sleep(0.01)
print('hello', input('name? '))`
	const question = "\x1b[c"
	for name, c := range map[string]struct{ answer, want, not string }{
		"sixels":    {"bob\r\x1b[?62;4;22c", "\x1bP0;1q", "saved"},
		"none":      {"bob\r\x1b[?62;22c", "saved picture-2.png", "\x1bP"},
		"no answer": {"bob\r", "saved picture-2.png", "\x1bP"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			asked := filepath.Join(t.TempDir(), "asked")
			s := startSession(t, pty.Winsize{Rows: 24, Cols: 80}, "--target", g.target, "run", "-c", fmt.Sprintf(code, asked))
			s.await(t, question)
			s.keys(t, c.answer)
			if err := os.WriteFile(asked, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			s.await(t, c.want)
			s.await(t, "hello bob") // what was typed meanwhile is not lost
			s.end(t, 0)
			if shown := s.shown(); strings.Contains(shown, c.not) || strings.Count(shown, question) != 1 || strings.Contains(shown, "[?62") {
				t.Errorf("the terminal shows %q", shown)
			}
		})
	}
}
