package archtest

import (
	"debug/elf"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the binaries' dependency lists anew")

// Budgets of the binaries, in bytes: guestd goes into every image and is read at
// every boot. The reason for more must be worth it.
var budgets = map[string]int64{
	"guestd":   20 << 20,
	"guestctl": 20 << 20,
}

// TestBinaries builds the binaries as they are shipped and looks at them.
func TestBinaries(t *testing.T) {
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "make", "build", "BIN="+bin)
	build.Dir = "../.."
	// The flags of a surrounding make are not meant for this one.
	build.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	for name, budget := range budgets {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(bin, name)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s has %.1f MiB of %d", name, float64(info.Size())/(1<<20), budget>>20)
			if info.Size() > budget {
				t.Errorf("%s has %d bytes, %d at most", name, info.Size(), budget)
			}
			checkStatic(t, path)
		})
	}
}

// checkStatic fails where the program needs anything of the guest's user land: a
// loader or libraries. guestd runs in images that have neither, or musl's.
func checkStatic(t *testing.T, path string) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
			t.Errorf("%s is not static: it has a %v segment", filepath.Base(path), segment.Type)
		}
	}
}

// TestDependencyLists compares what the binaries are made of, apart from the
// standard library, with the committed lists, so that a new dependency is seen in
// review however deep it is.
func TestDependencyLists(t *testing.T) {
	for name := range budgets {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range goList(t, "-deps", "./cmd/"+name) {
				if !p.Standard {
					got = append(got, p.ImportPath)
				}
			}
			slices.Sort(got)
			list := filepath.Join("testdata", name+".deps")
			if *update {
				if err := os.WriteFile(list, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(list)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Fields(string(want)), got); diff != "" {
				t.Errorf("%s depends on other packages than %s says (-listed +found):\n%s"+
					"where that is meant: go test ./internal/archtest -run TestDependencyLists -update", name, list, diff)
			}
		})
	}
}
