package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"guestd.internal/internal/account"
)

const (
	// warmDelay keeps what is done ahead out of the way of those who have just got
	// a kernel; and guestd may be there for one execution only.
	warmDelay = 500 * time.Millisecond
	// staleWait bounds the question whether packages have changed.
	staleWait = time.Second
	// serverRetry is how long a user's kernels start cold after a fork server failed.
	serverRetry = time.Minute
	// serverGrace is how long a fork server may take to end by itself.
	serverGrace = 2 * time.Second
	// preloadNeeds is the free memory below which no libraries are imported ahead,
	// in bytes.
	preloadNeeds = 512 << 20
)

// warmer keeps fork servers and ready kernels, one pool for each user and
// interpreter. Nothing runs before a pool is wanted. Its goroutines end with close.
// A nil warmer does nothing: every kernel starts cold.
type warmer struct {
	cfg  *Config
	ctx  context.Context // ends with close
	stop func()

	mu       sync.Mutex // protects the following, and the pools
	pools    map[poolKey]*pool
	starting int           // kernels that somebody waits for
	calm     chan struct{} // closed while there are none
	work     sync.WaitGroup
}

// pool is a fork server and its ready kernels.
type pool struct {
	key    poolKey
	l      launcher // of a context without wishes of its own
	cmd    command
	wanted int // ready kernels

	server  *forkServer // nil without
	ready   []*session
	filling bool
	users   int         // kernels of contexts
	retry   time.Time   // no server is started before
	idle    *time.Timer // ends it all, while there are no users
}

func newWarmer(cfg *Config) *warmer {
	ctx, cancel := context.WithCancelCause(context.Background())
	calm := make(chan struct{})
	close(calm)
	return &warmer{
		cfg:   cfg,
		ctx:   ctx,
		stop:  func() { cancel(ErrClosed) },
		pools: make(map[poolKey]*pool),
		calm:  calm,
	}
}

// begin says that somebody waits for a kernel, until the returned function is called.
func (w *warmer) begin() (end func()) {
	if w == nil {
		return func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.starting++; w.starting == 1 {
		w.calm = make(chan struct{})
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.starting--; w.starting == 0 {
			close(w.calm)
		}
	}
}

// take returns a kernel without a cold start, or nil. A context's own settings are
// in place in it.
func (w *warmer) take(ctx context.Context, l *launcher, cmd command, generation uint64) *session {
	if w == nil {
		return nil
	}
	key, ok := l.key(cmd)
	if !ok {
		return nil
	}
	server := w.freshServer(ctx, key)
	if server == nil {
		return nil
	}
	if s := w.takeReady(key); s != nil {
		err := settle(ctx, s.control, l.settings(cmd, s))
		if err == nil {
			s.generation, s.ready = generation, time.Now()
			s.log = l.cfg.Logger.With("generation", generation, "pid", s.child.PID())
			return s
		}
		w.cfg.Logger.Info("a ready kernel is of no use", "error", err)
		s.close()
	}
	s, err := l.fork(ctx, server, cmd, generation)
	if err != nil {
		w.cfg.Logger.Warn("forking a kernel failed", "error", err)
		return nil
	}
	return s
}

// freshServer returns the pool's server if packages have not changed since it
// imported them; if they have, it and its ready kernels are given up.
func (w *warmer) freshServer(ctx context.Context, key poolKey) *forkServer {
	w.mu.Lock()
	p := w.pools[key]
	if p == nil || p.server == nil {
		w.mu.Unlock()
		return nil
	}
	server := p.server
	w.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, staleWait, errors.New("no answer"))
	defer cancel()
	stale, err := server.link.Stale(ctx)
	if err == nil && !stale {
		return server
	}
	w.cfg.Logger.Info("giving up a fork server", "stale", stale, "error", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.server == server {
		w.emptyLocked(p)
	}
	return nil
}

func (w *warmer) takeReady(key poolKey) *session {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pools[key]
	for p != nil && len(p.ready) > 0 {
		s := p.ready[0]
		p.ready = p.ready[1:]
		if !s.died() {
			return s
		}
		w.work.Go(s.close)
	}
	return nil
}

// emptyLocked gives up a pool's server and ready kernels. The server stays until the
// last kernel of a context has ended.
func (w *warmer) emptyLocked(p *pool) {
	for _, s := range p.ready {
		w.work.Go(s.close)
	}
	p.ready = nil
	if f := p.server; f != nil {
		p.server = nil
		f.link.Retire()
		w.work.Go(func() { w.awaitEnd(f) })
	}
}

// awaitEnd sees a retired server off, and kills one that has no kernels left and
// does not end.
func (w *warmer) awaitEnd(f *forkServer) {
	select {
	case <-f.gone:
		return
	case <-w.ctx.Done():
	}
	select {
	case <-f.gone:
	case <-time.After(serverGrace):
		if err := f.child.KillTree(); err != nil {
			w.cfg.Logger.Warn("killing a fork server", "error", err)
		}
		<-f.gone
	}
}

// use says that a context has got a kernel: more may be wanted.
func (w *warmer) use(l *launcher, cmd command, s *session) {
	if w == nil {
		return
	}
	key, ok := l.key(cmd)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return
	}
	p := w.poolLocked(key, l, cmd)
	p.users++
	s.onClose = func() { w.leave(p) }
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
	}
	w.fillLocked(p, warmDelay)
}

