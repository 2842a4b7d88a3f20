package agent

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// requestTimeout is how long a call may take to bring its first message, all of it:
// without a limit, calls that nothing follows would be held for as long as their
// connection lives, those without a token too. The largest message gets there in
// this time at 140 KB/s.
const requestTimeout = time.Minute

// errNoRequest is why a call without a message ends; grpc tells the client no more
// than CANCELLED.
var errNoRequest = errors.New("the call's first message did not come in time")

// requestWait is a call's wait for its first message.
type requestWait struct {
	timer  *time.Timer
	unhook func() bool
}

type requestWaitKey struct{}

// tap is the one place that sees a call before its first message. It waits for nothing,
// since grpc holds the connection's lock.
func (a *Agent) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if needsToken(info.FullMethodName) && !a.token.matches(ctx) && !a.strangers.enter(ctx) {
		return nil, status.Error(codes.Unauthenticated, errTokenRefused.Error())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(a.requestTimeout, func() { cancel(errNoRequest) })
	unhook := context.AfterFunc(ctx, func() { timer.Stop() })
	return context.WithValue(ctx, requestWaitKey{}, requestWait{timer, unhook}), nil
}

// requestCame ends the wait for the first message.
func requestCame(ctx context.Context) {
	if wait, ok := ctx.Value(requestWaitKey{}).(requestWait); ok {
		wait.unhook()
		wait.timer.Stop()
	}
}

// requestError is what a failure to receive means for guestd's log: grpc calls it an
// internal error when the client sent more messages than the call takes, or fewer, and
// has told the client so by itself.
func requestError(err error) error {
	if status.Code(err) != codes.Internal {
		return err
	}
	return invalid("request", status.Convert(err).Message())
}
