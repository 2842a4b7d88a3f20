package client

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// running is a process that a Cmd has started or an Attachment follows, with the session that carries it.
type running struct {
	session *session
	// release stops watching the user's context.
	release func() bool
	ended   chan struct{} // closed by run
	// err is what the session ended with; valid once ended is closed.
	err error

	mu       sync.Mutex // protects the following
	cause    error      // of the user's context, once that has ended the command
	inputErr error
}

// begin connects a session and starts to watch the user's context and to read the user's input.
func (s *session) begin(ctx context.Context, stdin io.Reader, keep bool) (*running, error) {
	if err := ctx.Err(); err != nil {
		s.cancel(err)
		return nil, context.Cause(ctx)
	}
	r := &running{session: s, ended: make(chan struct{})}
	if stdin != nil {
		s.outbox.input = newInputWindow(&s.outbox.mu)
	}
	r.release = context.AfterFunc(ctx, func() {
		r.mu.Lock()
		r.cause = context.Cause(ctx)
		r.mu.Unlock()
		s.cancelled(context.Cause(ctx), keep)
	})
	err := s.open()
	if s.opened.Load() && broken(err) {
		// The process may have been started before the connection broke: the request id makes
		// the second Exec attach to it then, rather than start another.
		err = s.client.comeBack(s.ctx, err, s.open)
	}
	if err != nil {
		r.release()
		s.cancel(err)
		return nil, err
	}
	if stdin != nil {
		go r.pumpInput(stdin)
	}
	return r, nil
}

func (r *running) pumpInput(stdin io.Reader) {
	if err := r.session.outbox.pumpInput(stdin); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.inputErr = err
	}
}

// leave ends the session and lets the process go on.
func (r *running) leave() error {
	if err := r.notRunning(); err != nil {
		return err
	}
	if !r.release() {
		return nil // the context has ended it
	}
	return r.session.leave(ErrLeft)
}

// run carries the session to its end.
func (r *running) run() {
	r.err = r.session.run()
	r.release()
	close(r.ended)
}

func (r *running) wait() error {
	<-r.ended
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.status()
	if status != nil && !status.Success() {
		exit := &ExitError{ExitStatus: *status, cause: r.cause}
		if lost := r.lost(); lost != nil {
			return errors.Join(exit, lost)
		}
		return exit
	}
	if r.err != nil {
		return r.err
	}
	return r.lost()
}

// lost is what of the input and the output has not got through, whatever the end was; mu is held.
func (r *running) lost() error {
	errs := []error{r.inputErr}
	for _, stream := range []Stream{Stdout, Stderr} {
		errs = append(errs, r.session.sinks[stream].err)
	}
	if len(r.session.gaps) > 0 {
		errs = append(errs, &GapError{Gaps: r.session.gaps})
	}
	return errors.Join(errs...)
}

// status is nil until the process has ended.
func (r *running) status() *ExitStatus {
	select {
	case <-r.ended:
		return exitStatus(r.session.exit)
	default:
		return nil
	}
}

// notRunning tells why nothing can be sent to the process.
func (r *running) notRunning() error {
	if r == nil {
		return ErrNotStarted
	}
	select {
	case <-r.ended:
		return os.ErrProcessDone
	default:
		return nil
	}
}

func (r *running) signal(signal syscall.Signal) error {
	if err := r.notRunning(); err != nil {
		return err
	}
	r.session.outbox.signal(&guestdv1.ProcessSignal{Signal: uint32(signal)})
	return nil
}

func (r *running) resize(size Size) error {
	if err := r.notRunning(); err != nil {
		return err
	}
	r.session.outbox.resize(size.proto())
	return nil
}
