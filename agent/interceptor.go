package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"guestd.internal/agent/internal/codec"
	"guestd.internal/agent/internal/listen"
)

// call is what all calls have in common, from the first look at one to its
// status.
type call struct {
	agent  *Agent
	method string
	start  time.Time
	ctx    context.Context // of the handler: ends with the call, or with the server
	cancel context.CancelCauseFunc
	unhook func() bool
	inside bool // let in by the gate
	weight int  // by which processors has counted it in

	fault atomic.Pointer[codec.Fault] // the first malformed message of a stream
}

// handlerStack is how much stack, in bytes, a handler needs that starts a process.
const handlerStack = 8 << 10

// growStack lets the goroutine's stack grow once to what a handler needs. By itself it
// would grow two or three times, each time copied to twice the size.
//
//go:noinline
func growStack() (first byte) {
	var frame [handlerStack]byte
	return frame[len(attending)%len(frame)]
}

// newCall begins a call; finish ends it.
func (a *Agent) newCall(ctx context.Context, method string) *call {
	c := &call{agent: a, method: method, start: time.Now(), weight: weightOf(method)}
	a.processors.enter(c.weight)
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.unhook = context.AfterFunc(a.serving, func() { c.cancel(context.Cause(a.serving)) })
	return c
}

// admit decides whether the handler may see the call at all.
func (c *call) admit() error {
	if needsToken(c.method) {
		if err := c.agent.token.check(c.ctx); err != nil {
			return err
		}
	}
	if isWork(c.method) {
		if err := c.agent.gate.enter(); err != nil {
			return err
		}
		c.inside = true
	}
	return nil
}

// finish ends the call and turns what came of it into a status error, or nil. A
// value in panicked is the handler's panic, still on the stack.
func (c *call) finish(err error, panicked any) error {
	if panicked != nil {
		err = &panicError{panicked, debug.Stack()}
	}
	if p, ok := errors.AsType[*panicError](err); ok {
		c.agent.log.Error("panic in a call", "method", c.method, "panic", fmt.Sprint(p.value), "stack", string(p.stack))
		err = errPanic
	}
	// A handler may take a message that does not parse for a lost connection.
	if fault := c.fault.Load(); fault != nil && err != nil {
		err = fault
	}
	var st *status.Status
	if err != nil {
		st = statusOf(c.ctx, err)
		err = st.Err()
	}
	c.unhook()
	c.cancel(errCallEnded)
	c.agent.processors.leave(c.weight)
	if c.inside {
		c.agent.gate.leave()
	}
	c.report(st)
	return err
}

// report logs the call's outcome. st is nil for success.
func (c *call) report(st *status.Status) {
	level := slog.LevelDebug
	if isFault(st) {
		level = slog.LevelError
	}
	if !c.agent.log.Enabled(c.ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", c.method),
		slog.String("peer", describePeer(c.ctx)),
		slog.Duration("duration", time.Since(c.start)),
		slog.String("code", st.Code().String()),
	}
	if st != nil {
		attrs = append(attrs, slog.String("error", st.Message()))
	}
	c.agent.log.LogAttrs(c.ctx, level, "call", attrs...)
}

// describePeer says who calls, as far as the kernel told.
func describePeer(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, _ := p.AuthInfo.(listen.AuthInfo)
	switch info.Kind {
	case listen.Unix:
		return fmt.Sprintf("unix uid %d pid %d", info.Peer.UID, info.Peer.PID)
	case listen.Vsock:
		return fmt.Sprintf("vsock cid %d", info.Peer.CID)
	default:
		return p.Addr.String()
	}
}

// interceptUnary is the server's interceptor for calls with one answer.
func (a *Agent) interceptUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	requestCame(ctx)
	c := a.newCall(ctx, info.FullMethod)
	defer func() { err = c.finish(err, recover()) }()
	if err := c.admit(); err != nil {
		return nil, err
	}
	if fault := codec.FaultOf(req); fault != nil {
		return nil, fault
	}
	return handler(c.ctx, req)
}

// interceptStream is the server's interceptor for streams.
func (a *Agent) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	growStack()
	c := a.newCall(stream.Context(), info.FullMethod)
	defer func() { err = c.finish(err, recover()) }()
	if err := c.admit(); err != nil {
		return err
	}
	return handler(srv, &callStream{ServerStream: stream, call: c})
}

// callStream is a stream as its handler sees it.
type callStream struct {
	grpc.ServerStream
	call *call
	came bool // the first message; belongs to who receives
}

// Context implements grpc.ServerStream.
func (s *callStream) Context() context.Context { return s.call.ctx }

// RecvMsg implements grpc.ServerStream. A message that does not parse is a
// *codec.Fault, and that is what the call then ends with.
func (s *callStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err != nil && !errors.Is(err, io.EOF) {
		return requestError(err)
	}
	if !s.came {
		s.came = true
		requestCame(s.call.ctx)
	}
	if err != nil {
		return err
	}
	if fault := codec.FaultOf(m); fault != nil {
		s.call.fault.CompareAndSwap(nil, fault)
		return fault
	}
	return nil
}
