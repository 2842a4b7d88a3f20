package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const module = "guestd.internal"

// pkg is what `go list -json` tells of a package, as far as it is used here.
type pkg struct {
	ImportPath   string
	Dir          string
	Doc          string // the package comment's first sentence
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string // of GoFiles
	Deps         []string // what they import, and so on
	Standard     bool
}

// goList lists the packages that match patterns as the product is built: without
// cgo and with its build tags.
func goList(t *testing.T, patterns ...string) []pkg {
	t.Helper()
	fields := "-json=ImportPath,Dir,Doc,GoFiles,TestGoFiles,XTestGoFiles,Imports,Deps,Standard"
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-tags=grpcnotrace", fields}, patterns...)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", patterns, err, &stderr)
	}
	packages, err := decode(out)
	if err != nil {
		t.Fatalf("go list %v: %v", patterns, err)
	}
	return packages
}

// decode reads the JSON values that follow each other in out.
func decode(out []byte) ([]pkg, error) {
	var packages []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, fmt.Errorf("reading package %d: %w", len(packages), err)
		}
		packages = append(packages, p)
	}
}

// matches tells whether path is pattern, or below it where it ends in "/...".
// A pattern without a dot in its first element is one of this module's.
func matches(path, pattern string) bool {
	if first, _, _ := strings.Cut(pattern, "/"); first == "..." || !strings.Contains(first, ".") && !standard[pattern] {
		pattern = module + "/" + pattern
	}
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == below || strings.HasPrefix(path, below+"/")
	}
	return path == pattern
}

// standard holds the standard library's packages that rules name.
var standard = map[string]bool{"testing": true, "log": true}

func matchesAny(path string, patterns []string) bool {
	for _, pattern := range patterns {
		if matches(path, pattern) {
			return true
		}
	}
	return false
}

// inModule tells whether path is one of this module's packages.
func inModule(path string) bool { return matches(path, module+"/...") }
