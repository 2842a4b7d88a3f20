// Package fscred runs a function on a thread that has a guest user's rights on
// file systems: its effective and file-system ids and supplementary groups, and
// no capability that could override them. The kernel then decides every
// permission, ownership, sticky bit and quota itself.
//
// It changes one thread and never the process: only raw, per-thread system
// calls are used, since Go's own setuid family changes all threads. The rights
// hold for path operations (open, stat, rename, …); a descriptor opened there
// works on any thread, but the kernel also asks the thread that reads or writes:
// [Here] is for that. The real and saved ids stay guestd's, so that the user
// can neither signal nor trace the thread. (A FUSE file system that the user
// has mounted for nobody else asks for those ids too, and stays closed.) It does
// not resolve paths, limits nothing and starts no process; a process started
// from such a thread would have neither the user's ids nor guestd's rights.
//
// Each [Do] owns one goroutine and one thread. They run nothing after fn and are
// gone right after Do has returned: the thread is thrown away rather than
// restored, because a thread that does not exist any more can leak nothing.
package fscred

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"guestd.internal/internal/account"
)

// init pins the main goroutine to the main thread, so that this thread is never
// a worker: the runtime cannot end it, and it would keep a user's rights.
func init() {
	runtime.LockOSThread()
}

// ErrInvalidID says that an account has the id 4294967295, which the kernel
// takes for "leave unchanged": its function would run with guestd's rights.
var ErrInvalidID = errors.New("user or group id is not valid")

// errExited is the outcome of a function that ended its goroutine.
var errExited = errors.New("the function ended its goroutine (runtime.Goexit)")

// PanicError is what [Do] panics with when its function panicked: the panic
// crosses over to the goroutine that called Do.
type PanicError struct {
	Value any    // what the function panicked with
	Stack []byte // the worker's stack at that time
}

// Error implements error.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic on a file-system worker: %v\n%s", e.Value, e.Stack)
}

// Do runs fn on a fresh thread with acc's file-system rights, with umask 0 and a
// working directory and umask that are not shared with other threads, and
// returns fn's error. fn must do all its path operations itself: a goroutine
// that it starts has guestd's rights. It must not call runtime.UnlockOSThread.
// os.Geteuid answers with acc's uid there.
//
// For root the rights are root's. Where guestd does not run as root, an account
// that is not its own is an error that wraps [account.ErrOtherUser], and its own
// keeps the credentials that guestd has. An error in taking on the rights means
// that fn did not run.
//
// On Linux the first change of a thread's ids makes the process not dumpable
// (credentials(7), prctl(2) PR_SET_DUMPABLE), as guestd wants to be anyway.
func Do(acc account.Account, fn func() error) error {
	if err := check(acc); err != nil {
		return fmt.Errorf("taking on file-system rights of uid %d: %w", acc.UID, err)
	}
	done := make(chan outcome, 1)
	go work(acc, fn, done)
	result := <-done
	if result.panicked != nil {
		panic(result.panicked)
	}
	return result.err
}

type outcome struct {
	err      error
	panicked *PanicError
}

// work is the worker's goroutine. It ends locked to its thread, which makes the
// runtime end the thread.
func work(acc account.Account, fn func() error, done chan<- outcome) {
	runtime.LockOSThread()
	result := outcome{err: errExited}
	defer func() {
		if value := recover(); value != nil {
			result.panicked = &PanicError{Value: value, Stack: debug.Stack()}
		}
		done <- result
	}()
	if err := assume(acc); err != nil {
		result.err = fmt.Errorf("taking on file-system rights of uid %d: %w", acc.UID, err)
		return
	}
	result.err = fn()
}

// check refuses accounts whose rights cannot be taken on.
func check(acc account.Account) error {
	if acc.UID == unchanged || acc.GID == unchanged {
		return ErrInvalidID
	}
	for _, gid := range acc.Groups {
		if gid == unchanged {
			return ErrInvalidID
		}
	}
	if os.Geteuid() != 0 && int(acc.UID) != os.Geteuid() {
		return account.ErrOtherUser
	}
	return nil
}
