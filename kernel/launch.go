package kernel

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/internal/fscred"
	"guestd.internal/internal/id"
	"guestd.internal/internal/spawn"
	"guestd.internal/kernel/internal/jupyter"
	"guestd.internal/kernel/internal/kernelspec"
	"guestd.internal/kernel/internal/pykernel"
	"guestd.internal/kernel/internal/zmtp"
)

const (
	connectionFile = "connection.json"
	ipythonFolder  = "ipython"
	launcherFolder = "launcher"
)

// launcher starts kernels for one context.
type launcher struct {
	cfg      *Config
	acc      account.Account
	language string
	dir      string         // working directory, absolute; "" is the user's home
	env      []spawn.EnvVar // the context's own changes to the environment
}

// environment is what everything of the context runs with: our defaults, the
// guest's, the context's, and for a kernel its own folder.
func (l *launcher) environment(private string) []string {
	defaults := []spawn.EnvVar{
		{Name: "MPLBACKEND", Value: "module://matplotlib_inline.backend_inline"},
		{Name: "PYDEVD_DISABLE_FILE_VALIDATION", Value: "1"},
	}
	if private != "" {
		defaults = append(defaults, spawn.EnvVar{Name: "IPYTHONDIR", Value: private})
	}
	var configured []spawn.EnvVar
	if l.cfg.Environment != nil {
		configured = l.cfg.Environment()
	}
	return spawn.BuildEnv(l.acc, defaults, configured, l.env)
}

