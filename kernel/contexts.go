package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"guestd.internal/internal/account"
	"guestd.internal/internal/spawn"
)

// Defaults and limits.
const (
	// DefaultTimeout is an execution's time-out unless its request has one.
	DefaultTimeout = 60 * time.Second
	// MaxCode bounds a request's code, in bytes.
	MaxCode = 7 << 20
	// MaxQueue bounds the executions that wait in one context.
	MaxQueue = 1000
	// MaxContexts bounds the contexts, those that are being deleted included.
	MaxContexts = 64

	maxQueuedCode    = 64 << 20 // bytes of code that wait in one context
	maxFinished      = 1000     // finished executions that are kept
	maxFinishedBytes = 64 << 20 // bytes that they hold together
)

// Config configures Contexts. Spawner, Accounts and StateDir are needed.
type Config struct {
	Spawner  *spawn.Spawner
	Accounts *account.DB
	// StateDir is where the kernels' folders are made: absolute, short (a socket
	// path has 107 bytes, of which 13 are needed below it), and owned by guestd.
	// Every user must be able to pass through the folders above it.
	StateDir string
	// DefaultUser names the configured default user; nil or "" for none.
	DefaultUser func() string
	// Environment is the environment of new kernels, beyond what follows from
	// their user: the template's and what was configured; nil for none.
	Environment func() []spawn.EnvVar
	// Logger takes what operators want to know; nil for nowhere.
	Logger *slog.Logger
	// OutputLimit is how many bytes of text an execution keeps, and how far a
	// reader may be behind before the kernel has to wait; 8 MiB unless given.
	OutputLimit int
	// ReconnectGrace is how long unread output is kept whole after the last
	// reader has gone; 60 s unless given, negative for not at all.
	ReconnectGrace time.Duration
	// StartTimeout is how long a kernel may take to start; 60 s unless given.
	StartTimeout time.Duration
	// Retention is how long finished executions are kept; ten minutes unless
	// given.
	Retention time.Duration
	// ColdStart starts every kernel as a process of its own. Otherwise Python
	// kernels are forks of a process with the user's rights that has imported
	// ipykernel and what Preload says. It is started in the background after the
	// user's first kernel, or by Prewarm.
	ColdStart bool
	// ReadyKernels is how many forked kernels wait for a context, for each user
	// that has one; 1 unless given, negative for none.
	ReadyKernels int
	// Preload names the modules that are imported ahead where there are 512 MiB of
	// free memory; nil is numpy, pandas and matplotlib.pyplot.
	Preload []string
	// WarmIdle is how long all that is kept for a user without kernels; ten minutes
	// unless given.
	WarmIdle time.Duration

	warm *warmer // nil without
}

func (cfg Config) withDefaults() Config {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.OutputLimit = cmp.Or(cfg.OutputLimit, 8<<20)
	cfg.ReconnectGrace = cmp.Or(cfg.ReconnectGrace, time.Minute)
	cfg.StartTimeout = cmp.Or(cfg.StartTimeout, time.Minute)
	cfg.Retention = cmp.Or(cfg.Retention, 10*time.Minute)
	cfg.ReadyKernels = cmp.Or(cfg.ReadyKernels, 1)
	cfg.WarmIdle = cmp.Or(cfg.WarmIdle, 10*time.Minute)
	if cfg.Preload == nil {
		cfg.Preload = []string{"numpy", "pandas", "matplotlib.pyplot"}
	}
	return cfg
}

// Contexts is all code contexts of a guest and their executions.
type Contexts struct {
	cfg Config

	mu         sync.Mutex // protects the following
	closed     bool
	created    uint64 // contexts so far
	contexts   map[string]executor
	defaults   map[string]executor   // by canonical language
	leaving    map[executor]struct{} // deleted, and not gone yet
	executions map[string]*Execution
	requests   map[string]*Execution // by request id
	finished   []*Execution          // of executions, oldest first
	// finishedBytes is the sum of what the logs of finished hold.
	finishedBytes int
	expiry        *time.Timer // runs expire; nil while nothing is finished
}

// New returns Contexts without any context. It starts nothing.
func New(cfg Config) (*Contexts, error) {
	cfg = cfg.withDefaults()
	switch {
	case cfg.Spawner == nil || cfg.Accounts == nil:
		return nil, errors.New("kernel.Config needs Spawner and Accounts")
	case !filepath.IsAbs(cfg.StateDir):
		return nil, fmt.Errorf("kernel.Config.StateDir %q is not absolute", cfg.StateDir)
	}
	if err := prepareState(cfg.StateDir); err != nil {
		return nil, err
	}
	cs := &Contexts{
		cfg:        cfg,
		contexts:   make(map[string]executor),
		defaults:   make(map[string]executor),
		leaving:    make(map[executor]struct{}),
		executions: make(map[string]*Execution),
		requests:   make(map[string]*Execution),
	}
	if !cfg.ColdStart {
		cs.cfg.warm = newWarmer(&cs.cfg)
	}
	return cs, nil
}

