package main

import (
	"os"
	"strings"

	"guestd.internal/client"
)

// textView prints events for people: text as it comes, values behind it, pictures shown or saved,
// notices on stderr.
type textView struct {
	app      *app
	pictures *pictureView
	colours  bool
	results  client.ResultAssembler
}

func newTextView(a *app, saveDir string, input *lineInput) *textView {
	return &textView{
		app: a, pictures: newPictureView(a, saveDir, input), colours: isTerminal(a.stderr) && os.Getenv("NO_COLOR") == "",
	}
}

func (v *textView) show(event client.Event) error {
	switch d := event.Detail.(type) {
	case client.Started:
		if d.FreshKernel {
			v.app.notice("a fresh kernel: earlier variables are gone (%s)", d.PreviousEnd)
		}
	case client.Text:
		return v.text(d)
	case client.Result, client.Data:
		if result, whole := v.results.Add(d); whole {
			return v.result(result)
		}
	case client.ClearOutput:
		return v.clear()
	case client.CodeError:
		_, err := v.app.stderr.WriteString(errorText(d, v.colours))
		return err
	case client.OutputGap:
		v.app.notice("%d bytes of output are lost", d.Bytes)
	case client.Finished:
		v.finished(d)
	}
	return nil
}

func (v *textView) text(t client.Text) error {
	out := v.app.stdout
	if t.Stream == client.Stderr {
		out = v.app.stderr
	}
	_, err := out.WriteString(t.Text)
	return err
}

// result shows a picture as such, and anything else as text, for which every kernel gives a
// representation.
func (v *textView) result(r client.Result) error {
	for _, part := range r.Parts {
		if part.TruncatedBytes > 0 {
			v.app.notice("a result's %s was left out: it is larger than guestd's limit", part.MIME)
		}
	}
	if shown, err := v.pictures.show(r); shown || err != nil {
		return err
	}
	if text, has := r.Part("text/plain"); has {
		return v.app.println(strings.TrimSuffix(string(text), "\n"))
	}
	return nil
}

// clear clears the current line, which is what progress bars need; a scrolled terminal cannot take
// more back.
func (v *textView) clear() error {
	if !isTerminal(v.app.stdout) {
		return nil
	}
	_, err := v.app.stdout.WriteString("\r\x1b[K")
	return err
}

func (v *textView) finished(f client.Finished) {
	if f.StateLost {
		v.app.notice("the context's variables are lost: the next run gets a fresh kernel")
	}
	if f.OutputIncomplete {
		v.app.notice("some output was lost in the kernel")
	}
}

// Colours of a traceback, as the terminal has them.
const (
	colourRed   = "\x1b[31m"
	colourBold  = "\x1b[1m"
	colourReset = "\x1b[0m"
)

// errorText is an error as it is printed: its traceback where it has one, else its name and value.
func errorText(e client.CodeError, colours bool) string {
	if e.Name == systemExit { // no error: see finishedError
		if _, message := pythonExit(e.Value); message != "" {
			return message + "\n"
		}
		return ""
	}
	var b strings.Builder
	trace := e.Traceback
	if e.Name == "ExitError" {
		trace = nil // the end of stderr, which was shown as it came
	}
	for _, entry := range trace {
		for line := range strings.Lines(strings.TrimSuffix(entry, "\n") + "\n") {
			b.WriteString(colourLine(line, e.Name, colours))
		}
	}
	if b.Len() == 0 {
		b.WriteString(colourLine(e.Error()+"\n", e.Name, colours))
	}
	return b.String()
}

// colourLine marks the line that names the error, and the one that an arrow points out as the place.
func colourLine(line, name string, colours bool) string {
	if !colours {
		return line
	}
	text := strings.TrimSuffix(line, "\n")
	switch {
	case name != "" && strings.HasPrefix(text, name):
		return colourRed + text + colourReset + "\n"
	case strings.HasPrefix(strings.TrimLeft(text, " "), "-->"), strings.HasPrefix(text, "----"):
		return colourBold + text + colourReset + "\n"
	default:
		return line
	}
}
