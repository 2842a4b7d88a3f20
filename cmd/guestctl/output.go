package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// println prints one line for people or scripts on stdout.
func (a *app) println(line string) error {
	_, err := fmt.Fprintln(a.stdout, line)
	return err
}

// printJSON prints one object on a line of its own.
func (a *app) printJSON(object any) error {
	encoder := json.NewEncoder(a.stdout)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(object)
}

// jsonPath is a path of the guest in JSON, which cannot carry bytes that are not UTF-8: then Base64
// has them.
type jsonPath struct {
	Path   string `json:"path"`
	Base64 string `json:"path_base64,omitempty"`
}

func newJSONPath(path string) jsonPath {
	p := jsonPath{Path: path}
	if !utf8.ValidString(path) {
		p.Base64 = base64.StdEncoding.EncodeToString([]byte(path))
	}
	return p
}

// showName makes a name safe for a terminal: one that could move the cursor or hide itself is
// quoted. Elsewhere it stays as it is.
func (a *app) showName(name string) string {
	if !isTerminal(a.stdout) {
		return name
	}
	return quoteUnprintable(name)
}

func quoteUnprintable(name string) string {
	if !utf8.ValidString(name) {
		return strconv.Quote(name)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return strconv.Quote(name)
		}
	}
	return name
}
