package main

import (
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"guestd.internal/client"
)

func TestProgressLine(t *testing.T) {
	for _, c := range []struct {
		name         string
		count, total uint64
		elapsed      time.Duration
		want         string
	}{
		{"a.bin", 0, 100 << 20, 0, "a.bin               0%  0 B  0 B/s  --:-- ETA"},
		{"a.bin", 25 << 20, 100 << 20, 5 * time.Second, "a.bin      25%  25.0 MiB  5.0 MiB/s  00:15 ETA"},
		{"a.bin", 100 << 20, 100 << 20, 20 * time.Second, "a.bin         100%  100.0 MiB  5.0 MiB/s  00:20"},
		{"a.bin", 3 << 30, 0, 3700 * time.Second, "a.bin            3.0 GiB  850.2 KiB/s  1:01:40"},
		{"grown", 200, 100, time.Second, "grown                100%  200 B  200 B/s  00:01"},
	} {
		got := progressLine(c.name, c.count, c.total, c.elapsed, 46)
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(c.want), " ") {
			t.Errorf("got %q, want %q", got, c.want)
		}
		if n := utf8.RuneCountInString(got); n != 46 {
			t.Errorf("%q is %d wide, want 46", got, n)
		}
	}
	long := progressLine(strings.Repeat("ä", 100), 1, 2, time.Second, 60)
	if utf8.RuneCountInString(long) != 60 || !strings.Contains(long, "…") {
		t.Errorf("a long name gives %q", long)
	}
	if narrow := progressLine("name-of-a-file", 1, 2, time.Second, 5); !strings.HasPrefix(narrow, "name-of…") {
		t.Errorf("a narrow terminal gives %q", narrow)
	}
}

func TestModesAsLsShowsThem(t *testing.T) {
	for mode, want := range map[fs.FileMode][2]string{
		0o644:                                     {"-rw-r--r--", "0644"},
		fs.ModeDir | 0o755:                        {"drwxr-xr-x", "0755"},
		fs.ModeSymlink | 0o777:                    {"lrwxrwxrwx", "0777"},
		fs.ModeSetuid | 0o755:                     {"-rwsr-xr-x", "04755"},
		fs.ModeSetgid | 0o640:                     {"-rw-r-S---", "02640"},
		fs.ModeDir | fs.ModeSticky | 0o777:        {"drwxrwxrwt", "01777"},
		fs.ModeSticky | 0o770:                     {"-rwxrwx--T", "01770"},
		fs.ModeNamedPipe | 0o600:                  {"prw-------", "0600"},
		fs.ModeSocket:                             {"s---------", "00"},
		fs.ModeDevice | fs.ModeCharDevice | 0o666: {"crw-rw-rw-", "0666"},
		fs.ModeDevice | 0o660:                     {"brw-rw----", "0660"},
	} {
		if got := symbolic(mode); got != want[0] {
			t.Errorf("%v is shown as %q, want %q", mode, got, want[0])
		}
		if got := octal(mode); got != want[1] {
			t.Errorf("%v is %q, want %q", mode, got, want[1])
		}
	}
	for bits := range uint32(0o10000) {
		var m fileMode
		if err := m.Set(octal(modeOfBits(bits))); err != nil || *m.value != modeOfBits(bits) {
			t.Fatalf("%o becomes %v, %v", bits, m.value, err)
		}
	}
	for _, bad := range []string{"", "8", "10000", "-1", "rwx"} {
		if new(fileMode).Set(bad) == nil {
			t.Errorf("the mode %q is taken", bad)
		}
	}
}

func TestPathsInJSON(t *testing.T) {
	for path, want := range map[string]string{
		"/tmp/ä<&>": `{"path":"/tmp/ä<&>"}`,
		"/tmp/\xff": `{"path":"/tmp/` + `\ufffd` + `","path_base64":"` + base64.StdEncoding.EncodeToString([]byte("/tmp/\xff")) + `"}`,
	} {
		var b strings.Builder
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(newJSONPath(path)); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(b.String()); got != want {
			t.Errorf("%q becomes %s, want %s", path, got, want)
		}
	}
}

func TestNamesThatCouldMoveTheCursor(t *testing.T) {
	for name, want := range map[string]string{
		"plain ä 日":      "plain ä 日",
		"\x1b[2Jgone":    `"\x1b[2Jgone"`,
		"two\nlines":     `"two\nlines"`,
		"not utf-8 \xff": `"not utf-8 \xff"`,
		"\u202egnp.exe":  `"\u202egnp.exe"`,
	} {
		if got := quoteUnprintable(name); got != want {
			t.Errorf("%q is shown as %s, want %s", name, got, want)
		}
	}
}

