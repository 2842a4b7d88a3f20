package kernel

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// fillLocked makes the pool what it is to be, in the background.
func (w *warmer) fillLocked(p *pool, delay time.Duration) {
	if p.filling || time.Now().Before(p.retry) {
		return
	}
	p.filling = true
	w.work.Go(func() {
		select {
		case <-time.After(delay):
			if err := w.fill(p); err != nil && w.ctx.Err() == nil {
				w.cfg.Logger.Warn("keeping kernels ready failed", "error", err)
			}
		case <-w.ctx.Done():
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		p.filling = false
	})
}

// fill starts what the pool lacks. It waits while somebody waits for a kernel.
func (w *warmer) fill(p *pool) error {
	for {
		w.mu.Lock()
		calm := w.calm
		w.mu.Unlock()
		select {
		case <-calm:
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		}
		more, err := w.fillOne(p)
		if err != nil {
			w.mu.Lock()
			p.retry = time.Now().Add(serverRetry)
			w.mu.Unlock()
		}
		if err != nil || !more {
			return err
		}
	}
}

// fillOne starts the server or one kernel, and says whether there is more to do.
func (w *warmer) fillOne(p *pool) (more bool, err error) {
	w.mu.Lock()
	if p.server != nil && !p.server.alive() {
		w.emptyLocked(p)
	}
	server, missing := p.server, p.wanted-len(p.ready)
	w.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(w.ctx, w.cfg.StartTimeout, errStartTimeout)
	defer cancel()
	switch {
	case server == nil:
		server, err = p.l.startServer(ctx, p.cmd, w.modules())
		if err != nil {
			return false, fmt.Errorf("starting a fork server: %w", err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		p.server = server
		return true, nil
	case missing <= 0:
		return false, nil
	}
	s, err := p.l.fork(ctx, server, p.cmd, 0)
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.server != server {
		w.work.Go(s.close) // it is stale
		return true, nil
	}
	p.ready = append(p.ready, s)
	return true, nil
}

// modules is what a new server imports.
func (w *warmer) modules() []string {
	if free, ok := freeMemory(); ok && free < preloadNeeds {
		return nil
	}
	return w.cfg.Preload
}

// freeMemory is what new programs may use without swapping, in bytes.
func freeMemory() (uint64, bool) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}
