// Package fsapi works on files and folders of the guest as one of its users.
//
// Every path operation runs on a thread that has the user's file-system rights
// (package fscred), so that permissions, ownership, sticky bits and quotas are
// the kernel's own decision, and nothing that untrusted code plants (links,
// FIFOs, /proc entries, swapped folders) makes a call touch what its user could
// not, or hang. Paths are resolved with openat2(2) and RESOLVE_NO_MAGICLINKS, so
// that links under /proc never lead to descriptors of this process.
//
// It does not look users up by anything but /etc/passwd, speaks no protocol,
// starts no process, and takes no decision about who may ask for which user.
//
// Goroutines, threads and files: a call's worker thread ends with the call. A
// [ReadHandle] or [WriteHandle] owns one or two descriptors until its Close,
// Commit or Abort, which the caller must call. A [Watcher] owns a goroutine, a
// thread and three descriptors until its Close. Beyond that nothing of this
// package runs between calls. [FS] itself owns nothing that must be closed.
//
// # Paths
//
// A path is a string of arbitrary bytes without NUL; it need not be UTF-8. It is
// absolute or relative to the user's home. "~" is a file name like any other,
// and ".." is resolved by the kernel, after links.
package fsapi

import (
	"context"
	"log/slog"

	"guestd.internal/internal/account"
	"guestd.internal/internal/fscred"
)

// maxWorkers bounds the threads that are in path operations at once. A file
// system that hangs (FUSE, NFS) holds them; without a bound it would drive the
// process into the Go runtime's thread limit.
const maxWorkers = 256

// Config says how an [FS] is set up. Its zero value works.
type Config struct {
	// Accounts is the guest's user database; nil means that of "/".
	Accounts *account.DB
	// DefaultUser names the configured user of requests that name none; nil, or
	// "" as its answer, means what [account.DB.Default] says. It is asked at
	// each call, and must be safe for concurrent use.
	DefaultUser func() string
	// Logger gets what no caller can be told, such as a temporary file that
	// could not be removed; nil discards it.
	Logger *slog.Logger
}

// FS performs file operations. It is safe for concurrent use.
type FS struct {
	accounts    *account.DB
	defaultUser func() string
	logger      *slog.Logger
	workers     chan struct{} // one element for each thread in use
	watchers    chan struct{} // one element for each watch's thread
	// namedTemp makes all temporary files have names, as on a file system
	// without O_TMPFILE; for tests.
	namedTemp bool
	// watchQueue, if not 0, is how many bytes of events a watch holds for a client
	// that takes none, without waiting for it then; for tests.
	watchQueue int
}

// New returns an FS.
func New(cfg Config) *FS {
	fsys := &FS{
		accounts:    cfg.Accounts,
		defaultUser: cfg.DefaultUser,
		logger:      cfg.Logger,
		workers:     make(chan struct{}, maxWorkers),
		watchers:    make(chan struct{}, maxWatchers),
	}
	if fsys.accounts == nil {
		fsys.accounts = account.Open("")
	}
	if fsys.defaultUser == nil {
		fsys.defaultUser = func() string { return "" }
	}
	if fsys.logger == nil {
		fsys.logger = slog.New(slog.DiscardHandler)
	}
	return fsys
}

// account says as whom a call for user ("" for the default) acts.
func (fsys *FS) account(user string) (account.Account, error) {
	return fsys.accounts.Serve(user, fsys.defaultUser())
}

// as runs fn on a thread with acc's rights, once one may be had. fn returns
// errors that are complete; it must not start goroutines.
func (fsys *FS) as(ctx context.Context, acc account.Account, fn func() error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	select {
	case fsys.workers <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-fsys.workers }()
	return fscred.Do(acc, fn)
}

// cleanUp is as for work that a cancelled call leaves behind: it is not
// cancelled itself, and a failure can only be logged.
func (fsys *FS) cleanUp(ctx context.Context, acc account.Account, what string, fn func() error) {
	if err := fsys.as(context.WithoutCancel(ctx), acc, fn); err != nil {
		fsys.logger.Warn("cleaning up failed", "what", what, "uid", acc.UID, "error", err)
	}
}
