package spawn

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/fscred"
)

// diagnose finds out why no candidate could be started. Fork and exec report an
// error number only, and the working directory's are the same as the file's: so
// everything is looked at once more, with the account's rights.
func (l *launch) diagnose(failed []attempt) error {
	var found *StartError
	err := fscred.Do(l.cmd.Account, func() error {
		found = l.examine(failed)
		return nil
	})
	if err != nil {
		return &StartError{Reason: Other, Path: l.cmd.Args[0], Err: err}
	}
	return found
}

// examine runs with the account's rights.
func (l *launch) examine(failed []attempt) *StartError {
	if reason, err := examineDir(l.cmd.Dir); err != nil {
		return &StartError{Reason: reason, Path: l.cmd.Dir, Err: err}
	}
	name := l.cmd.Args[0]
	for _, a := range failed {
		if !triesNext(a.err) {
			return classify(a)
		}
	}
	// As execvp does: a file that is there but may not be executed is told before
	// its absence elsewhere; and a missing interpreter before both.
	denied := error(nil)
	for _, a := range failed {
		err := unix.Faccessat2(unix.AT_FDCWD, l.absolute(a.path), unix.X_OK, unix.AT_EACCESS)
		switch {
		case err == nil && errors.Is(a.err, syscall.ENOENT):
			path := l.absolute(a.path)
			return &StartError{Reason: BadInterpreter, Path: path, Err: fmt.Errorf("%s: %w", interpreterOf(path), a.err)}
		case err == nil || !isAbsence(err):
			denied = a.err
		}
	}
	if denied != nil {
		return &StartError{Reason: CommandNotExecutable, Path: name, Err: denied}
	}
	return &StartError{Reason: CommandNotFound, Path: name, Err: syscall.ENOENT}
}

// interpreterOf says which interpreter is missing that a file asks for; it is quoted, since
// what is wrong with it may not be seen otherwise: a carriage return.
func interpreterOf(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "its interpreter" // may be executed, and not read
	}
	defer func() { _ = unix.Close(fd) }()
	var head [binprmBufSize]byte
	n, _ := unix.Read(fd, head[:])
	line, script := bytes.CutPrefix(head[:max(n, 0)], []byte("#!"))
	if !script {
		return "the loader that it is linked with"
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	line = bytes.TrimLeft(line, " \t")
	if end := bytes.IndexAny(line, " \t"); end >= 0 {
		line = line[:end]
	}
	return fmt.Sprintf("its interpreter %q", line)
}

// binprmBufSize is how much of a file the kernel looks at: BINPRM_BUF_SIZE.
const binprmBufSize = 256

// examineDir says what keeps the account from entering dir; a nil error says
// nothing does.
func examineDir(dir string) (Reason, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Faccessat2(fd, "", unix.X_OK, unix.AT_EACCESS|unix.AT_EMPTY_PATH)
		_ = unix.Close(fd)
	}
	switch err {
	case nil:
		return Other, nil
	case unix.ENOENT:
		return CwdNotFound, err
	case unix.ENOTDIR:
		return CwdNotDirectory, err
	case unix.EACCES, unix.EPERM:
		return CwdDenied, err
	}
	return Other, err
}

// classify names an error that ends the search.
func classify(a attempt) *StartError {
	var known *StartError
	if errors.As(a.err, &known) {
		return known
	}
	reason := Other
	switch errnoOf(a.err) {
	case syscall.E2BIG:
		reason = TooLong
	case syscall.ENOEXEC, syscall.EISDIR, syscall.ETXTBSY, syscall.ELIBBAD:
		reason = CommandNotExecutable
	}
	return &StartError{Reason: reason, Path: a.path, Err: a.err}
}

func isAbsence(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}
