package fsapi

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// maxPath is the longest path that the kernel takes, without its NUL.
const maxPath = unix.PathMax - 1

// absolute checks a path of a request and makes it absolute. field names it in
// the error, which is an *InvalidError.
func absolute(field, path, home string) (string, error) {
	switch {
	case path == "":
		return "", &InvalidError{Field: field, Problem: "is empty"}
	case strings.IndexByte(path, 0) >= 0:
		return "", &InvalidError{Field: field, Problem: "contains a NUL byte"}
	case path[0] != '/':
		path = join(home, path)
	}
	if len(path) > maxPath {
		return "", &InvalidError{Field: field, Problem: fmt.Sprintf("has %d bytes, must have at most %d", len(path), maxPath)}
	}
	return path, nil
}

// tidy takes empty and "." components out of an absolute path. It leaves "..",
// which means something else behind a link.
func tidy(path string) string {
	if !strings.Contains(path, "//") && !strings.Contains(path, "/.") && (len(path) == 1 || !strings.HasSuffix(path, "/")) {
		return path
	}
	var b strings.Builder
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			b.WriteByte('/')
			b.WriteString(name)
		}
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

// join appends a name to a folder's path.
func join(folder, name string) string {
	if strings.HasSuffix(folder, "/") {
		return folder + name
	}
	return folder + "/" + name
}

// split cuts an absolute path into its folder and its last name. Slashes at the
// end are cut off and told: they demand a folder. The root's base is "".
func split(path string) (folder, base string, slash bool) {
	trimmed := strings.TrimRight(path, "/")
	slash = len(trimmed) != len(path)
	cut := strings.LastIndexByte(trimmed, '/')
	if cut < 0 {
		return "/", trimmed, slash
	}
	return trimmed[:cut+1], trimmed[cut+1:], slash
}

// entryName checks that a path names an entry of a folder, which can be made,
// removed or moved: not the root, "." or "..".
func entryName(field, path string) (folder, base string, slash bool, err error) {
	folder, base, slash = split(path)
	switch base {
	case "":
		return "", "", false, &InvalidError{Field: field, Problem: "is the root folder"}
	case ".", "..":
		return "", "", false, &InvalidError{Field: field, Problem: `ends in "." or ".."`}
	}
	return folder, base, slash, nil
}
