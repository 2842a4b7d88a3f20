package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/internal/fscred"
	"guestd.internal/internal/id"
	"guestd.internal/internal/spawn"
)

const (
	maxName       = 128 // bytes of a context's name
	maxLabels     = 64
	maxLabelKey   = 128  // bytes
	maxLabelValue = 1024 // bytes
)

// ContextRequest asks for a context.
type ContextRequest struct {
	Language string         // as Request's
	User     string         // as account.DB.Serve takes it; "" is the default user
	Dir      string         // a relative one starts at the user's home; "" is that
	Env      []spawn.EnvVar // changes to the environment
	Name     string         // for people; at most 128 bytes of UTF-8
	Labels   map[string]string
}

func (r *ContextRequest) check() error {
	switch {
	case !isLanguage(r.Language):
		return &InvalidError{Field: "language", Problem: "not a language's name"}
	case strings.ContainsRune(r.User, 0):
		return &InvalidError{Field: "user", Problem: "has a NUL"}
	case strings.ContainsRune(r.Dir, 0):
		return &InvalidError{Field: "cwd", Problem: "has a NUL"}
	case len(r.Name) > maxName || !utf8.ValidString(r.Name):
		return &InvalidError{Field: "name", Problem: fmt.Sprintf("not UTF-8 of at most %d bytes", maxName)}
	case len(r.Labels) > maxLabels:
		return &InvalidError{Field: "labels", Problem: fmt.Sprintf("%d, more than %d", len(r.Labels), maxLabels)}
	}
	for key, value := range r.Labels {
		if key == "" || len(key) > maxLabelKey || len(value) > maxLabelValue {
			return &InvalidError{Field: "labels", Problem: fmt.Sprintf(
				"a key has 1 to %d bytes and a value at most %d", maxLabelKey, maxLabelValue)}
		}
	}
	return checkEnv(r.Env)
}

func checkEnv(env []spawn.EnvVar) error {
	for i, v := range env {
		if err := v.Check(); err != nil {
			return &InvalidError{Field: fmt.Sprintf("env[%d].%s", i, strings.ToLower(err.Part)), Problem: err.Problem}
		}
	}
	return nil
}

// isLanguage says whether a name could be a language's.
func isLanguage(name string) bool { return utf8.ValidString(name) && len(name) <= maxName }

// Create makes a context and returns when it is ready to run code. Errors are
// *InvalidError, *LanguageNotFoundError, *LanguageUnavailableError, account's about
// the user, *spawn.StartError about the working directory, *StartError,
// ErrTooManyContexts, ErrClosed, and the cause of ctx's end; nothing is left of a
// context that did not get ready.
func (cs *Contexts) Create(ctx context.Context, req ContextRequest) (Info, error) {
	if err := req.check(); err != nil {
		return Info{}, err
	}
	c, err := cs.create(&req, false)
	if err != nil {
		return Info{}, err
	}
	err = c.prepare(ctx)
	if err == nil {
		var info Info
		if info, err = c.info(); err == nil {
			return info, nil
		}
	}
	cs.remove(c)
	return Info{}, err
}

// create makes a context, which may still have to start what it runs code with.
// It looks through the user's files without a lock held.
func (cs *Contexts) create(req *ContextRequest, isDefault bool) (executor, error) {
	configured := ""
	if cs.cfg.DefaultUser != nil {
		configured = cs.cfg.DefaultUser()
	}
	acc, err := cs.cfg.Accounts.Serve(req.User, configured)
	if err != nil {
		return nil, fmt.Errorf("choosing the context's user: %w", err)
	}
	l := launcher{cfg: &cs.cfg, acc: acc, language: canonicalLanguage(req.Language), env: req.Env}
	if req.Dir != "" {
		l.dir = absolute(acc.Home, req.Dir)
		if err := enterable(acc, l.dir); err != nil {
			return nil, err
		}
	}
	var pythonic bool
	process, isProcess := processLanguages[l.language]
	if !isProcess {
		found, err := l.find()
		if err != nil {
			return nil, err
		}
		pythonic = l.language == python || strings.EqualFold(found.spec.Language, python)
	} else if err := l.findProcess(process); err != nil && !isDefault {
		return nil, err // the default context tells it as an error of the execution
	}
	about := identity{
		language: l.language, name: req.Name, labels: maps.Clone(req.Labels), user: l.userName(), dir: l.workingDirectory(),
		isDefault: isDefault, created: time.Now(),
	}
	return cs.add(about, func(about identity) executor {
		if isProcess {
			return newProcessContext(about, l, process, cs.keep)
		}
		return newCodeContext(about, l, pythonic, cs.keep)
	})
}

