// Package programs builds this module's programs for tests which run them as people do.
//
// go test takes a result from its cache for as long as what it knows of is the same, and it
// does not know what a program is built from: so a test that uses this package depends on all
// of the module's sources.
//
// It is for tests alone. It starts no program but go build, which it waits for.
package programs

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Build builds programs, each named as its folder under cmd, into a folder: static, or with the race
// detector.
func Build(dir string, race bool, names ...string) error {
	if err := DependOnSources(); err != nil {
		return err
	}
	args := []string{"build", "-buildvcs=false", "-o", dir + "/"}
	cgo := "CGO_ENABLED=0"
	if race {
		args, cgo = append(args, "-race"), "CGO_ENABLED=1"
	}
	for _, name := range names {
		args = append(args, "guestd.internal/cmd/"+name)
	}
	build := exec.Command("go", args...)
	build.Env = append(os.Environ(), cgo)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", strings.Join(names, " and "), err, out)
	}
	return nil
}

// DependOnSources makes the test that is running, and not just TestMain, depend on the module's sources.
// Build does so for who calls it. It lists the module's folders: go test notes that, and compares sizes
// and times of modification of what is in them.
func DependOnSources() error {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	top, err := filepath.Glob(filepath.Join(root, "[a-z]*"))
	if err != nil || len(top) == 0 {
		return fmt.Errorf("looking for sources in %s: %w", root, err)
	}
	for _, path := range top {
		if filepath.Base(path) == "bin" {
			continue // what make builds
		}
		err := filepath.WalkDir(path, func(string, fs.DirEntry, error) error { return nil })
		if err != nil {
			return fmt.Errorf("looking for sources: %w", err)
		}
	}
	return nil
}
