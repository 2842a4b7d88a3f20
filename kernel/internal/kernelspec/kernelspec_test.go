package kernelspec

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// install writes a kernelspec into the data folder dir.
func install(t *testing.T, dir, name, program string) {
	t.Helper()
	write(t, filepath.Join(dir, "kernels", name, "kernel.json"),
		fmt.Sprintf(`{"argv": [%q, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "language": "python", "display_name": %q}`, program, name), 0o644)
}

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestDataDirs(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		want string
	}{
		"plain":     {nil, "/home/u/.local/share/jupyter /usr/local/share/jupyter /usr/share/jupyter"},
		"path":      {map[string]string{"JUPYTER_PATH": "/a:/b/:relative::/a"}, "/a /b /home/u/.local/share/jupyter /usr/local/share/jupyter /usr/share/jupyter"},
		"data dir":  {map[string]string{"JUPYTER_DATA_DIR": "/d", "XDG_DATA_HOME": "/x"}, "/d /usr/local/share/jupyter /usr/share/jupyter"},
		"xdg":       {map[string]string{"XDG_DATA_HOME": "/x"}, "/x/jupyter /usr/local/share/jupyter /usr/share/jupyter"},
		"installed": {map[string]string{"PATH": "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin:/opt/shims"}, "/home/u/.local/share/jupyter /opt/venv/share/jupyter /usr/local/share/jupyter /usr/share/jupyter"},
	} {
		if got := strings.Join(DataDirs(env(test.env), "/home/u"), " "); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	many := strings.Repeat("/x:", 10) + strings.Join(slices.Collect(func(yield func(string) bool) {
		for i := 0; i < 1000 && yield(fmt.Sprintf("/d%d", i)); i++ {
		}
	}), ":")
	if n := len(DataDirs(env(map[string]string{"JUPYTER_PATH": many}), "/home/u")); n != maxDirs {
		t.Errorf("%d folders", n)
	}
}

func TestFind(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	install(t, first, "Zeta", "/bin/sh")
	install(t, first, "alpha", "/bin/sh")
	install(t, second, "ALPHA", "/bin/false") // the first folder's counts
	install(t, second, "beta", "/bin/sh")
	write(t, filepath.Join(second, "kernels/broken/kernel.json"), "{", 0o644)
	write(t, filepath.Join(second, "kernels/empty/kernel.json"), `{"argv": []}`, 0o644)
	write(t, filepath.Join(second, "kernels/large/kernel.json"), `{"argv": ["x"]}`+strings.Repeat(" ", maxFile), 0o644)
	if err := os.MkdirAll(filepath.Join(second, "kernels/none"), 0o755); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(second, "kernels/fifo/kernel.json") // nobody writes: a blocking open would hang
	if err := os.MkdirAll(filepath.Dir(fifo), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, spec := range Find([]string{first, filepath.Join(first, "missing"), second}) {
		names = append(names, spec.Name+"="+spec.Argv[0])
	}
	if got := strings.Join(names, " "); got != "zeta=/bin/sh alpha=/bin/sh beta=/bin/sh" {
		t.Errorf("found %s", got)
	}
}

func TestProgram(t *testing.T) {
	prefix, elsewhere := t.TempDir(), t.TempDir()
	data := filepath.Join(prefix, "share/jupyter")
	install(t, data, "own", "python")
	install(t, data, "path", "tool")
	install(t, data, "gone", "/no/such/python")
	install(t, data, "folder", prefix)
	install(t, data, "relative", "bin/python")
	write(t, filepath.Join(prefix, "bin/python"), "", 0o755)
	write(t, filepath.Join(elsewhere, "python"), "", 0o755)
	write(t, filepath.Join(elsewhere, "tool"), "", 0o755)
	write(t, filepath.Join(prefix, "bin/tool"), "", 0o644) // not executable
	want := map[string]string{"own": prefix + "/bin/python", "path": elsewhere + "/tool", "gone": "", "folder": "", "relative": ""}
	specs := Find([]string{data})
	if len(specs) != len(want) {
		t.Fatalf("%d specs", len(specs))
	}
	for _, spec := range specs {
		program, ok := spec.Program("relative:" + elsewhere)
		if ok != (want[spec.Name] != "") || ok && program != want[spec.Name] {
			t.Errorf("%s: %q, %v", spec.Name, program, ok)
		}
	}
}

func TestCommandAndEnvironment(t *testing.T) {
	spec, err := parse([]byte(`{"argv": ["p", "{resource_dir}/x", "-f={connection_file}", "{other}"], "env": {"A": "${HOME}/a:$B", "C": "c"},
		"interrupt_mode": "message", "language": "R", "metadata": {"any": 1}}`))
	if err != nil {
		t.Fatal(err)
	}
	spec.Dir = "/dir"
	if got := strings.Join(spec.Command("/bin/p", "/c.json"), " "); got != "/bin/p /dir/x -f=/c.json {other}" {
		t.Errorf("command %s", got)
	}
	got := spec.Environment(env(map[string]string{"HOME": "/h"}))
	if len(got) != 2 || got["A"] != "/h/a:" || got["C"] != "c" {
		t.Errorf("environment %v", got)
	}
	if spec.InterruptMode != InterruptMessage || spec.IsIPython() {
		t.Errorf("%+v", spec)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"argv": ["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"], "env": {"A": "$B"}}`))
	f.Add([]byte(`{"argv": ["\u0000"], "env": {"": ""}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := parse(data)
		if err != nil {
			return
		}
		args := spec.Command("/p", "/c")
		if len(args) == 0 || len(args) > maxArgs || strings.ContainsRune(strings.Join(args, ""), 0) {
			t.Fatalf("arguments %q", args)
		}
		spec.Environment(func(string) string { return "" })
		spec.Program("/bin")
	})
}
