package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
	"guestd.internal/internal/fscred"
	"guestd.internal/internal/spawn"
	"guestd.internal/kernel/internal/kernelspec"
)

// The process languages, whose code runs in a fresh process each time.
const (
	bash       = "bash"
	javascript = "javascript"
)

// processLanguage is how a process language's code is run.
type processLanguage struct {
	name, displayName string
	program           string // in PATH
	install           string // what helps where it is missing
	// command returns the arguments after the program, and how the code gets there
	// if not with them: as stdin, or as descriptor 3.
	command func(code string) (args []string, stdin, extra string)
}

var processLanguages = map[string]processLanguage{
	bash: {
		name: bash, displayName: "Bash", program: "bash", install: `"apt-get install bash"`,
		command: func(code string) (args []string, stdin, extra string) {
			if len(code) <= maxArgument && !strings.ContainsRune(code, 0) {
				return []string{"-c", code}, "", ""
			}
			// The code is sourced by the shell itself, which keeps $0 as it is with -c.
			return []string{"-c", ". /proc/self/fd/3"}, "", "exec 3<&-; " + code
		},
	},
	javascript: {
		name: javascript, displayName: "JavaScript (Node.js)", program: "node", install: `"apt-get install nodejs"`,
		command: func(code string) (args []string, stdin, extra string) { return []string{"-"}, code, "" },
	},
}

// maxArgument is how long one argument may be for execve(2), MAX_ARG_STRLEN, less
// its NUL.
const maxArgument = 128<<10 - 1

func (p processLanguage) unavailable() *LanguageUnavailableError {
	return &LanguageUnavailableError{
		Language: p.name,
		Reason:   "there is no " + p.program + " in PATH",
		Install:  "install it: " + p.install,
	}
}

func (p processLanguage) describe(path string) Language {
	l := Language{Name: p.name, Aliases: aliasesOf(p.name), DisplayName: p.displayName}
	if _, ok := kernelspec.LookPath(p.program, path); !ok {
		l.Unavailable = reason(p.unavailable())
	}
	return l
}

// findProcess says whether the user has the language's program: nil, or
// *LanguageUnavailableError.
func (l *launcher) findProcess(p processLanguage) error {
	return fscred.Do(l.acc, func() error {
		if _, ok := kernelspec.LookPath(p.program, getenv(l.environment(""))("PATH")); !ok {
			return p.unavailable()
		}
		return nil
	})
}

// processContext is the context of a process language. It has no state but its
// surroundings. Its loop owns all fields from run on.
type processContext struct {
	identity
	queue
	watchers
	actor
	launcher launcher
	language processLanguage
	keep     func(*Execution) // takes finished executions
	log      *slog.Logger

	run        *processRun   // the running execution, or nil
	last       []*processRun // whose processes are not all gone
	background atomic.Uint64 // bytes that belonged to no execution
}

func newProcessContext(about identity, l launcher, language processLanguage, keep func(*Execution)) *processContext {
	c := &processContext{
		identity: about,
		queue:    newQueue(),
		actor:    newActor(),
		launcher: l,
		language: language,
		keep:     keep,
		log:      l.cfg.Logger.With("context", about.id),
	}
	go c.loop()
	return c
}

// loop is the context's actor. None of its cases blocks for long.
func (c *processContext) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for c.ctx.Err() == nil {
		c.step(timer)
	}
	c.shutDown()
	close(c.ended)
}

func (c *processContext) step(timer *time.Timer) {
	defer func() {
		if value := recover(); value != nil {
			c.log.Error("panic in a code context", "value", value, "stack", string(debug.Stack()))
			if c.run != nil {
				c.run.fail(ErrorStart, "an internal fault of guestd")
				c.finish(Finished{Status: Failed})
			}
		}
	}()
	for c.run == nil {
		x := c.next()
		if x == nil {
			break
		}
		c.begin(x)
	}
	c.tellChange(c.now)
	wait, output, died, room := time.Hour, (<-chan struct{})(nil), (<-chan struct{})(nil), (<-chan struct{})(nil)
	if r := c.run; r != nil {
		wait, output, died, room = r.sources()
	}
	timer.Reset(wait)
	select {
	case fn := <-c.calls:
		fn()
	case <-c.wake:
	case <-output:
	case <-died:
		c.run.onDeath()
	case <-room:
	case <-timer.C:
	case <-c.ctx.Done():
	}
	if c.run != nil {
		c.run.advance(time.Now())
	}
}

