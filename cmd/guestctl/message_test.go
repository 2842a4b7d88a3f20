package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	"guestd.internal/client"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// apiWords are the names in guestd's API that nobody would write otherwise: with an underscore.
func apiWords() map[string]bool {
	words := map[string]bool{}
	add := func(name protoreflect.Name) {
		if strings.Contains(string(name), "_") {
			words[string(name)] = true
		}
	}
	var messages func(protoreflect.MessageDescriptors)
	enums := func(list protoreflect.EnumDescriptors) {
		for i := range list.Len() {
			for j := range list.Get(i).Values().Len() {
				add(list.Get(i).Values().Get(j).Name())
			}
		}
	}
	messages = func(list protoreflect.MessageDescriptors) {
		for i := range list.Len() {
			for j := range list.Get(i).Fields().Len() {
				add(list.Get(i).Fields().Get(j).Name())
			}
			enums(list.Get(i).Enums())
			messages(list.Get(i).Messages())
		}
	}
	for _, file := range []protoreflect.FileDescriptor{
		guestdv1.File_guestd_v1_file_proto, guestdv1.File_guestd_v1_process_proto, guestdv1.File_guestd_v1_code_proto,
		guestdv1.File_guestd_v1_common_proto, guestdv1.File_guestd_v1_system_proto,
	} {
		enums(file.Enums())
		messages(file.Messages())
	}
	return words
}

// TestErrorsSpeakOfFlags: what guestd refuses is told in guestctl's words, in one line and with every
// name between double quotes.
func TestErrorsSpeakOfFlags(t *testing.T) {
	g := startGuest(t)
	dir := plant(t, map[string]string{"tree/a": "1", "file": "2", "é": "3"})
	if err := syscall.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	words, word := apiWords(), regexp.MustCompile(`\w+`)
	if !words["WRITE_PLACEMENT_REPLACE"] || !words["before_lines"] {
		t.Fatalf("the API has %d words", len(words))
	}
	many := strings.Repeat("x", 5000)
	for _, c := range []struct {
		want string // DIR stands for dir
		args []string
	}{
		{`--append and --exclusive exclude each other`, []string{"write", "-a", "--exclusive", dir + "/file"}},
		{`--with-filename and --no-filename exclude each other`, []string{"grep", "-H", "--no-filename", "x", dir}},
		{`-name "[" has a syntax error`, []string{"find", dir, "-name", "["}},
		{`-exclude "[" has a syntax error`, []string{"find", dir + "/tree", "-exclude", "[", "-name", "nothing"}},
		{`"DIR": --include "[" has a syntax error`, []string{"grep", "--include", "[", "x", dir}},
		{`--exclude "[" has a syntax error`, []string{"cp", "-rq", "--exclude", "[", ":" + dir + "/tree", dir + "/new"}},
		{`"DIR": the pattern has more than 4096 bytes`, []string{"grep", many, dir}},
		{`the pattern "a)|(b": unexpected )`, []string{"grep", "-e", "a)|(b", dir}},
		{`the pattern "a\\nb": no line has a line end in it`, []string{"grep", "-w", `a\nb`, dir}},
		{`-maxdepth 300: want 0 to 256`, []string{"find", dir, "-maxdepth", "300"}},
		{`-type "q": want f`, []string{"find", dir, "-type", "q"}},
		{`-maxdepth "q": want a number`, []string{"find", dir, "-maxdepth", "q"}},
		{`--max-count "99999999999999999999": the number is too`, []string{"grep", "-m", "99999999999999999999", "x"}},
		{`--mode "99999": want an octal mode`, []string{"mkdir", "-m", "99999", dir + "/d"}},
		{`the path is empty`, []string{"stat", ""}},
		{`"/": the source is the root folder`, []string{"mv", "/", dir + "/new"}},
		{`"DIR/tree": the destination is inside the source`, []string{"mv", dir + "/tree", dir + "/tree/b"}},
		{`the destination is the source or inside it`, []string{"cp", "-r", ":" + dir + "/tree", ":" + dir + "/tree/b"}},
		{`the code: empty`, []string{"run", "-c", ""}},
		{`open "DIR/none é"`, []string{"cat", dir + "/none é"}},
		{`open "DIR/none é"`, []string{"cp", dir + "/none é", ":"}},
		{`(exec -- cat reads a FIFO)`, []string{"cat", dir + "/fifo"}},
		{`"/dev/zero" is a device, which may have no end: cat reads it`, []string{"cp", ":/dev/zero", dir}},
		{`open "DIR/two\nlines\x1b[2J"`, []string{"cat", dir + "/two\nlines\x1b[2J"}},
		{`DIR/xxx`, []string{"cat", dir + "/" + many[:4000-len(dir)]}},
		{`DIR/xxx`, []string{"cp", dir + "/" + many, ":"}},
		{`"xxx`, []string{"stat", many}},
		{`"xxx`, []string{many}},
		{`"xxx`, []string{"context", "delete", many}},
		{`unknown user or group: "xxx`, []string{"exec", "-u", many, "true"}},
		{`"xxx`, []string{"exec", "-e", "=" + many, "--", "true"}},
		{`…: file name too long`, []string{"exec", "-w", "/" + many, "--", "true"}},
	} {
		out := g.run(t, "", c.args...)
		want := strings.ReplaceAll(c.want, "DIR", dir)
		if c.want == `"xxx` {
			want = "xxxxxxxx…xxxxxxxx"
		}
		message, _, _ := strings.Cut(strings.TrimSuffix(out.stderr, "\n"), "\nTry '")
		if out.code != exitFailure || !strings.Contains(message, want) {
			t.Errorf("%.40q: exit code %d, %.500q, want %q", c.args, out.code, message, want)
		}
		if strings.ContainsAny(message, "\n\x1b") || len(message) > 700 {
			t.Errorf("%.40q: a message of %d bytes: %q", c.args, len(message), message)
		}
		for _, said := range word.FindAllString(message, -1) {
			if words[said] {
				t.Errorf("%.40q: %q is a word of the API: %q", c.args, said, message)
			}
		}
	}
}