// Execute queues code and returns at once; ctx is only for that. Errors in the
// code, and a kernel that does not start, are events of the execution. Errors
// here are *InvalidError, ErrContextNotFound, *LanguageNotFoundError,
// *LanguageUnavailableError (nothing that could be started is installed),
// account's errors about the default user, *spawn.StartError about the working
// directory, *CrashLoopError, ErrTooManyContexts, ErrRequestIDReused, ErrQueueFull
// and ErrClosed.
func (cs *Contexts) Execute(ctx context.Context, req Request) (*Execution, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if x, err := cs.repeated(&req); x != nil || err != nil {
		return x, err
	}
	c, err := cs.contextFor(&req)
	if err != nil {
		return nil, err
	}
	dir, err := executionDir(c, &req)
	if err != nil {
		return nil, err
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		return nil, ErrClosed
	}
	if x, err := cs.repeatedLocked(&req); x != nil || err != nil {
		return x, err // somebody else was faster
	}
	x := newExecution(c.about().id, &req, &cs.cfg)
	x.env, x.dir = req.Env, dir
	if err := c.submit(x); err != nil {
		return nil, err
	}
	cs.executions[x.id] = x
	if req.RequestID != "" {
		cs.requests[req.RequestID] = x
	}
	return x, nil
}

// repeated returns the execution that an earlier request with the same id has
// made, or nil.
func (cs *Contexts) repeated(req *Request) (*Execution, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.repeatedLocked(req)
}

func (cs *Contexts) repeatedLocked(req *Request) (*Execution, error) {
	x := cs.requests[req.RequestID]
	if x != nil && x.fingerprint != req.fingerprint() {
		return nil, ErrRequestIDReused
	}
	return x, nil
}

// contextFor finds the request's context, or makes the language's default one.
func (cs *Contexts) contextFor(req *Request) (executor, error) {
	language := canonicalLanguage(req.Language)
	if req.ContextID != "" {
		c, err := cs.context(req.ContextID)
		if err == nil && req.Language != "" && language != c.about().language {
			err = &InvalidError{Field: "language", Problem: "the context's is " + c.about().language}
		}
		return c, err
	}
	cs.mu.Lock()
	c := cs.defaults[language]
	cs.mu.Unlock()
	if c != nil {
		return c, nil
	}
	return cs.create(&ContextRequest{Language: language}, true)
}

// Execution returns an execution that is queued, running, or has finished and is
// still kept. The error is ErrExecutionNotFound.
func (cs *Contexts) Execution(id string) (*Execution, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	x := cs.executions[id]
	if x == nil {
		return nil, fmt.Errorf("%w: %q", ErrExecutionNotFound, id)
	}
	return x, nil
}

func (cs *Contexts) context(id string) (executor, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.contexts[id]
	if c == nil {
		return nil, fmt.Errorf("%w: %q", ErrContextNotFound, id)
	}
	return c, nil
}

// InterruptContext interrupts what runs in a context and returns its id, or ""
// when nothing does. Queued executions stay. The error is ErrContextNotFound.
func (cs *Contexts) InterruptContext(id string) (execution string, err error) {
	c, err := cs.context(id)
	if err != nil {
		return "", err
	}
	return c.interrupt(nil)
}

// InterruptExecution interrupts an execution, or takes it out of the queue, and
// says whether there was something to interrupt. One that has finished stays as
// it is. The error is ErrExecutionNotFound.
func (cs *Contexts) InterruptExecution(id string) (interrupted bool, err error) {
	x, c, err := cs.executionIn(id)
	if c == nil || err != nil {
		return false, err
	}
	stopped, err := c.interrupt(x)
	if errors.Is(err, ErrContextNotFound) { // it is being deleted, and what runs in it ended
		err = nil
	}
	return stopped != "", err
}

// ReplyInput answers an execution's InputRequest: the one with the given event
// number or, with 0, the newest. Errors are ErrExecutionNotFound, ErrNoInputWanted
// and *InvalidError.
func (cs *Contexts) ReplyInput(id string, number uint64, value string) error {
	if !utf8.ValidString(value) {
		return &InvalidError{Field: "value", Problem: "not valid UTF-8"}
	}
	x, c, err := cs.executionIn(id)
	if err != nil {
		return err
	}
	if c == nil {
		return ErrNoInputWanted
	}
	err = c.replyInput(x, number, value)
	if errors.Is(err, ErrContextNotFound) {
		err = ErrNoInputWanted
	}
	return err
}

// EndInput answers an execution's InputRequest with the end of all input: input()
// raises EOFError. Errors are as with ReplyInput.
func (cs *Contexts) EndInput(id string, number uint64) error {
	return cs.ReplyInput(id, number, endOfInput)
}

// executionIn returns an execution and its context, which is nil once it has been
// deleted.
func (cs *Contexts) executionIn(id string) (*Execution, executor, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	x := cs.executions[id]
	if x == nil {
		return nil, nil, fmt.Errorf("%w: %q", ErrExecutionNotFound, id)
	}
	return x, cs.contexts[x.contextID], nil
}

// closeWait is how long Close waits for what has been killed when its time is over.
const closeWait = 2 * time.Second

// Close ends all executions (KernelDied, state lost) and kernels, and removes
// the kernels' folders. Kernels are killed at once, so that it takes no time but
// theirs to end; when ctx ends first it waits two seconds more and then returns with
// the cause, and the rest is done in the background. Closing twice is fine.
func (cs *Contexts) Close(ctx context.Context) error {
	cs.mu.Lock()
	cs.closed = true
	contexts := slices.AppendSeq(slices.Collect(maps.Values(cs.contexts)), maps.Keys(cs.leaving))
	if cs.expiry != nil {
		cs.expiry.Stop()
	}
	cs.mu.Unlock()
	for _, c := range contexts {
		c.quit(ErrClosed)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, c := range contexts {
			<-c.gone()
		}
		cs.cfg.warm.close()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	late := time.NewTimer(closeWait)
	defer late.Stop()
	select {
	case <-ended:
		return nil
	case <-late.C:
		return fmt.Errorf("waiting for kernels to end: %w", context.Cause(ctx))
	}
}
