package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// singleDashed is the annotation of a verb that names, with blanks between them, those of its long
// flags that may stand behind a single hyphen, as find(1) has them.
const singleDashed = "single-dashed"

// spellFlags gives the arguments with the long flags of such a verb behind two hyphens, as the parser
// wants them.
func spellFlags(root *cobra.Command, args []string) []string {
	verb, _, err := root.Find(args)
	if err != nil {
		return args // which is told when they are parsed
	}
	names := strings.Fields(verb.Annotations[singleDashed])
	spelled := slices.Clone(args)
	for i, arg := range spelled {
		if arg == "--" {
			break
		}
		flag, _, _ := strings.Cut(arg, "=")
		if name, is := strings.CutPrefix(flag, "-"); is && slices.Contains(names, name) {
			spelled[i] = "-" + arg
		}
	}
	return spelled
}