func getenv(env []string) func(string) string {
	return func(name string) string {
		for _, entry := range slices.Backward(env) {
			if value, ok := strings.CutPrefix(entry, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

func (l *launcher) find() (command, error) {
	return findLanguage(l.acc, l.language, getenv(l.environment("")))
}

// start starts a kernel and returns when it answers. ctx bounds all of it. Errors
// are *LanguageNotFoundError, *LanguageUnavailableError and *StartError.
func (l *launcher) start(ctx context.Context, generation uint64) (*session, error) {
	cmd, err := l.find()
	if err != nil {
		return nil, err
	}
	defer l.cfg.warm.begin()()
	s := l.cfg.warm.take(ctx, l, cmd, generation)
	if s == nil {
		if s, err = l.startCold(ctx, cmd, generation); err != nil {
			return nil, err
		}
	}
	l.cfg.warm.use(l, cmd, s)
	return s, nil
}

// startCold starts a kernel in a process of its own.
func (l *launcher) startCold(ctx context.Context, cmd command, generation uint64) (*session, error) {
	s, conn, err := l.spawn(cmd, generation)
	if err != nil {
		return nil, err
	}
	if err := s.handshake(ctx, conn); err != nil {
		err = s.explain(cmd, err)
		s.close()
		return nil, err
	}
	return s, nil
}

// spawn makes the kernel's folder and starts its process.
func (l *launcher) spawn(cmd command, generation uint64) (_ *session, _ jupyter.Connection, err error) {
	var undo undoList
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.run())
		}
	}()
	fail := func(problem string, err error) (*session, jupyter.Connection, error) {
		return nil, jupyter.Connection{}, &StartError{Problem: problem, Err: err}
	}
	dir, err := newFolder(l.cfg.StateDir, l.acc)
	if err != nil {
		return fail("preparing its folder", err)
	}
	undo.add(dir.remove)
	conn, err := dir.fill(cmd.spec, dir.seenBy(cmd.spec))
	if err != nil {
		return fail("preparing its folder", err)
	}
	tail, stderr, err := newStderrTail()
	if err != nil {
		return fail("preparing its stderr", err)
	}
	undo.add(func() error { tail.close(); return nil })
	control, theirs, err := newControl()
	if err != nil {
		_ = stderr.Close() // not started
		return fail("preparing its control socket", err)
	}
	undo.add(control.Close)
	s := l.newSession(cmd, conn, generation)
	s.id, s.folder, s.stderr, s.control = id.New("p"), dir, tail, control
	sockets, err := os.Open(dir.path)
	if err == nil {
		s.child, err = l.cfg.Spawner.Start(l.process(cmd, s, stderr, theirs, sockets))
		_ = sockets.Close() // as the others
	}
	_, _ = stderr.Close(), theirs.Close() // the kernel has its own
	if err != nil {
		return fail("starting its process", err)
	}
	s.log = s.log.With("pid", s.child.PID())
	return s, conn, nil
}

// newSession returns a session without process and folder.
func (l *launcher) newSession(cmd command, conn jupyter.Connection, generation uint64) *session {
	return &session{
		generation: generation,
		codec:      conn.Codec(),
		conns:      make(map[jupyter.Channel]*zmtp.Conn),
		log:        l.cfg.Logger.With("generation", generation),
		byMessage:  cmd.spec.InterruptMode == kernelspec.InterruptMessage,
		iopub:      make(chan incoming),
		replies:    make(chan incoming),
		stopped:    make(chan struct{}),
	}
}

// undoList takes back, last thing first, what was done in vain.
type undoList []func() error

func (u *undoList) add(fn func() error) { *u = append(*u, fn) }

func (u *undoList) run() error {
	var errs []error
	for _, fn := range slices.Backward(*u) {
		errs = append(errs, fn())
	}
	return errors.Join(errs...)
}

// foldersDescriptor is how a kernel sees its folder that has it as descriptor 3.
const foldersDescriptor = "/proc/self/fd/3"

// seenBy is the path by which a kernel finds its folder. Kernels that are built on
// xeus (C++, Python, SQL and others) take socket addresses of 32 bytes at most,
// "ipc://" and the final NUL included, so ours would be too long.
func (f *folder) seenBy(spec kernelspec.Spec) string {
	if spec.IsIPython() {
		return f.path
	}
	return foldersDescriptor
}

// fill puts the connection file, IPython's folder and, for an IPython kernel, our
// launcher into a kernel's folder. seen is the path by which the kernel finds it.
func (f *folder) fill(spec kernelspec.Spec, seen string) (jupyter.Connection, error) {
	conn, err := jupyter.NewConnection(f.path)
	if err != nil {
		return jupyter.Connection{}, err
	}
	file, err := conn.File(spec.Name, seen)
	if err != nil {
		return jupyter.Connection{}, err
	}
	err = errors.Join(f.write(connectionFile, file), f.mkdir(ipythonFolder))
	if err == nil && spec.IsIPython() {
		err = f.writeLauncher()
	}
	return conn, err
}

func (l *launcher) process(cmd command, s *session, stderr, control, sockets *os.File) spawn.Command {
	args := cmd.spec.Command(cmd.program, s.folder.path+"/"+connectionFile)
	command := spawn.Command{
		ID:      s.id,
		Args:    args,
		Env:     l.kernelEnvironment(cmd, s.folder),
		Dir:     l.workingDirectory(),
		Account: l.acc,
		Stderr:  stderr,
	}
	if in, ok := pykernel.Parse(args); ok {
		command.Args, command.Extra = in.Cold(s.folder.script()), control
	} else if !cmd.spec.IsIPython() {
		command.Extra = sockets
	}
	return command
}

// kernelEnvironment is the environment of a kernel: the context's, its own
// folder, and what the kernelspec says.
func (l *launcher) kernelEnvironment(cmd command, dir *folder) []string {
	env := l.environment(dir.path + "/" + ipythonFolder)
	extra := cmd.spec.Environment(getenv(env))
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		env = append(env, name+"="+extra[name]) // the last of a name wins
	}
	return env
}

// workingDirectory is the context's; without one the user's home, or / where that
// does not exist.
func (l *launcher) workingDirectory() string {
	if l.dir != "" {
		return l.dir
	}
	err := fscred.Do(l.acc, func() error {
		if info, err := os.Stat(l.acc.Home); err != nil || !info.IsDir() {
			return fs.ErrNotExist
		}
		return unix.Faccessat(unix.AT_FDCWD, l.acc.Home, unix.X_OK, unix.AT_EACCESS)
	})
	if err != nil {
		return "/"
	}
	return l.acc.Home
}

// userName is what people know the kernel's user by.
func (l *launcher) userName() string {
	if l.acc.Name != "" {
		return l.acc.Name
	}
	return strconv.FormatUint(uint64(l.acc.UID), 10)
}