func TestErrorText(t *testing.T) {
	e := client.CodeError{Name: "ZeroDivisionError", Value: "division by zero", Traceback: []string{
		"ZeroDivisionError    Traceback (most recent call last)", "Cell In [1], line 1\n----> 1 1/0\n", "ZeroDivisionError: division by zero",
	}}
	plain := "ZeroDivisionError    Traceback (most recent call last)\nCell In [1], line 1\n----> 1 1/0\nZeroDivisionError: division by zero\n"
	if got := errorText(e, false); got != plain {
		t.Errorf("plainly it is %q", got)
	}
	coloured := errorText(e, true)
	if !strings.Contains(coloured, "\x1b[31mZeroDivisionError: division by zero\x1b[0m\n") || !strings.Contains(coloured, "\x1b[1m----> 1 1/0\x1b[0m\n") {
		t.Errorf("coloured it is %q", coloured)
	}
	for escape := range strings.SplitSeq("\x1b[31m \x1b[1m \x1b[0m", " ") {
		coloured = strings.ReplaceAll(coloured, escape, "")
	}
	if coloured != plain {
		t.Errorf("without its colours it is %q", coloured)
	}
	if got := errorText(client.CodeError{Name: "TimeoutError", Value: "too long"}, false); got != "TimeoutError: too long\n" {
		t.Errorf("without a traceback it is %q", got)
	}
}

func TestPictures(t *testing.T) {
	png := []byte(strings.Repeat("picture", 2000))
	kitty := kittyPicture(png)
	var joined strings.Builder
	for i, piece := range strings.Split(strings.TrimSuffix(kitty, "\x1b\\\n"), "\x1b\\") {
		head, data, found := strings.Cut(strings.TrimPrefix(piece, "\x1b_G"), ";")
		if !found || len(data) > 4096 || (i == 0) != strings.HasPrefix(head, "a=T,f=100,") {
			t.Errorf("piece %d is %d bytes with %q", i, len(data), head)
		}
		joined.WriteString(data)
	}
	encoded := base64.StdEncoding.EncodeToString(png)
	if joined.String() != encoded {
		t.Error("kitty's pieces are not the picture")
	}
	if got := iTermPicture(png); !strings.HasPrefix(got, "\x1b]1337;File=inline=1;size=14000:") || !strings.Contains(got, encoded+"\a") {
		t.Errorf("iTerm2's is %.60q", got)
	}
	env := func(vars map[string]string) func(string) string {
		return func(name string) string { return vars[name] }
	}
	for _, c := range []struct {
		vars map[string]string
		can  bool
	}{
		{map[string]string{"KITTY_WINDOW_ID": "1"}, true},
		{map[string]string{"TERM_PROGRAM": "iTerm.app"}, true},
		{map[string]string{"TERM": "foot"}, true},
		{map[string]string{"TERM": "mlterm-256color"}, true},
		{map[string]string{"TERM": "xterm-256color"}, false},
		{map[string]string{"TERM": "footloose"}, false},
		{map[string]string{"KITTY_WINDOW_ID": "1", "TMUX": "x"}, false},
	} {
		if can := inlineProtocol(env(c.vars)) != nil; can != c.can {
			t.Errorf("with %v pictures can be shown: %t", c.vars, can)
		}
	}
}

func TestPicturesGetFreeNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	for n, want := range []string{"picture-1.png", "picture-2.png", "picture-3.png"} {
		name, err := savePicture(dir, "png", []byte{byte(n)})
		if err != nil || name != filepath.Join(dir, want) {
			t.Errorf("got %q, %v; want %s", name, err, want)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "picture-1.png")); err != nil || len(got) != 1 || got[0] != 0 {
		t.Errorf("the first has become %v, %v", got, err)
	}
}

func TestCommandLine(t *testing.T) {
	for want, args := range map[string][]string{
		"sleep 5":        {"sleep", "5"},
		`sh -c 'a | b'`:  {"sh", "-c", "a | b"},
		`echo ''`:        {"echo", ""},
		`echo 'it'\''s'`: {"echo", "it's"},
		`echo "\x1b[2J"`: {"echo", "\x1b[2J"},
	} {
		if got := commandLine(&client.Process{Args: args}); got != want {
			t.Errorf("%q is shown as %s, want %s", args, got, want)
		}
	}
	if got := commandLine(&client.Process{Args: []string{strings.Repeat("x", 1000)}}); utf8.RuneCountInString(got) != 101 {
		t.Errorf("a long line has %d characters", utf8.RuneCountInString(got))
	}
}

func TestHelpIsWrapped(t *testing.T) {
	got := wrapText("one two three\nfour\n\n  a list   stays as it is\n  here\n\nverylongword x", 9)
	const want = "one two\nthree\nfour\n\n  a list   stays as it is\n  here\n\nverylongword\nx"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
