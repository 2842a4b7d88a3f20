package spawn

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// defaultPath is where a command is looked up when the environment has no PATH,
// as confstr(_CS_PATH) has it.
const defaultPath = "/bin:/usr/bin"

// shellPath runs files of no known format, as execvp(3) has it.
const shellPath = "/bin/sh"

// exec does what execvp(3) does, from guestd's side of the fork: it tries each
// candidate until the kernel takes one, with the child's own rights, which is
// the only test that counts. Only what stat already says is not there costs no
// fork. A failure is a *StartError, diagnosed after the fact.
func (l *launch) exec() error {
	candidates := l.candidates()
	var failed []attempt
	for _, path := range candidates {
		if len(candidates) > 1 && !l.mayExist(path) {
			continue
		}
		err := l.fork(path, l.cmd.Args)
		if errors.Is(err, syscall.ENOEXEC) {
			script := append([]string{shellPath, path}, l.cmd.Args[1:]...)
			err = l.fork(shellPath, script)
		}
		if err == nil {
			return nil
		}
		failed = append(failed, attempt{path, err})
		if !triesNext(err) {
			break
		}
	}
	return l.diagnose(failed)
}

// attempt is a candidate that the kernel refused.
type attempt struct {
	path string
	err  error
}

// candidates returns the paths to try, relative ones as seen from Dir.
func (l *launch) candidates() []string {
	name := l.cmd.Args[0]
	if strings.Contains(name, "/") {
		return []string{name}
	}
	folders, ok := lookupEnv(l.env, "PATH")
	if !ok {
		folders = defaultPath
	}
	var paths []string
	for _, folder := range filepath.SplitList(folders) {
		if folder == "" {
			folder = "." // an empty entry is the working directory
		}
		paths = append(paths, strings.TrimSuffix(folder, "/")+"/"+name)
	}
	return paths
}

// mayExist says whether trying path is worth a fork. It looks with guestd's
// rights: what guestd cannot see for want of rights (a FUSE mount of the user's)
// may be there all the same.
func (l *launch) mayExist(path string) bool {
	var st unix.Stat_t
	err := unix.Stat(l.absolute(path), &st)
	return err != unix.ENOENT && err != unix.ENOTDIR
}

// absolute returns path as it is for the child, whose working directory is Dir.
func (l *launch) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return l.cmd.Dir + "/" + path
}

// triesNext says whether execvp(3) goes on with PATH's next folder.
func triesNext(err error) bool {
	switch errnoOf(err) {
	case syscall.EACCES, syscall.ENOENT, syscall.ENOTDIR, syscall.ESTALE, syscall.ENODEV, syscall.ETIMEDOUT:
		return true
	}
	return false
}

// lookupEnv returns the value of name in env, whose names are unique.
func lookupEnv(env []string, name string) (string, bool) {
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}
