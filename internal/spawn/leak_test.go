package spawn

import (
	"runtime"
	"strings"
)

// runtimeGoroutines counts goroutines by the stack of functions they are in.
func runtimeGoroutines() map[string]int {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	counts := make(map[string]int)
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		var names []string
		for line := range strings.Lines(stack) {
			if strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "goroutine ") {
				continue
			}
			name, _, _ := strings.Cut(line, "(0x")
			name, _, _ = strings.Cut(name, " in goroutine")
			names = append(names, strings.TrimSpace(name))
		}
		trace := strings.Join(names, "\n")
		if strings.Contains(trace, "os/signal.") || strings.Contains(trace, "runtimeGoroutines") {
			continue
		}
		counts[trace]++
	}
	return counts
}
