package pykernel

import (
	"embed"
	"io/fs"
	"path"
	"slices"
)

//go:embed python/*.py python/guestd_kernel/*.py
var python embed.FS

// Script is the file among Files that Python runs.
const Script = "launch.py"

// File is one file of the Python package.
type File struct {
	Name string // below the folder that it is written to, with slashes
	Data []byte
}

// Files returns the Python package, each folder's files after those above it.
func Files() []File {
	var files []File
	err := fs.WalkDir(python, "python", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".py" {
			return err
		}
		data, err := python.ReadFile(name)
		files = append(files, File{Name: name[len("python/"):], Data: data})
		return err
	})
	if err != nil {
		panic(err) // what is embedded can be read
	}
	return files
}

// Invocation is how a kernel's arguments are run by our script.
type Invocation struct {
	Python []string // the interpreter and its own arguments
	Kernel []string // the kernel's arguments
}

// Parse takes a kernel's arguments apart, and says whether they are ones that run
// ipykernel's own launcher, in the place of which our script can be put.
func Parse(args []string) (Invocation, bool) {
	for i := 1; i+1 < len(args); i++ {
		module := args[i+1]
		if args[i] == "-m" && (module == "ipykernel_launcher" || module == "ipykernel") {
			return Invocation{Python: args[:i:i], Kernel: args[i+2:]}, true
		}
	}
	return Invocation{}, false
}

// Cold returns the arguments of a process that is a kernel, with our script at the
// given path.
func (in Invocation) Cold(script string) []string {
	return slices.Concat(in.Python, []string{script}, in.Kernel)
}

// Server returns the arguments of a fork server that imports the given modules.
func (in Invocation) Server(script string, modules []string) []string {
	return slices.Concat(in.Python, []string{script, "--fork-server"}, modules)
}