// TestPlain holds the texts to one form, whoever has written them.
func TestPlain(t *testing.T) {
	long := strings.Repeat("é", 2000)
	refused := func(field, message string) error {
		return &client.Error{Code: codes.InvalidArgument, Reason: "INVALID_FIELD", Field: field, Message: message}
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("as it is"), `as it is`},
		{fmt.Errorf("saving: %w", &fs.PathError{Op: "open", Path: "a b", Err: syscall.ENOENT}), `saving: open "a b": no such file or directory`},
		{&os.LinkError{Op: "rename", Old: "a", New: "b", Err: syscall.EXDEV}, `rename "a" "b": invalid cross-device link`},
		{errors.New(`open "\u00e9\xff": gone`), `open "é\xff": gone`},
		{errors.New("a\x1b[2J\xff\u202eb"), `a\x1b[2J\xff\u202eb`},
		{refused("spec.env[2].name", "spec.env[2].name: has a NUL"), `--env has a NUL`},
		{refused("include", `invalid include: "[" has a syntax error`), `--include "[" has a syntax error`},
		{worded{refused("include", "invalid include: is bad"), findFields}, `-name is bad`},
		{refused("expected_sha256", "invalid expected_sha256: short"), `expected sha256: short`},
		{refused("", "malformed"), `malformed`},
		{fmt.Errorf("%s: %w", quoted("x"), refused("path", "invalid path: is empty")), `"x": the path is empty`},
	} {
		if got := plain(c.err); got != c.want {
			t.Errorf("%q becomes %q, want %q", c.err, got, c.want)
		}
		if again := plain(errors.New(c.want)); again != c.want {
			t.Errorf("%q becomes %q the second time", c.err, again)
		}
	}
	for _, text := range []string{`open "` + long + `": gone`, `open "` + long, `open "` + strings.Repeat(`\"`, 2000)} {
		got := plain(errors.New(text))
		if len(got) > 2*maxQuoted+20 || !strings.HasPrefix(got, text[:100]) || !strings.Contains(got, "…") || strings.HasSuffix(text, "gone") != strings.HasSuffix(got, "gone") {
			t.Errorf("%d bytes become %q", len(text), got)
		}
		if again := plain(errors.New(got)); again != got {
			t.Errorf("%q is cut to %q", got, again)
		}
	}
}

// TestCatReadsDevices as cat(1) does, also one that has no end.
func TestCatReadsDevices(t *testing.T) {
	g := startGuest(t)
	g.run(t, "", "cat", "/dev/null").want(t, 0, "", "")
	out := guestctl(t, []string{envTarget + "=" + g.target, "CTL=" + filepath.Join(bin, "guestctl")}, "", "exec", "-e", "CTL", "-e", envTarget, "--",
		"sh", "-c", `"$CTL" cat /dev/zero | head -c 3000000 | wc -c`)
	out.want(t, 0, "3000000\n", "")
}
