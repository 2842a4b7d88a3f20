// Package kernelspec finds the Jupyter kernels that are installed for a guest
// user (https://jupyter-client.readthedocs.io/en/stable/kernels.html#kernel-specs).
//
// It reads kernel.json files in Jupyter's data folders and says how their
// kernels are started. It starts nothing, knows no language, and installs
// nothing. The files belong to the guest's users, so their number and sizes are
// bounded, and nothing but regular files is read.
//
// All functions work on the calling thread only and are meant to run with the
// user's file-system rights (package fscred). They keep nothing open.
package kernelspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxFile  = 256 << 10 // bytes of a kernel.json
	maxSpecs = 256       // specs in all folders
	maxDirs  = 64        // data folders
	maxArgs  = 256       // arguments and environment variables of a spec
)

// Interrupt modes of a kernelspec.
const (
	InterruptSignal  = "signal"
	InterruptMessage = "message"
)

// Spec is one installed kernel.
type Spec struct {
	Name          string            // the folder's name, lower case
	DisplayName   string            // for people
	Language      string            // as the kernel calls it: "python", "R", …
	Argv          []string          // "{connection_file}" and "{resource_dir}" are placeholders
	Env           map[string]string // values may refer to ${NAME}
	InterruptMode string            // InterruptSignal or InterruptMessage
	Dir           string            // the folder of kernel.json
	prefix        string            // the installation that it belongs to, or ""
}

// IsIPython says whether the kernel is ipykernel behind its stock launcher.
func (s Spec) IsIPython() bool {
	return slices.ContainsFunc(s.Argv, func(arg string) bool {
		return arg == "ipykernel_launcher" || arg == "ipykernel"
	})
}

// DataDirs returns Jupyter's data folders for a user with the given environment
// and home, most specific first: JUPYTER_PATH, the user's own, those of the
// installations in PATH (a virtual environment's, conda's), the system's.
func DataDirs(getenv func(string) string, home string) []string {
	var dirs []string
	add := func(dir string) {
		if filepath.IsAbs(dir) && len(dirs) < maxDirs && !slices.Contains(dirs, filepath.Clean(dir)) {
			dirs = append(dirs, filepath.Clean(dir))
		}
	}
	for _, dir := range filepath.SplitList(getenv("JUPYTER_PATH")) {
		add(dir)
	}
	switch {
	case getenv("JUPYTER_DATA_DIR") != "":
		add(getenv("JUPYTER_DATA_DIR"))
	case getenv("XDG_DATA_HOME") != "":
		add(filepath.Join(getenv("XDG_DATA_HOME"), "jupyter"))
	default:
		add(filepath.Join(home, ".local/share/jupyter"))
	}
	for _, dir := range filepath.SplitList(getenv("PATH")) {
		if filepath.Base(dir) == "bin" && filepath.Dir(dir) != "/usr" && filepath.Dir(dir) != "/" {
			add(filepath.Join(filepath.Dir(dir), "share/jupyter"))
		}
	}
	add("/usr/local/share/jupyter")
	add("/usr/share/jupyter")
	return dirs
}

// Find returns the kernels in the given data folders, each name once, in the
// folders' order and by name within one. Folders and files that cannot be read
// or are not valid are left out: one user's broken spec must not hide others.
func Find(dirs []string) []Spec {
	var specs []Spec
	seen := make(map[string]bool)
	for _, dir := range dirs {
		for _, name := range subfolders(filepath.Join(dir, "kernels")) {
			key := strings.ToLower(name)
			if seen[key] || len(specs) == maxSpecs {
				continue
			}
			spec, err := read(filepath.Join(dir, "kernels", name))
			if err != nil {
				continue
			}
			spec.Name = key
			spec.prefix = prefixOf(dir)
			seen[key] = true
			specs = append(specs, spec)
		}
	}
	return specs
}

// prefixOf is the installation that a data folder is part of.
func prefixOf(dir string) string {
	prefix, ok := strings.CutSuffix(dir, "/share/jupyter")
	if !ok {
		return ""
	}
	return prefix
}

