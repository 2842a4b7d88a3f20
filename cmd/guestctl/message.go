package main

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"guestd.internal/client"
)

// maxQuoted is how many bytes of a name a message shows.
const maxQuoted = 240

// cut stands for what is left out.
const cut = "…"

// quoted is how all messages show a name, or whatever else somebody gave: between double quotes, on
// one line, and without its middle where it is very long.
func quoted(text string) string {
	if len(text) > maxQuoted {
		const half = maxQuoted/2 - utf8.UTFMax // so that what is short enough is never cut again
		text = text[:charStart(text, half)] + cut + text[charStart(text, len(text)-half):]
	}
	return strconv.Quote(text)
}

// charStart is where the character begins that has a byte at i.
func charStart(text string, i int) int {
	for back := range utf8.UTFMax {
		if i-back >= 0 && utf8.RuneStart(text[i-back]) {
			return i - back
		}
	}
	return i
}

// plain is an error's text for people: each name in it as quoted has it, whoever wrote the text, what
// guestd's API calls something as guestctl does, and nothing in it that could move a terminal's cursor.
func plain(err error) string {
	text := err.Error()
	if refused, is := errors.AsType[*client.Error](err); is {
		text = strings.Replace(text, refused.Error(), refusal(err, refused), 1)
	}
	if file, is := errors.AsType[*fs.PathError](err); is {
		text = strings.Replace(text, file.Error(), file.Op+" "+strconv.Quote(file.Path)+": "+file.Err.Error(), 1)
	}
	if link, is := errors.AsType[*os.LinkError](err); is {
		text = strings.Replace(text, link.Error(),
			link.Op+" "+strconv.Quote(link.Old)+" "+strconv.Quote(link.New)+": "+link.Err.Error(), 1)
	}
	text = quotation.ReplaceAllStringFunc(text, requote)
	if errno, is := errors.AsType[syscall.Errno](err); is && strings.HasSuffix(text, cut) {
		text += ": " + errno.Error() // which was behind a name that guestd has cut
	}
	return printable(text)
}

// quotation is what stands between double quotes, or behind one that guestd has cut the end from.
var quotation = regexp.MustCompile(`"(?:[^"\\]|\\.)*(?:"|\\?$)`)

func requote(text string) string {
	if inner, err := strconv.Unquote(text); err == nil {
		return quoted(inner)
	}
	if len(text) > maxQuoted {
		return text[:charStart(text, maxQuoted)] + cut
	}
	return text
}

// printable shows what moves a cursor, and what is no text, by its number.
func printable(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		char, size := utf8.DecodeRuneInString(text)
		if char == '\n' || unicode.IsPrint(char) && (char != utf8.RuneError || size > 1) {
			b.WriteString(text[:size])
		} else {
			b.WriteString(strings.Trim(strconv.Quote(text[:size]), `"`))
		}
		text = text[size:]
	}
	return b.String()
}

// flagOfField is guestctl's name for what a field of guestd's API holds, where that is not the field's
// own with blanks in it.
var flagOfField = map[string]string{
	"after_lines": "-A", "args": "the command", "before_lines": "-B", "code": "the code", "cwd": "--workdir",
	"destination": "the destination", "env": "--env", "exclude": "--exclude", "include": "--include", "language": "--language",
	"max_bytes": "--max-bytes", "mode": "--mode", "path": "the path", "pattern": "the pattern", "source": "the source",
	"timeout": "--timeout", "user": "--user",
}

// worded gives fields another name than flagOfField does, for a verb that has other flags.
type worded struct {
	error
	fields map[string]string
}

// Unwrap implements errors.Unwrap.
func (w worded) Unwrap() error { return w.error }

// refusal is what guestd said of a request, which err has within it.
func refusal(err error, refused *client.Error) string {
	_, problem, is := strings.Cut(refused.Message, refused.Field+": ")
	if !is || refused.Field == "" {
		return refused.Error()
	}
	// Of a field within others, "spec.env[2].name", env is what counts.
	field, _, _ := strings.Cut(strings.TrimPrefix(refused.Field, "spec."), "[")
	name := flagOfField[field]
	if with, is := errors.AsType[worded](err); is && with.fields[field] != "" {
		name = with.fields[field]
	}
	if name == "" {
		name = strings.NewReplacer("_", " ", ".", " ").Replace(field)
	}
	if word, _, _ := strings.Cut(problem, " "); !verbs[word] && !strings.HasPrefix(problem, `"`) {
		name += ":"
	}
	return name + " " + problem
}

// verbs begin what guestd says is wrong with a field, as far as it makes a sentence.
var verbs = map[string]bool{
	"cannot": true, "contains": true, "ends": true, "excludes": true, "goes": true, "has": true, "is": true, "must": true, "names": true, "starts": true,
}
