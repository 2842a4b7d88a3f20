package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"guestd.internal/internal/id"
	"guestd.internal/internal/spawn"
	"guestd.internal/kernel/internal/kernelspec"
	"guestd.internal/kernel/internal/pykernel"
)

// endWait is how long a fork server may take to say how a kernel ended, which it
// does as soon as it has collected it.
const endWait = time.Second

// forkServer is a process with the rights of one user that has Python's libraries
// imported and forks kernels. It outlives its use until the last of them has ended,
// and then ends by itself.
type forkServer struct {
	child  *spawn.Child
	folder *folder
	stderr *stderrTail
	link   *pykernel.Server
	gone   chan struct{} // it has ended, and nothing of it is left
}

// startServer starts a fork server and waits until it has imported the modules.
func (l *launcher) startServer(ctx context.Context, cmd command, modules []string) (_ *forkServer, err error) {
	var undo undoList
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.run())
		}
	}()
	f := &forkServer{gone: make(chan struct{})}
	if f.folder, err = newFolder(l.cfg.StateDir, l.acc); err != nil {
		return nil, err
	}
	undo.add(f.folder.remove)
	if err := errors.Join(f.folder.writeLauncher(), f.folder.mkdir(ipythonFolder)); err != nil {
		return nil, err
	}
	conn, theirs, err := pykernel.NewSocket()
	if err != nil {
		return nil, err
	}
	tail, stderr, err := newStderrTail()
	if err != nil {
		return nil, errors.Join(err, conn.Close(), theirs.Close())
	}
	f.stderr = tail
	undo.add(func() error { tail.close(); return nil })
	f.child, err = l.cfg.Spawner.Start(l.serverProcess(cmd, f.folder, modules, stderr, theirs))
	_, _ = stderr.Close(), theirs.Close() // the server has its own
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	undo.add(func() error {
		err := f.child.KillTree()
		<-f.child.Done()
		f.child.Release()
		return err
	})
	if f.link, err = pykernel.Connect(ctx, conn); err != nil {
		return nil, fmt.Errorf("%w; its stderr: %s", err, tail.text())
	}
	go f.clean(l.cfg.Logger)
	return f, nil
}

func (l *launcher) serverProcess(cmd command, dir *folder, modules []string, stderr, socket *os.File) spawn.Command {
	return spawn.Command{
		ID:      id.New("p"),
		Args:    cmd.invocation.Server(dir.script(), modules),
		Env:     l.kernelEnvironment(cmd, dir),
		Dir:     "/",
		Account: l.acc,
		Stderr:  stderr,
		Extra:   socket,
		Forks:   true,
	}
}

// clean gives back what an ended server had.
func (f *forkServer) clean(log *slog.Logger) {
	defer close(f.gone)
	<-f.child.Done()
	f.link.Close()
	f.child.Release()
	f.stderr.close()
	if err := f.folder.remove(); err != nil {
		log.Warn("cleaning up after a fork server", "error", err)
	}
}

// alive says whether the server can be asked for kernels.
func (f *forkServer) alive() bool {
	select {
	case <-f.child.Done():
		return false
	case <-f.link.Ended():
		return false
	default:
		return true
	}
}

// fork starts a kernel as a fork of the server and returns when it answers. Nothing
// of the user's runs in it before it has its cgroup.
func (l *launcher) fork(ctx context.Context, f *forkServer, cmd command, generation uint64) (_ *session, err error) {
	var undo undoList
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.run())
		}
	}()
	dir, err := newFolder(l.cfg.StateDir, l.acc)
	if err != nil {
		return nil, err
	}
	undo.add(dir.remove)
	conn, err := dir.fill(kernelspec.Spec{Name: cmd.spec.Name}, dir.path) // the server has the launcher
	if err != nil {
		return nil, err
	}
	s := l.newSession(cmd, conn, generation)
	s.folder, s.id = dir, id.New("p")
	if err := s.fork(f, cmd, &undo); err != nil {
		return nil, err
	}
	if s.child, err = l.adopt(ctx, f, s); err != nil {
		return nil, err
	}
	s.log = s.log.With("pid", s.child.PID())
	if err = settle(ctx, s.control, l.settings(cmd, s)); err == nil {
		err = s.handshake(ctx, conn)
	}
	if err != nil {
		err = fmt.Errorf("starting a forked kernel: %w; its stderr: %s", err, s.stderr.text())
		s.close()
		undo = nil // that has done it all
		return nil, err
	}
	return s, nil
}

// fork asks the server for a kernel.
func (s *session) fork(f *forkServer, cmd command, undo *undoList) error {
	tail, stderr, err := newStderrTail()
	if err != nil {
		return err
	}
	undo.add(func() error { tail.close(); return nil })
	control, theirs, err := newControl()
	if err != nil {
		return errors.Join(err, stderr.Close())
	}
	undo.add(control.Close)
	s.stderr, s.control = tail, control
	in, _ := pykernel.Parse(cmd.spec.Command(cmd.program, s.folder.path+"/"+connectionFile)) // as cmd.invocation was
	err = f.link.Fork(in.Kernel, theirs, stderr)
	_, _ = stderr.Close(), theirs.Close() // the server has its own
	return err
}

// adopt makes the fork a child of guestd's, once it has shown who it is.
func (l *launcher) adopt(ctx context.Context, f *forkServer, s *session) (*spawn.Child, error) {
	pid, uid, err := greet(ctx, s.control)
	if err != nil {
		return nil, err
	}
	if uid != l.acc.UID {
		return nil, fmt.Errorf("%w: process %d is of user %d", errNoFork, pid, uid)
	}
	return l.cfg.Spawner.Adopt(spawn.Adoption{
		ID:      s.id,
		PID:     pid,
		Account: l.acc,
		Ended:   f.link.Watch(pid, endWait),
	})
}

// settings is what a forked kernel of the context's is told.
func (l *launcher) settings(cmd command, s *session) pykernel.Settings {
	settings := pykernel.Settings{Dir: l.workingDirectory(), Env: make(map[string]string)}
	for _, entry := range append(l.kernelEnvironment(cmd, s.folder), spawn.IDVariable+"="+s.id) {
		name, value, _ := strings.Cut(entry, "=")
		settings.Env[name] = value
	}
	return settings
}
