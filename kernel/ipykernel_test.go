package kernel

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"guestd.internal/internal/spawn"
)

// kernelRoots is where scripts/kernel-roots.sh makes root file systems.
const kernelRoots = "../.cache/kernels"

// ipykernelsVariable names the suites whose ipykernel is tested, beside the
// machine's own: `make test-kernels` sets it, and makes their root file systems.
const ipykernelsVariable = "GUESTD_IPYKERNELS"

// onEachIPykernel runs a test with the machine's ipykernel, or with those of the
// Debian root file systems that the variable names.
func onEachIPykernel(t *testing.T, test func(t *testing.T, use func(*Config))) {
	t.Helper()
	suites := strings.Fields(os.Getenv(ipykernelsVariable))
	if len(suites) == 0 {
		t.Run("installed", func(t *testing.T) { test(t, func(*Config) {}) })
	}
	for _, suite := range suites {
		t.Run(suite, func(t *testing.T) {
			root, err := filepath.Abs(filepath.Join(kernelRoots, suite))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(root); err != nil {
				t.Fatalf("%v: make it with scripts/kernel-roots.sh %s", err, suite)
			}
			test(t, withRoot(t, root))
		})
	}
}

// withRoot makes the python3 of a root file system the user's kernel.
func withRoot(t *testing.T, root string) func(*Config) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("needs root, to change the root folder")
	}
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Fatalf("mount namespaces are not to be had: %v, %s", err, out)
	}
	// The kernels' folders are seen in there at the same place.
	if err := os.MkdirAll(root+stateRoot, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(root + stateRoot) }) // empty: nobody else saw the mounts
	dir := t.TempDir()
	python := filepath.Join(dir, "python3")
	script := fmt.Sprintf(`#!/bin/sh
exec unshare --mount sh -c '
	mount --bind "$1" "$0$1" && mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" || exit
	root=$0
	shift
	exec chroot "$root" /usr/bin/env --chdir="$PWD" --unset=PWD /usr/bin/python3 "$@"
' %q %q "$@"
`, root, stateRoot)
	if err := os.WriteFile(python, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(map[string]any{
		"argv":     []string{python, "-m", "ipykernel_launcher", "-f", "{connection_file}"},
		"language": "python", "display_name": "Python in " + root,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "kernels/python3"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kernels/python3/kernel.json"), spec, 0o644); err != nil {
		t.Fatal(err)
	}
	return func(cfg *Config) {
		cfg.Environment = func() []spawn.EnvVar { return []spawn.EnvVar{{Name: "JUPYTER_PATH", Value: dir}} }
	}
}

// Each ipykernel runs with our parts: no falling back to the stock kernel.
func TestOurLauncherIsUsed(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) {
		cs := newContexts(t, use)
		out := mustOK(t, cs, "import ipykernel, IPython, sys, threading\nprint(ipykernel.__version__, IPython.__version__, sys.version.split()[0])\n"+
			"print(type(get_ipython().kernel).__module__, 'debugpy' in sys.modules)")
		version, rest, _ := strings.Cut(out.stdout, "\n")
		t.Log("ipykernel, IPython, Python:", version)
		if rest != "guestd_kernel.kernel False\n" {
			t.Errorf("the kernel's module, and whether debugpy was imported: %q, stderr %q", rest, out.stderr)
		}
		// No TCP port is open, but descriptors of sockets are there.
		out = mustOK(t, cs, `
import os
with open('/proc/net/tcp') as f: ours = f.read().split()
links = ['/proc/self/fd/' + n for n in os.listdir('/proc/self/fd')]
sockets = [os.readlink(link) for link in links if os.path.lexists(link)]
sockets = [s[8:-1] for s in sockets if s.startswith('socket:[')]
print(len(sockets) > 0, [s for s in sockets if s in ours])`)
		if out.stdout != "True []\n" {
			t.Errorf("sockets, TCP sockets: %s", out.stdout)
		}
	})
}
