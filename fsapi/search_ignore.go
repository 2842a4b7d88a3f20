package fsapi

import (
	"bytes"
	"errors"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"guestd.internal/fsapi/internal/gitignore"
)

// ignoreName is the name of git's files of what to leave out.
const ignoreName = ".gitignore"

// maxIgnoreBytes is how much text of .gitignore files counts for one folder: it
// is all in memory, and each entry may be matched with all of it.
const maxIgnoreBytes = 4 * gitignore.MaxBytes

// ignoreFile is a .gitignore file that a folder is under.
type ignoreFile struct {
	file  *gitignore.File
	bytes int // of its text
	// above leads from the file's folder to the search's root, with a slash at its
	// end, or is empty; or skip is how much of a path from the root leads to the
	// file's folder.
	above string
	skip  int
}

// ignored says whether git leaves an entry of the folder out; below is its path
// from the search's root.
func (l *searchLevel) ignored(below string, folder bool) bool {
	for i := len(l.ignore) - 1; i >= 0; i-- {
		f := l.ignore[i]
		if verdict := f.file.Match(f.above+below[f.skip:], folder); verdict != gitignore.Undecided {
			return verdict == gitignore.Ignored
		}
	}
	return false
}

// addIgnored adds the folder's own .gitignore file to those above it.
func (s *searcher) addIgnored(level *searchLevel, above []ignoreFile) {
	level.ignore = above
	text, err := readIgnoreFile(level.dir.fd)
	if err == nil && len(text)+ignoreBytes(above) > maxIgnoreBytes {
		err = ErrIgnoreLimit
	}
	if err != nil {
		s.fail(join(s.shown, path.Join(level.below, ignoreName)), "read", err)
		return
	}
	if len(text) == 0 {
		return
	}
	f := ignoreFile{file: gitignore.Parse(text), bytes: len(text)}
	if level.below != "" {
		f.skip = len(level.below) + 1
	}
	level.ignore = append(slices.Clip(above), f)
}

// ignoreBytes is how much text .gitignore files have together.
func ignoreBytes(files []ignoreFile) (total int) {
	for i := range files {
		total += files[i].bytes
	}
	return total
}

// ignoredFromAbove reads the .gitignore files of the folders around the search's
// root up to the root of the git work tree; outermost first. There are none if
// there is no work tree.
func (s *searcher) ignoredFromAbove(root int) []ignoreFile {
	if isWorkTree(root) {
		return nil
	}
	where, err := descriptorPath(root)
	if err != nil {
		return nil // without /proc nobody knows what the folders are called
	}
	var files []ignoreFile
	at, above := root, ""
	defer func() {
		if at != root {
			unix.Close(at)
		}
	}()
	for range MaxListDepth {
		folder, base, _ := split(where)
		up, err := openAt(at, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		if err != nil || base == "" {
			if err == nil {
				unix.Close(up)
			}
			return nil
		}
		if at != root {
			unix.Close(at)
		}
		at, where, above = up, folder, base+"/"+above
		// What cannot be read up there is none of the search's business.
		if text, _ := readIgnoreFile(at); len(text) > 0 && len(text)+ignoreBytes(files) <= maxIgnoreBytes {
			files = append(files, ignoreFile{file: gitignore.Parse(text), bytes: len(text), above: above})
		}
		if isWorkTree(at) {
			slices.Reverse(files)
			return files
		}
	}
	return nil
}

// isWorkTree says whether a folder is the root of a git work tree.
func isWorkTree(dir int) bool {
	info, err := statAt(dir, ".git")
	return err == nil && (info.Type == TypeDirectory || info.Type == TypeRegular)
}

// readIgnoreFile reads what counts of a folder's .gitignore file; nothing if there
// is none, or, as for git, it is a link or anything else.
func readIgnoreFile(dir int) ([]byte, error) {
	fd, err := openNoLinks(dir, ignoreName, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	info, err := statAt(fd, "")
	if err != nil || info.Type != TypeRegular {
		return nil, err
	}
	var text bytes.Buffer
	buf := make([]byte, min(max(info.Size, 512), gitignore.MaxBytes))
	for text.Len() < gitignore.MaxBytes {
		n, err := retry(func() (int, error) { return unix.Read(fd, buf) })
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		text.Write(buf[:n])
	}
	return text.Bytes()[:min(text.Len(), gitignore.MaxBytes)], nil
}
