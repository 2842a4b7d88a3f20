package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/id"
	"guestd.internal/internal/outlog"
	"guestd.internal/internal/spawn"
)

const (
	// interruptGrace is how long an interrupted process may go on before its tree
	// is killed.
	interruptGrace = 2 * time.Second
	// pipeLog is how much of a pipe is read ahead of the execution's log, in bytes.
	pipeLog = 256 << 10
	// An ExitError's traceback is the last maxTailLines lines of stderr, of
	// maxTail bytes at most.
	maxTail      = 4 << 10
	maxTailLines = 20
)

// processRun is one execution of a process language.
type processRun struct {
	c     *processContext
	x     *Execution
	log   *eventLog // x's
	begun time.Time
	child *spawn.Child // nil if it did not start

	pipes   []*textPipe // stdout, stderr
	output  chan struct{}
	dead    bool      // the process has ended, and the pipes know
	stopped *Finished // why it is being stopped, or nil
	killAt  time.Time // zero when it is not to be killed
	failed  bool      // there is an Error event
	tail    string    // the end of stderr

	pumps    sync.WaitGroup
	killing  sync.WaitGroup
	trailing sync.WaitGroup // reads on after the end
	silent   atomic.Bool    // that is done
}

// textPipe is one stream of a process as text.
type textPipe struct {
	stream  Stream
	pump    *outlog.Pump
	reader  *outlog.Reader
	decoder textDecoder
	ended   bool // all that the process wrote before its end has come
	silent  bool // nobody can write any more
}

// start starts the process and the pumps of its output.
func (r *processRun) start() (err error) {
	r.output = make(chan struct{}, 1)
	args, stdin, extra := r.c.language.command(r.x.code)
	r.x.code = ""
	command := spawn.Command{
		ID:      id.New("p"),
		Args:    append([]string{r.c.language.program}, args...),
		Env:     r.c.environment(r.x.env),
		Dir:     cmp.Or(r.x.dir, r.c.dir),
		Account: r.c.launcher.acc,
	}
	var files fileList // the child's
	defer files.close()
	command.Stdin = files.code(stdin)
	command.Extra = files.code(extra)
	command.Stdout = files.add(r.pipe(StreamStdout))
	command.Stderr = files.add(r.pipe(StreamStderr))
	if err := files.err; err != nil {
		r.close()
		return err
	}
	r.child, err = r.c.launcher.cfg.Spawner.Start(command)
	if err != nil {
		r.close()
		return fmt.Errorf("starting %s: %w", r.c.language.program, err)
	}
	return nil
}

// fileList is files that are closed together. Its err is the first error of
// opening one of them.
type fileList struct {
	files []*os.File
	err   error
}

func (l *fileList) add(file *os.File, err error) *os.File {
	if l.err == nil {
		l.err = err
	}
	if err == nil {
		l.files = append(l.files, file)
	}
	return file
}

// code adds a file in memory with the code, none for no code.
func (l *fileList) code(code string) *os.File {
	if code == "" {
		return nil
	}
	return l.add(codeFile(code))
}

func (l *fileList) close() {
	for _, file := range l.files {
		_ = file.Close() // the child has its own
	}
}

// pipe opens a pipe, starts to pump it, and returns the end for the process.
func (r *processRun) pipe(stream Stream) (*os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("opening a pipe: %w", err)
	}
	// It belongs to the user, who could not open /dev/stdout otherwise.
	if acc := r.c.launcher.acc; int(acc.UID) != os.Geteuid() {
		if err := write.Chown(int(acc.UID), int(acc.GID)); err != nil {
			return nil, errors.Join(fmt.Errorf("opening a pipe: %w", err), read.Close(), write.Close())
		}
	}
	log := outlog.New(outlog.Options{Limit: pipeLog})
	p := &textPipe{stream: stream, pump: outlog.NewPump(read, outlog.Pipe, log, nil)}
	p.reader, err = log.Attach(outlog.ReaderOptions{Wake: r.output})
	if err != nil { // an offset of 0 is never past the end
		return nil, errors.Join(err, read.Close(), write.Close())
	}
	r.pipes = append(r.pipes, p)
	r.pumps.Go(func() {
		if err := p.pump.Run(); err != nil {
			r.c.log.Warn("reading a process's output", "stream", stream, "error", err)
		}
	})
	return write, nil
}

// take moves what there is from the pipe: as text and, with more, whether to come
// again at once.
func (p *textPipe) take() (text string, more bool) {
	const atOnce = 64 << 10
	chunk, status := p.reader.Next(atOnce)
	switch status {
	case outlog.Ready:
		text = p.decoder.decode(chunk.Data)
		chunk.Release()
		_ = p.reader.Ack(p.reader.Offset()) // it was sent; the log would wait for us to say so
		return text, true
	case outlog.Waiting:
		return "", false
	case outlog.AtMark:
		if !p.ended {
			p.ended = true
			return p.decoder.rest(), false
		}
		return "", false
	default: // the end of all
		p.ended, p.silent = true, true
		return p.decoder.rest(), false
	}
}