func (w *warmer) poolLocked(key poolKey, l *launcher, cmd command) *pool {
	p := w.pools[key]
	if p == nil {
		p = &pool{key: key, l: l.plain(), cmd: cmd, wanted: max(w.cfg.ReadyKernels, 0)}
		w.pools[key] = p
	}
	return p
}

// leave says that a context's kernel has ended.
func (w *warmer) leave(p *pool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.users--; p.users == 0 && w.ctx.Err() == nil {
		w.armLocked(p)
	}
}

// armLocked ends an unused pool later.
func (w *warmer) armLocked(p *pool) {
	p.idle = time.AfterFunc(w.cfg.WarmIdle, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if p.users == 0 && w.ctx.Err() == nil { // else close does it
			w.emptyLocked(p)
		}
	})
}

// Prewarm makes the default user's Python kernels start warm from now on, before
// anybody asks for one, and keeps n of them ready. It returns when they are. Errors
// are account's about the default user, *LanguageUnavailableError, and whatever kept
// the fork server from starting; kernels then start cold.
func (cs *Contexts) Prewarm(n int) error {
	configured := ""
	if cs.cfg.DefaultUser != nil {
		configured = cs.cfg.DefaultUser()
	}
	acc, err := cs.cfg.Accounts.Serve("", configured)
	if err != nil {
		return fmt.Errorf("choosing the kernel's user: %w", err)
	}
	return cs.cfg.warm.prewarm(acc, n)
}

// prewarm makes a user's pool ready ahead of everything else, with n kernels.
func (w *warmer) prewarm(acc account.Account, n int) error {
	if w == nil {
		return nil
	}
	l := launcher{cfg: w.cfg, acc: acc, language: python}
	cmd, err := l.find()
	if err != nil {
		return err
	}
	key, ok := l.key(cmd)
	if !ok {
		return nil
	}
	w.mu.Lock()
	if w.ctx.Err() != nil {
		w.mu.Unlock()
		return context.Cause(w.ctx)
	}
	p := w.poolLocked(key, &l, cmd)
	p.wanted = max(p.wanted, n)
	if p.users == 0 && p.idle == nil {
		w.armLocked(p)
	}
	if p.filling { // it sees what is wanted
		w.mu.Unlock()
		return nil
	}
	p.filling = true
	filled := make(chan error, 1)
	w.work.Go(func() {
		filled <- w.fill(p)
		w.mu.Lock()
		defer w.mu.Unlock()
		p.filling = false
	})
	w.mu.Unlock()
	return <-filled
}

// close ends everything. The contexts' kernels must have ended before.
func (w *warmer) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.stop() // with the lock, so that nothing is added to work from here on
	for _, p := range w.pools {
		if p.idle != nil {
			p.idle.Stop()
		}
	}
	w.mu.Unlock()
	w.work.Wait() // fill has ended, and adds nothing more
	w.mu.Lock()
	for _, p := range w.pools {
		w.emptyLocked(p)
	}
	w.mu.Unlock()
	w.work.Wait()
}
