package hosttree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	before := descriptors()
	code := m.Run()
	if after := descriptors(); code == 0 && after > before {
		_, _ = os.Stderr.WriteString("descriptors are left\n")
		code = 1
	}
	os.Exit(code)
}

// descriptors counts what is open, but for what the runtime keeps.
func descriptors() int {
	links, _ := filepath.Glob("/proc/self/fd/*")
	count := 0
	for _, link := range links {
		target, err := os.Readlink(link)
		if err == nil && !strings.Contains(target, "eventpoll") && !strings.Contains(target, "eventfd") {
			count++
		}
	}
	return count
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
