package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestEveryVerbIsHelpful: each verb says what it does and shows how, in lines that fit a terminal.
func TestEveryVerbIsHelpful(t *testing.T) {
	var look func(*cobra.Command)
	look = func(verb *cobra.Command) {
		if verb.Short == "" || !strings.Contains(verb.Example, verb.CommandPath()) {
			t.Errorf("%q has no word of what it does, or no example: %q", verb.CommandPath(), verb.Example)
		}
		for line := range strings.Lines(verb.Example) {
			if !strings.HasPrefix(line, "  ") || len(line) > 100 {
				t.Errorf("%q: an example reads %q", verb.CommandPath(), line)
			}
		}
		for _, below := range verb.Commands() {
			look(below)
		}
	}
	look(newRoot(&app{}))
}
