package main

import (
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// helpWidth is how wide help is, whatever the terminal: it is what manuals have.
const helpWidth = 80

// wrapHelp breaks the lines of all verbs' long texts.
func wrapHelp(cmd *cobra.Command) {
	cmd.Long = wrapText(cmd.Long, helpWidth)
	for _, verb := range cmd.Commands() {
		wrapHelp(verb)
	}
}

// wrapText breaks a text's paragraphs into lines. One that begins with a blank is a list or table and
// stays as it is.
func wrapText(text string, width int) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, paragraph := range paragraphs {
		if !strings.HasPrefix(paragraph, " ") {
			paragraphs[i] = wrapParagraph(paragraph, width)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

func wrapParagraph(paragraph string, width int) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(paragraph) {
		length := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+length > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += length
	}
	return b.String()
}