// sources are what to wait for, and for how long at most.
func (r *processRun) sources() (wait time.Duration, output, died, room <-chan struct{}) {
	next := earliest(r.deadline(), r.killAt)
	output = r.output
	if blocked, until := r.log.blocked(); blocked {
		output = nil // the process has to wait
		next = earliest(next, until)
	}
	if !r.dead {
		died = r.child.Done()
	}
	wait = time.Hour
	if !next.IsZero() {
		wait = max(time.Until(next), 0)
	}
	return wait, output, died, r.log.room
}

// deadline is when the execution's time is up, or zero.
func (r *processRun) deadline() time.Time {
	if r.dead || r.stopped != nil || r.x.timeout == math.MaxInt64 {
		return time.Time{}
	}
	return r.begun.Add(r.x.timeout)
}

// onDeath notices that the process has ended. What it has written is in the pipes.
func (r *processRun) onDeath() {
	r.dead = true
	r.killAt = time.Time{}
	r.log.unbind()
	for _, p := range r.pipes {
		p.pump.LeaderEnded()
	}
}

// advance does what can be done now.
func (r *processRun) advance(now time.Time) {
	switch {
	case due(r.deadline(), now):
		r.fail(ErrorTimeout, fmt.Sprintf("the execution took longer than %s", r.x.timeout))
		r.stopped = &Finished{Status: TimedOut}
		r.kill()
	case due(r.killAt, now):
		r.kill()
	}
	for _, p := range r.pipes {
		for more := true; more && !r.isBlocked(); {
			var text string
			text, more = p.take()
			r.emit(p.stream, text)
		}
	}
	if r.dead && !slices.ContainsFunc(r.pipes, func(p *textPipe) bool { return !p.ended }) {
		r.complete()
	}
}

func (r *processRun) isBlocked() bool {
	blocked, _ := r.log.blocked()
	return blocked
}

func (r *processRun) emit(stream Stream, text string) {
	switch {
	case text == "":
	case stream == StreamStderr:
		r.tail += text
		r.tail = r.tail[max(len(r.tail)-maxTail, 0):]
		r.log.append(Stderr{Text: text})
	default:
		r.log.append(Stdout{Text: text})
	}
}

// fail adds the execution's error unless it has one.
func (r *processRun) fail(name, value string, traceback ...string) {
	if !r.failed {
		r.failed = true
		r.log.append(Error{Name: name, Value: value, Traceback: traceback})
	}
}

// interrupt does what Ctrl-C would, and sees to it that it helps.
func (r *processRun) interrupt(now time.Time) {
	if r.stopped != nil {
		return
	}
	r.stopped = &Finished{Status: Interrupted}
	r.killAt = now.Add(interruptGrace)
	r.log.unbind()
	if err := r.child.Signal(unix.SIGINT, spawn.Tree); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.c.log.Warn("interrupting a process", "error", err)
	}
}

// kill ends the whole tree. The rest follows from its death.
func (r *processRun) kill() {
	r.killAt = time.Time{}
	r.log.unbind()
	r.killing.Go(func() {
		if err := r.child.KillTree(); err != nil {
			r.c.log.Warn("killing a process", "error", err)
		}
	})
}

// complete ends the execution.
func (r *processRun) complete() {
	status := r.child.Status()
	f := Finished{HasExit: true, ExitCode: status.Code, Signal: status.Signal}
	how := ""
	if status.Code != 0 || status.Signal != 0 {
		how = r.c.language.program + " " + describeEnd(status)
	}
	switch {
	case r.stopped != nil:
		f.Status = r.stopped.Status
		r.fail(ErrorInterrupted, cmp.Or(how, "it was interrupted"))
	case how != "" || r.failed:
		f.Status = Failed
		r.fail(ErrorExit, how, lastLines(r.tail)...)
	}
	r.c.finish(f)
}

// lastLines are the last lines of text, whole ones as far as possible.
func lastLines(text string) []string {
	text = strings.TrimRight(strings.ToValidUTF8(text, "\uFFFD"), "\n")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	return lines[max(len(lines)-maxTailLines, 0):]
}

// trail reads on what the processes write that live on, as output of the
// background, so that they neither wait nor get SIGPIPE.
func (r *processRun) trail() {
	for _, p := range r.pipes {
		p.reader.PassMark()
	}
	r.trailing.Go(func() {
		for !r.allSilent() {
			for _, p := range r.pipes {
				r.takeLate(p)
			}
			if !r.allSilent() {
				<-r.output
			}
		}
		r.silent.Store(true)
	})
}

// takeLate moves all that there is in the pipe to the watchers.
func (r *processRun) takeLate(p *textPipe) {
	for more := true; more && !p.silent; {
		var text string
		if text, more = p.take(); text != "" {
			r.c.background.Add(uint64(len(text)))
			r.c.tell(WatchEvent{Output: &BackgroundOutput{ExecutionID: r.x.id, Stream: p.stream, Text: text}})
		}
	}
}

func (r *processRun) allSilent() bool {
	return !slices.ContainsFunc(r.pipes, func(p *textPipe) bool { return !p.silent })
}

// close ends all that is left of the run, whatever state it is in.
func (r *processRun) close() {
	if r.child != nil {
		r.kill()
		r.killing.Wait()
		<-r.child.Done()
		r.child.Release()
	}
	for _, p := range r.pipes {
		p.pump.Close()
	}
	r.pumps.Wait()
	r.trailing.Wait()
}
