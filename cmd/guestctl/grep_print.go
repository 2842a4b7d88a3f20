package main

import (
	"encoding/base64"
	"os"
	"strconv"
	"unicode/utf8"

	"guestd.internal/client"
)

// grepPrinter prints matches as grep -r does.
type grepPrinter struct {
	app     *app
	out     *results
	flags   *grepFlags
	several bool // paths were given
	colours bool

	path    string // of the last match; empty before a search
	name    string // the same, from what was given on
	shown   string // the same, as the user sees it
	named   bool   // lines of it are shown with its name
	last    uint64 // number of the last line that was printed of it
	printed bool   // there was a line of any file
	count   uint64 // matches in it, for -c
	files   int    // that were begun
}

func newGrepPrinter(a *app, f *grepFlags, several bool) *grepPrinter {
	return &grepPrinter{
		app: a, out: a.newResults(), flags: f, several: several,
		colours: isTerminal(a.stdout) && os.Getenv("NO_COLOR") == "",
	}
}

// match prints a match of the search that began at root, which the user calls given; empty is the
// home that nobody named.
func (p *grepPrinter) match(given string, root *client.FileInfo, m *client.SearchMatch) error {
	if m.Path != p.path {
		if err := p.endFile(); err != nil {
			return err
		}
		p.begin(given, root, m.Path)
	}
	p.count++
	switch {
	case p.flags.count:
		return nil
	case p.app.json:
		return p.out.printJSON(newJSONMatch(m, p.flags.list))
	case p.flags.list:
		return p.line(p.colour(colourName, p.shown))
	case m.Binary:
		return p.line("Binary file " + p.shown + " matches")
	case m.Line == nil:
		return nil // a kind of match that a later guestd may know
	}
	return p.lines(m)
}

// begin begins with another file.
func (p *grepPrinter) begin(given string, root *client.FileInfo, path string) {
	p.path, p.last, p.count = path, 0, 0
	p.files++
	p.name = underGiven(given, root.Path, path)
	p.shown = p.app.showName(p.name)
	p.named = !p.flags.withoutName && (p.flags.withName || p.several || root.IsDir())
}

// lines prints a line that matches and those around it.
func (p *grepPrinter) lines(m *client.SearchMatch) error {
	first := m.Line.Number
	if len(m.Before) > 0 {
		first = m.Before[0].Number
	}
	apart := p.last == 0 || first != p.last+1
	if p.printed && apart && p.flags.groups {
		if err := p.line(p.colour(colourMark, "--")); err != nil {
			return err
		}
	}
	for i := range m.Before {
		if err := p.numbered(&m.Before[i], nil, "-"); err != nil {
			return err
		}
	}
	if err := p.numbered(m.Line, m.Ranges, ":"); err != nil {
		return err
	}
	for i := range m.After {
		if err := p.numbered(&m.After[i], nil, "-"); err != nil {
			return err
		}
	}
	return nil
}

// numbered prints one line of the file; mark stands behind its name and number.
func (p *grepPrinter) numbered(line *client.SearchLine, ranges []client.SearchRange, mark string) error {
	p.last, p.printed = line.Number, true
	text := ""
	if p.named {
		text += p.colour(colourName, p.shown) + p.colour(colourMark, mark)
	}
	if p.flags.numbers {
		text += p.colour(colourNumber, strconv.FormatUint(line.Number, 10)) + p.colour(colourMark, mark)
	}
	end := 0
	if p.colours {
		for _, r := range ranges {
			text += string(line.Text[end:r.Start]) + p.colour(colourMatch, string(line.Text[r.Start:r.End]))
			end = r.End
		}
	}
	if line.Truncated {
		p.app.notice("%s: line %d is too long, and is cut after %d bytes", quoted(p.name), line.Number, len(line.Text))
	}
	return p.line(text + string(line.Text[end:]))
}

// endFile is for when nothing more will come of the last file; it prints, for -c, how much of it matches.
func (p *grepPrinter) endFile() error {
	path, count := p.path, p.count
	p.path, p.count = "", 0
	switch {
	case !p.flags.count || path == "":
		return nil
	case p.app.json:
		return p.out.printJSON(struct {
			jsonPath
			Count uint64 `json:"count"`
		}{newJSONPath(path), count})
	case p.named:
		return p.line(p.colour(colourName, p.shown) + p.colour(colourMark, ":") + strconv.FormatUint(count, 10))
	default:
		return p.line(strconv.FormatUint(count, 10))
	}
}

func (p *grepPrinter) line(text string) error {
	if _, err := p.out.WriteString(text + "\n"); err != nil {
		return err
	}
	return p.out.endLine()
}

// Colours of what grep prints, those of grep(1).
const (
	colourName   = "\x1b[35m"
	colourNumber = "\x1b[32m"
	colourMark   = "\x1b[36m"
	colourMatch  = "\x1b[1;31m"
)

func (p *grepPrinter) colour(colour, text string) string {
	if !p.colours {
		return text
	}
	return colour + text + colourReset
}

// jsonLine is a line of a file in JSON.
type jsonLine struct {
	Number    uint64 `json:"line_number"`
	Text      string `json:"text"`
	Base64    string `json:"text_base64,omitempty"` // where Text cannot carry its bytes
	Truncated bool   `json:"truncated,omitempty"`
}

func newJSONLine(l *client.SearchLine) jsonLine {
	line := jsonLine{Number: l.Number, Text: string(l.Text), Truncated: l.Truncated}
	if !utf8.Valid(l.Text) {
		line.Base64 = base64.StdEncoding.EncodeToString(l.Text)
	}
	return line
}

// jsonRange is a part of a line, in bytes.
type jsonRange struct {
	Start int `json:"start"`
	End   int `json:"end"`
}

// jsonMatch is a match in JSON; the line's fields are missing where the file is binary, or names alone are wanted.
type jsonMatch struct {
	jsonPath
	*jsonLine
	Ranges []jsonRange `json:"ranges,omitempty"`
	Before []jsonLine  `json:"before,omitempty"`
	After  []jsonLine  `json:"after,omitempty"`
	Binary bool        `json:"binary,omitempty"`
}

func newJSONMatch(m *client.SearchMatch, nameAlone bool) jsonMatch {
	out := jsonMatch{jsonPath: newJSONPath(m.Path)}
	if nameAlone {
		return out
	}
	out.Binary = m.Binary
	if m.Line != nil {
		line := newJSONLine(m.Line)
		out.jsonLine = &line
	}
	for _, r := range m.Ranges {
		out.Ranges = append(out.Ranges, jsonRange(r))
	}
	for i := range m.Before {
		out.Before = append(out.Before, newJSONLine(&m.Before[i]))
	}
	for i := range m.After {
		out.After = append(out.After, newJSONLine(&m.After[i]))
	}
	return out
}
