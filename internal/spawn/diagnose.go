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
			return badInterpreter(l.absolute(a.path), a.err)
		case err == nil && errors.Is(a.err, syscall.EACCES) && mayNotExecute(interpreterOf(l.absolute(a.path))):
			return badInterpreter(l.absolute(a.path), a.err)
		case err == nil || !isAbsence(err):
			denied = a.err
		}
	}
	if denied != nil {
		return &StartError{Reason: CommandNotExecutable, Path: name, Err: denied}
	}
	return &StartError{Reason: CommandNotFound, Path: name, Err: syscall.ENOENT}
}

// interpreterOf returns the interpreter that a script names, or "".
func interpreterOf(path string) string {
	line, script := bytes.CutPrefix(head(path), []byte("#!"))
	if !script {
		return ""
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	line = bytes.TrimLeft(line, " \t")
	if end := bytes.IndexAny(line, " \t"); end >= 0 {
		line = line[:end]
	}
	return string(line)
}

// head is what the kernel looks at to tell how a file is to be executed; nil where it may be executed and
// not read.
func head(path string) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, binprmBufSize)
	n, _ := unix.Read(fd, buf)
	return buf[:max(n, 0)]
}

// badInterpreter names what is wrong with the interpreter that a file asks for. It is quoted, since that may
// not be seen otherwise: a carriage return.
func badInterpreter(path string, err error) *StartError {
	what := "its interpreter"
	switch interpreter := interpreterOf(path); {
	case interpreter != "" && unix.Access(interpreter, unix.F_OK) == nil && isAbsence(err):
		what = fmt.Sprintf("the interpreter of its interpreter %q", interpreter)
	case interpreter != "":
		what = fmt.Sprintf("its interpreter %q", interpreter)
	case bytes.HasPrefix(head(path), []byte("\x7fELF")):
		what = "the loader that it is linked with"
	}
	return &StartError{Reason: BadInterpreter, Path: path, Err: fmt.Errorf("%s: %w", what, err)}
}

// mayNotExecute reports whether a file is there, and no program that the account may execute.
func mayNotExecute(path string) bool {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return false
	}
	return st.Mode&unix.S_IFMT != unix.S_IFREG || unix.Faccessat2(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) != nil
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
