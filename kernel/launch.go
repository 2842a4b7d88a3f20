package kernel

import (
	"context"
	_ "embed" // stock.py
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
	"guestd.internal/kernel/internal/zmtp"
)

const (
	connectionFile = "connection.json"
	ipythonFolder  = "ipython"
	setupFile      = "setup.py"
)

// stockSetup is run by a stock ipykernel at its start.
//
//go:embed stock.py
var stockSetup []byte

// ipykernelFlags configure a stock ipykernel. What they are for, in order: no
// sqlite history, which costs a third of a short execution; tracebacks without
// colours; long lists printed whole; no extensions of the user's; no sleep in
// each execution; no banner; our setup, which leaves no name behind.
var ipykernelFlags = []string{
	"--HistoryManager.enabled=False",
	"--InteractiveShell.colors=NoColor",
	"--PlainTextFormatter.max_seq_length=0",
	"--InteractiveShellApp.extensions=[]",
	"--Kernel._execute_sleep=0.0",
	"--IPKernelApp.log_level=50",
	`--IPKernelApp.exec_lines=['exec(open(__import__("os").environ["IPYTHONDIR"] + "/../` + setupFile + `").read(), {})']`,
}

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
	fail := func(problem string, err error) (*session, jupyter.Connection, error) {
		return nil, jupyter.Connection{}, &StartError{Problem: problem, Err: err}
	}
	dir, err := newFolder(l.cfg.StateDir, l.acc)
	if err != nil {
		return fail("preparing its folder", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.remove())
		}
	}()
	conn, err := dir.fill(cmd.spec.Name)
	if err != nil {
		return fail("preparing its folder", err)
	}
	tail, stderr, err := newStderrTail()
	if err != nil {
		return fail("preparing its stderr", err)
	}
	child, err := l.cfg.Spawner.Start(l.process(cmd, dir, stderr))
	_ = stderr.Close() // the kernel has its own
	if err != nil {
		tail.close()
		return fail("starting its process", err)
	}
	return &session{
		generation: generation,
		child:      child,
		folder:     dir,
		stderr:     tail,
		codec:      conn.Codec(),
		conns:      make(map[jupyter.Channel]*zmtp.Conn),
		log:        l.cfg.Logger.With("generation", generation, "pid", child.PID()),
		byMessage:  cmd.spec.InterruptMode == kernelspec.InterruptMessage,
		iopub:      make(chan incoming),
		replies:    make(chan incoming),
		stopped:    make(chan struct{}),
	}, conn, nil
}

// fill puts the connection file and IPython's folder into a kernel's folder.
func (f *folder) fill(kernelName string) (jupyter.Connection, error) {
	conn, err := jupyter.NewConnection(f.path)
	if err != nil {
		return jupyter.Connection{}, err
	}
	file, err := conn.File(kernelName)
	if err != nil {
		return jupyter.Connection{}, err
	}
	return conn, errors.Join(f.write(connectionFile, file), f.write(setupFile, stockSetup), f.mkdir(ipythonFolder))
}

func (l *launcher) process(cmd command, dir *folder, stderr *os.File) spawn.Command {
	env := l.environment(dir.path + "/" + ipythonFolder)
	extra := cmd.spec.Environment(getenv(env))
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		env = append(env, name+"="+extra[name]) // the last of a name wins
	}
	args := cmd.spec.Command(cmd.program, dir.path+"/"+connectionFile)
	if cmd.spec.IsIPython() {
		args = append(args, ipykernelFlags...)
	}
	return spawn.Command{
		ID:      id.New("p"),
		Args:    args,
		Env:     env,
		Dir:     l.workingDirectory(),
		Account: l.acc,
		Stderr:  stderr,
	}
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
