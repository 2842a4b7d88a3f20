package agent

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protowire"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// A million empty variables take two bytes each on the wire.
func TestRequestsOfStrangersAreNotDecoded(t *testing.T) {
	const variables = 1 << 20
	env := bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, 6, protowire.BytesType), nil), variables)
	request := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), env) // RunRequest.spec
	allocated := func(a testAgent, want codes.Code) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		wantCode(t, a.sendRaw(within(t), guestdv1.ProcessService_Run_FullMethodName, request), want, "")
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	known := allocated(startAgent(t, Config{}), codes.InvalidArgument)
	strangers := allocated(startAgent(t, Config{TokenFile: tokenFile(t, testToken, 0o600)}), codes.Unauthenticated)
	if known < 50*variables || strangers > 20*variables {
		t.Errorf("%d MiB were allocated for a stranger and %d MiB for who is known; want a fraction", strangers>>20, known>>20)
	}
}

// awaitStrangers waits until so many calls without the token are under way.
func (a testAgent) awaitStrangers(t *testing.T, want int64) {
	t.Helper()
	for limit := within(t); a.strangers.inside.Load() != want; time.Sleep(time.Millisecond) {
		if limit.Err() != nil {
			t.Fatalf("%d calls without the token, want %d", a.strangers.inside.Load(), want)
		}
	}
}

func TestFewStrangersAreWaitedFor(t *testing.T) {
	a := startAgent(t, Config{TokenFile: tokenFile(t, testToken, 0o600)})
	ctx, leave := context.WithCancelCause(within(t))
	for range maxStrangers { // unary, so that a message is waited for
		a.open(t, ctx, guestdv1.ProcessService_Run_FullMethodName)
	}
	a.awaitStrangers(t, maxStrangers)
	wantCode(t, a.open(t, within(t), guestdv1.ProcessService_Run_FullMethodName).RecvMsg(new([]byte)), codes.Unauthenticated, "")
	known := withToken(within(t), "Bearer "+testToken)
	if _, err := a.system().GetInfo(known, &guestdv1.GetInfoRequest{}); err != nil {
		t.Errorf("with the token: %v", err)
	}
	if _, err := healthv1.NewHealthClient(a.client).Check(within(t), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	leave(errors.New("they have gone"))
	a.awaitStrangers(t, 0)
	_, err := a.system().GetInfo(within(t), &guestdv1.GetInfoRequest{})
	wantCode(t, err, codes.Unauthenticated, "TOKEN_REFUSED")
}
