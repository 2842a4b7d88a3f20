package agent

import (
	"bytes"
	"runtime"
	"testing"

	"google.golang.org/grpc/codes"
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