// begin starts an execution's process.
func (c *processContext) begin(x *Execution) {
	c.sweep()
	c.run = &processRun{c: c, x: x, log: x.log, begun: time.Now()}
	x.log.appendAt(c.run.begun, Started{})
	if err := c.run.start(); err != nil {
		name := ErrorStart
		if started, ok := errors.AsType[*spawn.StartError](err); ok && started.Reason == spawn.CommandNotFound {
			name, err = ErrorLanguageUnavailable, c.language.unavailable()
		}
		c.run.fail(name, err.Error())
		c.finish(Finished{Status: Failed})
	}
}

// finish ends the running execution and makes room for the next one. What lives
// on of its processes is left alone, and its output read.
func (c *processContext) finish(f Finished) {
	r := c.run
	c.run = nil
	f.Duration = time.Since(r.begun)
	c.done()
	r.x.finish(f)
	c.keep(r.x)
	if r.child != nil {
		c.last = append(c.last, r)
		r.trail()
	}
}

// sweep gives back what is left of processes that are gone.
func (c *processContext) sweep() {
	c.last = slices.DeleteFunc(c.last, func(r *processRun) bool {
		if !r.silent.Load() || !r.child.ReleaseIfEmpty() {
			return false
		}
		r.pumps.Wait()
		r.trailing.Wait()
		r.killing.Wait()
		return true
	})
}

// shutDown ends everything that the context has. It is the loop's last act.
func (c *processContext) shutDown() {
	why := context.Cause(c.ctx)
	lost := Finished{Status: KernelDied, StateLost: true}
	if c.run != nil {
		c.run.kill()
		c.run.fail(ErrorKernelDied, why.Error())
		c.finish(lost)
	}
	for _, x := range c.drain(why) {
		x.log.append(Error{Name: ErrorKernelDied, Value: why.Error()})
		x.finish(lost)
		c.keep(x)
	}
	for _, r := range c.last {
		r.close()
	}
	c.watchers.end(endOf(why))
}

func (c *processContext) interrupt(x *Execution) (stopped string, err error) {
	err = c.call(func() {
		switch {
		case x != nil && c.dequeue(x):
			x.log.append(Error{Name: ErrorInterrupted, Value: "it was taken out of the queue"})
			x.finish(Finished{Status: Interrupted})
			c.keep(x)
			stopped = x.id
		case c.run != nil && (x == nil || c.run.x == x) && !c.run.dead:
			stopped = c.run.x.id
			c.run.interrupt(time.Now())
		}
	})
	return stopped, err
}

func (c *processContext) replyInput(*Execution, uint64, string) error { return ErrNoInputWanted }

func (c *processContext) prepare(context.Context) error {
	return c.launcher.findProcess(c.language)
}

// restart ends what runs, and what lives on of earlier executions.
func (c *processContext) restart(context.Context) error {
	return c.call(func() {
		if c.run != nil && c.run.stopped == nil {
			c.run.stopped = &Finished{Status: KernelDied}
			c.run.fail(ErrorKernelDied, "the context was restarted")
			c.run.kill()
		}
		for _, r := range c.last {
			r.kill()
		}
	})
}

func (c *processContext) account() account.Account { return c.launcher.acc }

func (c *processContext) hasSurroundings() bool { return true }

// environment is that of an execution with its own changes.
func (c *processContext) environment(own []spawn.EnvVar) []string {
	var configured []spawn.EnvVar
	if l := &c.launcher; l.cfg.Environment != nil {
		configured = l.cfg.Environment()
	}
	return spawn.BuildEnv(c.launcher.acc, configured, c.launcher.env, own)
}

func (c *processContext) info() (info Info, err error) {
	err = c.call(func() { info = c.now() })
	return info, err
}

func (c *processContext) now() Info {
	info := c.static()
	info.State, info.Queued, info.BackgroundBytes = Idle, c.queued(), c.background.Load()
	if r := c.run; r != nil {
		info.State, info.Execution = Busy, r.x.id
		if r.stopped != nil {
			info.State = Interrupting
		}
		if r.child != nil {
			info.PID = r.child.PID()
		}
	}
	return info
}

func (c *processContext) watcher() (w *Watcher, err error) {
	err = c.call(func() { w = c.watch(c.now()) })
	return w, err
}

// codeFile returns a file in memory with code, which any user may read.
func codeFile(code string) (*os.File, error) {
	fd, err := unix.MemfdCreate("code", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file for the code: %w", err)
	}
	file := os.NewFile(uintptr(fd), "code")
	_, err = file.WriteString(code)
	if err == nil {
		_, err = file.Seek(0, 0)
	}
	if err == nil {
		err = file.Chmod(0o444)
	}
	if err != nil {
		_ = file.Close() // it is of no use
		return nil, fmt.Errorf("storing the code: %w", err)
	}
	return file, nil
}
