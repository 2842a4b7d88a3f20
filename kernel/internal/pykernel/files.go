package pykernel

import (
	"embed"
	"io/fs"
	"path"
	"slices"
)

//go:embed python
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

// Arguments puts our script, at the given path, in the place of ipykernel's own
// launcher in a kernel's arguments, and says whether that is what they run.
func Arguments(args []string, script string) ([]string, bool) {
	for i := 1; i+1 < len(args); i++ {
		module := args[i+1]
		if args[i] == "-m" && (module == "ipykernel_launcher" || module == "ipykernel") {
			return slices.Concat(args[:i], []string{script}, args[i+2:]), true
		}
	}
	return args, false
}