// add makes a context and lists it, or returns the default one that somebody
// else has made meanwhile.
func (cs *Contexts) add(about identity, start func(identity) executor) (executor, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		return nil, ErrClosed
	}
	if c := cs.defaults[about.language]; c != nil && about.isDefault {
		return c, nil
	}
	if len(cs.contexts)+len(cs.leaving) >= MaxContexts {
		return nil, ErrTooManyContexts
	}
	cs.created++
	about.id, about.number = id.New("c"), cs.created
	c := start(about)
	cs.contexts[about.id] = c
	if about.isDefault {
		cs.defaults[about.language] = c
	}
	return c, nil
}

// Delete ends a context and everything that runs in it, and returns when that is
// done. Its executions end with KernelDied and stay readable. The error is
// ErrContextNotFound, or the cause of ctx's end, after which it is done in the
// background.
func (cs *Contexts) Delete(ctx context.Context, id string) error {
	c, err := cs.context(id)
	if err != nil {
		return err
	}
	cs.remove(c)
	select {
	case <-c.gone():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the context to end: %w", context.Cause(ctx))
	}
}

// remove takes a context out of the list and asks for its end.
func (cs *Contexts) remove(c executor) {
	about := c.about()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.contexts[about.id] == nil {
		return
	}
	delete(cs.contexts, about.id)
	if cs.defaults[about.language] == c {
		delete(cs.defaults, about.language)
	}
	cs.leaving[c] = struct{}{}
	c.quit(errDeleted)
	go func() {
		<-c.gone()
		cs.mu.Lock()
		defer cs.mu.Unlock()
		delete(cs.leaving, c)
	}()
}

// Restart gives a context a fresh kernel, with the working directory and
// environment of its creation, and returns when that is ready. What runs ends with
// KernelDied; what is queued runs in the fresh one. Errors are ErrContextNotFound,
// those of Create about kernels that do not start, and the cause of ctx's end.
func (cs *Contexts) Restart(ctx context.Context, id string) (Info, error) {
	c, err := cs.context(id)
	if err != nil {
		return Info{}, err
	}
	if err := c.restart(ctx); err != nil {
		return Info{}, err
	}
	return c.info()
}

// Watch follows a context's changes of state and the output that belongs to no
// running execution. The error is ErrContextNotFound.
func (cs *Contexts) Watch(id string) (*Watcher, error) {
	c, err := cs.context(id)
	if err != nil {
		return nil, err
	}
	return c.watcher()
}

// executionDir is the working directory of an execution of its own, or "". The
// error is *spawn.StartError, or *InvalidError where the context's executions
// cannot have what the request asks for.
func executionDir(c executor, req *Request) (string, error) {
	field := ""
	switch {
	case req.Dir != "":
		field = "cwd"
	case len(req.Env) > 0:
		field = "env"
	default:
		return "", nil
	}
	if !c.hasSurroundings() {
		return "", &InvalidError{Field: field, Problem: c.about().language + " kernels cannot change it for one execution"}
	}
	if req.Dir == "" {
		return "", nil
	}
	dir := absolute(c.about().dir, req.Dir)
	return dir, enterable(c.account(), dir)
}

// absolute is a path from a folder on. Not filepath.Join, which would resolve ".."
// across symbolic links.
func absolute(from, path string) string {
	switch {
	case filepath.IsAbs(path):
		return path
	case !filepath.IsAbs(from):
		from = "/"
	}
	return from + "/" + path
}

// enterable says whether a user can enter a folder: nil, or *spawn.StartError as
// if a process should start there.
func enterable(acc account.Account, dir string) error {
	err := fscred.Do(acc, func() error {
		var stat unix.Stat_t
		if err := unix.Stat(dir, &stat); err != nil {
			return err
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			return unix.ENOTDIR
		}
		return unix.Faccessat(unix.AT_FDCWD, dir, unix.X_OK, unix.AT_EACCESS)
	})
	if err == nil {
		return nil
	}
	reason := spawn.Other
	switch {
	case errors.Is(err, unix.ENOTDIR):
		reason = spawn.CwdNotDirectory
	case errors.Is(err, fs.ErrNotExist):
		reason = spawn.CwdNotFound
	case errors.Is(err, fs.ErrPermission):
		reason = spawn.CwdDenied
	}
	return &spawn.StartError{Reason: reason, Path: dir, Err: err}
}
