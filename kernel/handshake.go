package kernel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/kernel/internal/jupyter"
)

// handshake connects to a starting kernel and waits until it answers and its
// output is known to arrive. The order matters: with iopub first not even the
// kernel's first status is missed.
func (s *session) handshake(ctx context.Context, conn jupyter.Connection) error {
	if err := s.contact(ctx, conn, jupyter.IOPub, ""); err != nil {
		return err
	}
	identity := jupyter.NewID() // shell and stdin must have the same
	for _, channel := range []jupyter.Channel{jupyter.Shell, jupyter.Stdin, jupyter.Control} {
		if err := s.contact(ctx, conn, channel, identity); err != nil {
			return err
		}
	}
	if err := s.barrier(ctx); err != nil {
		return err
	}
	s.ready = time.Now()
	return nil
}

// contact tries to connect to one of a starting kernel's sockets until the kernel
// listens there: no rule says in which order it begins to.
func (s *session) contact(ctx context.Context, conn jupyter.Connection, channel jupyter.Channel, identity string) error {
	const first, longest = 2 * time.Millisecond, 20 * time.Millisecond
	for wait := first; ; wait = min(wait*3/2, longest) {
		err := s.connect(ctx, conn, channel, identity)
		notYet := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EAGAIN)
		if err == nil || !notYet {
			return err
		}
		select {
		case <-time.After(wait):
		case <-s.child.Done():
			return errDiedStarting
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// barrier asks for kernel_info until both the reply and the status idle of the
// same request have come: then the kernel works, and our subscription does. Only
// once it has answered is it asked again, so that a slow one is not asked much.
func (s *session) barrier(ctx context.Context) error {
	const resend = 100 * time.Millisecond
	sent := make(map[string]bool)
	var replied, idle bool
	again := time.NewTimer(0)
	defer again.Stop()
	for !replied || !idle {
		select {
		case <-again.C:
			id, err := s.send(jupyter.Shell, jupyter.TypeKernelInfoRequest, struct{}{}, nil)
			if err != nil {
				return err
			}
			sent[id] = true
		case in := <-s.replies:
			if in.err != nil {
				return s.lost(ctx, in.err)
			}
			if !sent[in.msg.Parent.MsgID] {
				continue
			}
			if !replied {
				replied = true
				s.ours = isOurs(in.msg)
			}
			again.Reset(resend) // in case the idle was too early for us
		case in := <-s.iopub:
			if in.err != nil {
				return s.lost(ctx, in.err)
			}
			idle = idle || sent[in.msg.Parent.MsgID] && in.msg.State() == jupyter.StateIdle
		case <-s.child.Done():
			return errDiedStarting
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// isOurs says whether the kernel that sent a kernel_info_reply runs our launcher's
// parts. User code cannot have run yet.
func isOurs(msg *jupyter.Message) bool {
	var info jupyter.KernelInfo
	return msg.DecodeContent(&info) == nil && info.Guestd != nil
}

var (
	errDiedStarting = errors.New("it ended before it was ready")
	errStartTimeout = errors.New("it was not ready in time")
)

// lost tells a connection that ended with its kernel from one that did not.
func (s *session) lost(ctx context.Context, err error) error {
	select {
	case <-s.child.Done():
		return errDiedStarting
	case <-time.After(500 * time.Millisecond):
		return fmt.Errorf("its connection broke: %w", err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// explain makes the error that the caller of a failed start gets, before close.
func (s *session) explain(cmd command, err error) error {
	if !errors.Is(err, errDiedStarting) {
		return &StartError{Stderr: s.stderr.text(), Err: err}
	}
	stderr := s.stderr.text()
	if strings.Contains(strings.ReplaceAll(stderr, "'", ""), "No module named ipykernel") {
		return pythonUnavailable(cmd.program + " has no module ipykernel")
	}
	return &StartError{
		Problem: fmt.Sprintf("%s %s before it was ready", cmd.program, describeEnd(s.child.Status())),
		Stderr:  stderr,
	}
}
