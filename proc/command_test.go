package proc

import (
	"strings"
	"testing"
)

// A process is known by some of its arguments; the megabytes that they may have are not kept.
func TestLongArgumentsAreNotKept(t *testing.T) {
	table := newTable(t)
	long := strings.Repeat("x", 120<<10)
	for name, spec := range map[string]Spec{
		"arguments":  {Args: []string{"true", "short", long, "behind"}},
		"shell line": shell(": " + long),
		"many":       {Args: append([]string{"true", "short"}, make([]string, 20_000)...)},
	} {
		p, err := table.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		<-p.done
		info := p.Info()
		kept := strings.Join(info.Args, "")
		if !info.ArgsCut || len(kept)+argOverhead*len(info.Args) > maxKeptArgs || p.spec.Shell != nil || p.spec.Args != nil {
			t.Errorf("%s: %d arguments of %d bytes are kept, cut %v", name, len(info.Args), len(kept), info.ArgsCut)
		}
		if want := append(spec.Args, "/bin/sh")[0]; info.Args[0] != want {
			t.Errorf("%s: it is known as %q", name, info.Args[0])
		}
	}
	p, err := table.Start(t.Context(), Spec{Args: []string{"true", "a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if info := p.Info(); info.ArgsCut || len(info.Args) != 3 {
		t.Errorf("short arguments: %q, cut %v", info.Args, info.ArgsCut)
	}
}
