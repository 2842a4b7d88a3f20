package kernel

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"guestd.internal/kernel/internal/jupyter"
)

const (
	// MaxResult bounds one representation of a value, in bytes. A larger one is
	// left out, and says so.
	MaxResult = 50 << 20
	// MaxMetadata bounds a value's metadata, in bytes.
	maxMetadata = 256 << 10

	// maxErrorValue and maxTraceback bound an error's message and its traceback, in
	// bytes: a message travels in one piece.
	maxErrorValue = 64 << 10
	maxTraceback  = 192 << 10
)

// unknownMIME stands for the types of a value that was too large to be looked at.
const unknownMIME = "application/octet-stream"

// parts converts a MIME bundle, without what is over the limit.
func parts(bundle map[string]json.RawMessage) []MIMEPart {
	var out []MIMEPart
	for _, part := range jupyter.Parts(bundle) {
		if n := len(part.Data); n > MaxResult {
			out = append(out, MIMEPart{MIME: part.MIME, Truncated: uint64(n)})
			continue
		}
		out = append(out, MIMEPart{MIME: part.MIME, Data: part.Data})
	}
	return out
}

// object is a JSON object that is not empty and within bounds, else nil.
func object(metadata json.RawMessage) []byte {
	switch text := string(metadata); {
	case text == "", text == "{}", text == "null", len(text) > maxMetadata:
		return nil
	}
	return metadata
}

// onOversized tells what was too large to be taken. Of a stream not even the name
// is known; it is stdout nearly always.
func (r *run) onOversized(msg *jupyter.Message) error {
	kinds := map[string]ResultKind{
		jupyter.TypeExecuteResult:     Main,
		jupyter.TypeDisplayData:       Display,
		jupyter.TypeUpdateDisplayData: Update,
	}
	kind, isResult := kinds[msg.Header.MsgType]
	switch {
	case isResult:
		r.emitResult(Result{Kind: kind, Parts: []MIMEPart{{MIME: unknownMIME, Truncated: msg.Skipped}}})
	case msg.Header.MsgType == jupyter.TypeStream:
		r.emit(Gap{Stream: StreamStdout, Bytes: msg.Skipped})
	case msg.Header.MsgType == jupyter.TypeError:
		r.fail("Error", fmt.Sprintf("the error's message and traceback are left out: %d bytes", msg.Skipped))
	}
	return nil
}

// boundedError is an error without colours and within the limits. What is left
// out is the middle, which says the least, and is marked.
func boundedError(e jupyter.ErrorContent) Error {
	out := Error{Name: shorten(className(e.Name), maxErrorValue), Value: shorten(e.Value, maxErrorValue)}
	room := maxTraceback
	for _, entry := range e.Traceback {
		entry = colours.ReplaceAllString(entry, "")
		out.Traceback = append(out.Traceback, entry)
		room -= len(entry)
	}
	if room < 0 {
		out.Traceback = []string{shorten(strings.Join(out.Traceback, "\n"), maxTraceback)}
	}
	return out
}

// className is an exception's name from what some Python kernels (xeus-python
// 0.14) have for it: "<class 'ZeroDivisionError'>".
func className(name string) string {
	if class, ok := strings.CutPrefix(name, "<class '"); ok {
		return strings.TrimSuffix(class, "'>")
	}
	return name
}

// shorten leaves out the middle of a text over a limit of bytes.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	head := text[:cut(text, limit/2)]
	tail := text[len(text)-limit/4:]
	tail = strings.TrimLeftFunc(tail, func(r rune) bool { return r == '\uFFFD' })
	return fmt.Sprintf("%s… [%d bytes left out] …%s", head, len(text)-len(head)-len(tail), tail)
}

// colours matches a terminal's SGR sequences.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// plain takes the colours out of text that is meant for a terminal's pager.
func plain(parts []MIMEPart) []MIMEPart {
	for i := range parts {
		if parts[i].MIME == "text/plain" {
			parts[i].Data = colours.ReplaceAll(parts[i].Data, nil)
		}
	}
	return parts
}