// subfolders returns at most maxSpecs names, sorted. A link to a folder counts.
func subfolders(dir string) []string {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // read only
	names, err := f.Readdirnames(maxSpecs)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	slices.Sort(names)
	return names
}

func read(dir string) (Spec, error) {
	path := filepath.Join(dir, "kernel.json")
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return Spec{}, fmt.Errorf("opening a kernelspec: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err != nil {
		return Spec{}, fmt.Errorf("looking at a kernelspec: %w", err)
	}
	if !info.Mode().IsRegular() {
		return Spec{}, fmt.Errorf("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return Spec{}, fmt.Errorf("reading a kernelspec: %w", err)
	}
	spec, err := parse(data)
	spec.Dir = dir
	return spec, err
}

var errInvalid = errors.New("not a valid kernelspec")

func parse(data []byte) (Spec, error) {
	if len(data) > maxFile {
		return Spec{}, fmt.Errorf("%w: over %d bytes", errInvalid, maxFile)
	}
	var file struct {
		Argv          []string          `json:"argv"`
		DisplayName   string            `json:"display_name"`
		Language      string            `json:"language"`
		Env           map[string]string `json:"env"`
		InterruptMode string            `json:"interrupt_mode"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return Spec{}, fmt.Errorf("%w: %w", errInvalid, err)
	}
	switch {
	case len(file.Argv) == 0 || file.Argv[0] == "":
		return Spec{}, fmt.Errorf("%w: no argv", errInvalid)
	case len(file.Argv) > maxArgs || len(file.Env) > maxArgs:
		return Spec{}, fmt.Errorf("%w: more than %d arguments or variables", errInvalid, maxArgs)
	}
	for _, arg := range file.Argv {
		if strings.ContainsRune(arg, 0) {
			return Spec{}, fmt.Errorf("%w: NUL in argv", errInvalid)
		}
	}
	for name, value := range file.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return Spec{}, fmt.Errorf("%w: environment variable %q", errInvalid, name)
		}
	}
	if file.InterruptMode != InterruptMessage {
		file.InterruptMode = InterruptSignal
	}
	return Spec{
		DisplayName:   file.DisplayName,
		Language:      file.Language,
		Argv:          file.Argv,
		Env:           file.Env,
		InterruptMode: file.InterruptMode,
	}, nil
}

// Program returns the path of the spec's interpreter, and false where it is not
// installed (any more). A bare name is looked for beside the spec's own
// installation first: pip writes "python" and means the Python it belongs to.
func (s Spec) Program(path string) (string, bool) {
	name := s.Argv[0]
	if filepath.IsAbs(name) {
		return name, executable(name)
	}
	if strings.Contains(name, "/") {
		return "", false // relative to nobody's folder
	}
	if s.prefix != "" {
		if program := filepath.Join(s.prefix, "bin", name); executable(program) {
			return program, true
		}
	}
	return LookPath(name, path)
}

// LookPath finds a program in a PATH value, as the calling thread's user could
// run it.
func LookPath(name, path string) (string, bool) {
	for _, dir := range filepath.SplitList(path) {
		if program := filepath.Join(dir, name); filepath.IsAbs(dir) && executable(program) {
			return program, true
		}
	}
	return "", false
}

func executable(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	// AT_EACCESS: with the thread's file-system rights, not guestd's real ids.
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) == nil
}

// Command returns the spec's arguments with the placeholders filled in, program
// in place of the first.
func (s Spec) Command(program, connectionFile string) []string {
	fill := strings.NewReplacer("{connection_file}", connectionFile, "{resource_dir}", s.Dir)
	args := make([]string, len(s.Argv))
	for i, arg := range s.Argv {
		args[i] = fill.Replace(arg)
	}
	args[0] = program
	return args
}

// Environment returns the spec's variables, references to other variables
// replaced by what getenv has.
func (s Spec) Environment(getenv func(string) string) map[string]string {
	env := make(map[string]string, len(s.Env))
	for name, value := range s.Env {
		env[name] = os.Expand(value, getenv)
	}
	return env
}
